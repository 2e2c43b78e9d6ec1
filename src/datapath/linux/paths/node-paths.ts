import type { Clock } from '../../../base/clock.ts';
import { messageOf } from '../../../base/failure.ts';
import { Prefix } from '../../../net/prefix.ts';
import { type NodeConfiguration, tunnelEndpoint } from '../../../nodemanager/address-claims.ts';
import type { Node } from '../../../nodemanager/node.ts';
import type { NodeHandler } from '../../../nodemanager/node-handler.ts';
import { KeptTable, type KeptTableContext } from '../kept-table.ts';
import { TUNNEL_DEVICE, TUNNEL_HOPS, TUNNEL_PORT, TUNNEL_VNI } from '../kernel-names.ts';
import { familyOf } from '../netlink/address-bytes.ts';
import { RTM_LINK } from '../netlink/link.ts';
import type { NetlinkSocket } from '../netlink/netlink-socket.ts';
import { ENCAP_CHECKSUM } from '../netlink/route.ts';
import { ClaimedItems } from './claimed-items.ts';
import { PacedTask } from './paced-task.ts';
import { type DeviceItem, type PathItem, pathKey, TUNNEL } from './path-item.ts';
import type { PathTable, Reach } from './path-table.ts';
import { RemoteCIDRs } from './remote-cidrs.ts';

/** Groups of rtnetlink: links, addresses and routes of both families. */
export const NODE_PATHS_GROUPS: readonly number[] = [1, 5, 7, 9, 11];
/** Minimum time between reactions to events, which may arrive in thousands. */
const EVENT_PACE_MS = 1_000;
/**
 * Pause per node between two lookups of the routes to all nodes. A lookup takes about 20 µs, so lookups use at most 2 %
 * of a processor, however often foreign routes change.
 */
const NODE_PACE_MS = 1;
/** A validation of a node compares all paths with the kernel, unless they were compared less than this time ago. */
const VALIDATION_AGE_MS = 30_000;
const NODES_PER_TURN = 64;
const MAX_REPORTED = 16;
const UNRESOLVED = 'cannot resolve the paths to nodes';
/** Overhead of VXLAN: Ethernet, IP, UDP and its own header. */
const VXLAN_BYTES = { ipv4: 50, ipv6: 70 } as const;

/** Settings of the routes and tunnels to nodes. */
export interface NodePathsOptions {
  /** `auto`: a direct route if the node is on a link of this one, otherwise the tunnel. */
  readonly mode: 'auto' | 'direct' | 'tunnel';
  /**
   * Full name of the local node, `cluster/name`, because a kvstore lists it among all nodes. A node of source `local`
   * is always the local node. Nodes of other clusters are remote: their pod CIDRs are checked, see `RemoteCIDRs`.
   */
  readonly localNode?: string | undefined;
  /** Ranges that pods of remote clusters may use, in addition to the private ones. */
  readonly remoteCIDRs?: readonly string[] | undefined;
}

/** The local end of the tunnel: its address, and the interface. */
interface TunnelEnd {
  readonly address: string;
  readonly device: DeviceItem;
}

/** There is no path to a node; the message contains the reason. */
export class NoPathError extends Error {
  override readonly name: string = 'NoPathError';
  readonly code: string = 'no-path';
}

/**
 * Maintains routes and tunnels to the pods of other nodes. Derives the desired items from each node and keeps them in
 * the kernel. If another process removes an item, the kernel reports it and the item is restored. A handler call fails
 * if there is no path to the node; the node manager retries the call.
 */
export class NodePaths implements NodeHandler, Disposable {
  readonly name = 'paths';
  readonly #table: PathTable;
  readonly #options: NodePathsOptions;
  readonly #context: KeptTableContext & { readonly clock: Clock };
  readonly #claims = new ClaimedItems<PathItem>();
  readonly #remoteCIDRs: RemoteCIDRs;
  readonly #nodes = new Map<string, Node>();
  /** Reasons why nodes have no path. */
  readonly #withoutPath = new Map<string, string>();
  readonly #repairTask: PacedTask;
  readonly #resolveTask: PacedTask;
  /** Writes the claims to the kernel. */
  readonly kept: KeptTable<PathItem>;
  #underlay: NodeConfiguration['underlay'] = 'ipv4';
  #local: Node | undefined;
  /** The desired local end of the tunnel, or the reason why there is none; undefined if it must be computed. */
  #tunnel: TunnelEnd | string | undefined;
  #monitor: NetlinkSocket | undefined;
  #subscription: Disposable | undefined;
  /** Current problems of all paths. */
  readonly #problems = new Map<string, string>();
  #isDisposed = false;

  constructor(
    table: PathTable,
    options: NodePathsOptions,
    context: KeptTableContext & { readonly clock: Clock },
  ) {
    this.#table = table;
    this.#options = options;
    this.#context = context;
    this.#remoteCIDRs = new RemoteCIDRs(options.remoteCIDRs);
    this.kept = new KeptTable(table, this.#claims, {
      ...context,
      whenDeletesAllowed: () => this.#deletesAllowed(),
    });
    this.#repairTask = new PacedTask(
      context.clock,
      () => EVENT_PACE_MS,
      async () => void (await this.#attempt('cannot read the paths of the kernel', () => this.kept.repair())),
    );
    this.#resolveTask = new PacedTask(
      context.clock,
      () => Math.max(EVENT_PACE_MS, this.#nodes.size * NODE_PACE_MS),
      async () => {
        const isDone = await this.#attempt(UNRESOLVED, () => this.#resolveAll());
        if (!isDone) void this.#resolveTask.request(); // the claims of the other nodes may be outdated
      },
    );
  }

  /** Reads the kernel and follows its events. Rejects with the kernel's error; may be called again then. */
  async start(): Promise<void> {
    this.#monitor ??= this.#table.open({ groups: NODE_PATHS_GROUPS });
    this.#subscription ??= this.#monitor.onEvents(() => this.#readEvents());
    this.#remoteCIDRs.setInterfaces(this.#table.addresses());
    await this.kept.adopt();
  }

  nodeAdd(node: Node): void {
    if (this.#isLocal(node)) this.#setLocal(node);
    else this.#setOther(node);
  }

  nodeUpdate(old: Node, node: Node): void {
    if (this.#isLocal(old) !== this.#isLocal(node)) this.nodeDelete(old);
    this.nodeAdd(node);
  }

  nodeDelete(node: Node): void {
    this.#claim(node, new Map());
    this.#withoutPath.delete(node.fullName);
    this.#nodes.delete(node.fullName);
    this.#reserve(node, []);
    if (this.#isLocal(node)) this.#setLocal(undefined);
  }

  /**
   * Compares the paths of all nodes with the kernel, because a comparison for one node would cost little less. Compares
   * at most twice a minute. Throws {@link NoPathError}.
   */
  async nodeValidateImplementation(node: Node): Promise<void> {
    if (this.#repairTask.age > VALIDATION_AGE_MS) await this.#repairTask.request();
    const reason = this.#withoutPath.get(node.fullName);
    if (reason !== undefined) throw new NoPathError(reason);
  }

  nodeConfigurationChanged({ underlay }: NodeConfiguration): void {
    if (underlay === this.#underlay) return;
    this.#underlay = underlay;
    this.#tunnel = undefined;
    void this.#resolveTask.request();
  }

  /** Returns the current problems of all paths, then why some nodes have no path, one sentence each. */
  problems(): readonly string[] {
    return [...this.#problems.values(), ...[...this.#withoutPath.values()].slice(0, MAX_REPORTED)];
  }

  /** Ends the handler. Does not change the kernel. Idempotent. */
  [Symbol.dispose](): void {
    this.#isDisposed = true;
    this.#subscription?.[Symbol.dispose]();
    this.#monitor?.[Symbol.dispose]();
    this.#subscription = undefined;
    this.#monitor = undefined;
    this.#repairTask[Symbol.dispose]();
    this.#resolveTask[Symbol.dispose]();
    this.kept[Symbol.dispose]();
  }

  #isLocal({ source, fullName }: Node): boolean {
    return source === 'local' || fullName === this.#options.localNode;
  }

  #setLocal(node: Node | undefined): void {
    this.#local = node;
    this.#tunnel = undefined;
    if (node !== undefined) this.#reserve(node, usedPrefixes(node));
    void this.#resolveTask.request();
  }

  /** Returns true if a node belongs to another cluster. */
  #isRemote({ source, cluster }: Node): boolean {
    const local = this.#options.localNode?.split('/')[0] ?? this.#local?.cluster;
    return source === 'clustermesh' || (local !== undefined && cluster !== local);
  }

  /** Reserves the prefixes of a node of the local cluster, so that pod CIDRs of remote clusters cannot overlap them. */
  #reserve(node: Node, used: readonly string[]): void {
    const isChanged = this.#remoteCIDRs.setClusterNode(node.fullName, this.#isRemote(node) ? [] : used);
    if (isChanged) void this.#resolveTask.request();
  }

  #setOther(node: Node): void {
    this.#nodes.set(node.fullName, node);
    this.#reserve(node, usedPrefixes(node));
    let reason: string | undefined;
    try {
      reason = this.#resolve(node);
    } catch (error) {
      void this.#resolveTask.request(); // until then, deletes wait
      throw error;
    }
    if (reason !== undefined) throw new NoPathError(reason);
  }

  /**
   * Resolves when deletes may be applied. They wait for a planned resolution, because it may claim the items: after a
   * restart, all items of the tunnel are unclaimed until the local node is known. Rejects if the resolution fails.
   */
  async #deletesAllowed(): Promise<void> {
    if (!this.#resolveTask.isIdle) {
      await this.#resolveTask.request();
      const failure = this.#problems.get(UNRESOLVED);
      if (failure !== undefined) throw new Error(failure);
    }
    await this.#context.whenDeletesAllowed?.();
  }

  /**
   * Claims the items for the paths to a node. Returns the reason if a path is missing. If the kernel cannot answer,
   * throws `SyscallError` and changes nothing.
   */
  #resolve(node: Node): string | undefined {
    const items = new Map<string, PathItem>();
    let missing: string | undefined;
    for (const cidr of podCIDRs(node)) {
      const reason = this.#addPath(node, cidr, items);
      if (reason !== undefined) missing ??= `no path to ${cidr} of ${node.fullName}: ${reason}`;
    }
    this.#claim(node, items);
    if (missing === undefined) this.#withoutPath.delete(node.fullName);
    else this.#withoutPath.set(node.fullName, missing);
    return missing;
  }

  /** Replaces the claims of a node. Marks their keys, except those whose items the kernel is known to have. */
  #claim({ fullName: owner, source }: Node, items: ReadonlyMap<string, PathItem>): void {
    for (const key of this.#claims.replace({ owner, source }, items)) {
      const item = this.#claims.get(key);
      if (item === undefined || !this.#table.has(key, item) || this.kept.isUnconfirmed(key))
        this.kept.mark(key);
    }
  }

  /** Adds the items of the path to a pod CIDR of a node. Returns the reason if there is no path. */
  #addPath(node: Node, cidr: string, items: Map<string, PathItem>): string | undefined {
    const hop = tunnelEndpoint(node, cidr.includes(':') ? 'ipv6' : 'ipv4');
    const tunnelEnd = tunnelEndpoint(node, this.#underlay);
    if ([hop, tunnelEnd].some((address) => address !== undefined && containsAddress(cidr, address)))
      return 'it contains the address of its node';
    const refusal = this.#refusal(node, cidr);
    if (refusal !== undefined) return refusal;
    const { mode } = this.#options;
    const direct = mode === 'tunnel' || hop === undefined ? undefined : this.#table.reach(hop);
    if (direct?.kind === 'link') {
      items.set(pathKey('route', cidr), { kind: 'route', gateway: hop, interface: direct.interface });
      return undefined;
    }
    if (mode === 'direct') return reasonOf(direct);
    return this.#addTunnel(cidr, tunnelEnd, items);
  }

  /**
   * Returns the reason why a CIDR of a node may not have a route: the route would take packets of other nodes. Returns
   * undefined if it may have one.
   */
  #refusal(node: Node, cidr: string): string | undefined {
    if (this.#isRemote(node)) return this.#remoteCIDRs.refusal(cidr);
    const overlapping = this.#local && podCIDRs(this.#local).find((one) => overlaps(one, cidr));
    return overlapping && `it overlaps ${overlapping} of this node`;
  }

  #addTunnel(cidr: string, tunnelEnd: string | undefined, items: Map<string, PathItem>): string | undefined {
    if (tunnelEnd === undefined) return `the node has no ${this.#underlay} tunnel address`;
    this.#tunnel ??= this.#localEnd();
    if (typeof this.#tunnel === 'string') return this.#tunnel;
    const { address, device } = this.#tunnel;
    items.set(pathKey('device', TUNNEL_DEVICE), device);
    items.set(pathKey('filter', TUNNEL_DEVICE), { kind: 'filter' });
    items.set(pathKey('route', cidr), {
      kind: 'route',
      gateway: TUNNEL_HOPS[familyOf(cidr)],
      interface: TUNNEL,
      encap: {
        id: TUNNEL_VNI,
        source: address,
        destination: tunnelEnd,
        ttl: 0,
        tos: 0,
        flags: ENCAP_CHECKSUM,
      },
    });
    return undefined;
  }

  /** Returns the local end of the tunnel, or the reason why there is none. */
  #localEnd(): TunnelEnd | string {
    const local = this.#local && tunnelEndpoint(this.#local, this.#underlay);
    if (local === undefined) return 'the tunnel address of this node is unknown';
    const mtu = this.#table.mtuAt(local);
    if (mtu === undefined) return `no interface has the tunnel address ${local} of this node`;
    return {
      address: local,
      device: { kind: 'device', vni: 'any', port: TUNNEL_PORT, mtu: mtu - VXLAN_BYTES[this.#underlay] },
    };
  }

  #readEvents(): void {
    try {
      this.#readPendingEvents();
    } catch {
      // An unreadable event is treated like a lost one.
      this.#applyEvent({ reachChanged: true, mustReread: true });
    }
  }

  #readPendingEvents(): void {
    const monitor = this.#monitor;
    for (let events = monitor?.receive(); events !== undefined; events = monitor?.receive()) {
      if (events === 'overrun') {
        this.#applyEvent({ reachChanged: true, mustReread: true });
        continue;
      }
      for (const message of events) {
        // Our own changes are recorded already, except for items deleted with an interface.
        if (message.port !== this.#table.port || isAboutLink(message.type))
          this.#applyEvent(this.#table.applyMessage(message));
      }
    }
  }

  #applyEvent({
    key,
    reachChanged = false,
    mustReread = false,
  }: ReturnType<PathTable['applyMessage']>): void {
    if (reachChanged) {
      this.#tunnel = undefined;
      void this.#resolveTask.request();
    }
    const item = key === undefined ? undefined : this.#claims.get(key);
    const isAsDesired = key === undefined || this.#table.has(key, item);
    if (key !== undefined && item !== undefined && !isAsDesired) this.kept.mark(key);
    // An undesired item is deleted after a read, because the kept table knows only items that it has read or written.
    else if (mustReread || !isAsDesired) void this.#repairTask.request();
  }

  /** Runs work, and records its failure as a problem. Returns true if it succeeded. */
  async #attempt(problem: string, work: () => Promise<unknown>): Promise<boolean> {
    try {
      await work();
      this.#problems.delete(problem);
      return true;
    } catch (error) {
      this.#problems.set(problem, `${problem}: ${messageOf(error)}`);
      return false;
    }
  }

  async #resolveAll(): Promise<void> {
    this.#remoteCIDRs.setInterfaces(this.#table.addresses());
    let left = NODES_PER_TURN;
    for (const node of [...this.#nodes.values()]) {
      if (--left === 0) {
        await new Promise<void>((resolve) => void this.#context.nextTurn(resolve));
        // The sockets may be closed by then.
        if (this.#isDisposed) return;
        left = NODES_PER_TURN;
      }
      // The node may have been changed or deleted during the pause.
      if (this.#nodes.get(node.fullName) === node) this.#resolve(node);
    }
  }
}

function podCIDRs({ fields }: Node): readonly string[] {
  const { ipv4AllocCIDR, ipv6AllocCIDR } = fields;
  const all = [
    ipv4AllocCIDR,
    ...fields.ipv4SecondaryAllocCIDRs,
    ipv6AllocCIDR,
    ...fields.ipv6SecondaryAllocCIDRs,
  ];
  return all.filter((cidr) => cidr !== undefined);
}

/** Returns all prefixes used by a node: its pod CIDRs and addresses. */
function usedPrefixes(node: Node): readonly string[] {
  return [...podCIDRs(node), ...node.fields.addresses.map(({ ip }) => ip)];
}

function overlaps(one: string, other: string): boolean {
  const [a, b] = [Prefix.parse(one), Prefix.parse(other)];
  return a !== undefined && b !== undefined && (a.contains(b) || b.contains(a));
}

function containsAddress(cidr: string, address: string): boolean {
  const inner = Prefix.parse(address);
  return inner !== undefined && Prefix.parse(cidr)?.contains(inner) === true;
}

function reasonOf(reach: Reach | undefined): string {
  return reach?.kind === 'unreachable' ? reach.reason : 'the node has no address of that family';
}

function isAboutLink(type: number): boolean {
  return type === RTM_LINK.add || type === RTM_LINK.delete;
}
