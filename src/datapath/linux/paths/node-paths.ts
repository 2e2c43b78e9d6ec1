import type { Clock } from '../../../base/clock.ts';
import { type Failure, failureOf } from '../../../base/failure.ts';
import { Prefix } from '../../../net/prefix.ts';
import { type NodeConfiguration, tunnelEndpoint } from '../../../nodemanager/address-claims.ts';
import type { Node } from '../../../nodemanager/node.ts';
import type { NodeHandler } from '../../../nodemanager/node-handler.ts';
import { KeptTable, type KeptTableContext, type KeptTableStatus } from '../kept-table.ts';
import type { NetlinkSocket } from '../netlink/netlink-socket.ts';
import { ClaimedItems } from './claimed-items.ts';
import { PacedTask } from './paced-task.ts';
import { type DeviceItem, type PathItem, pathKey, type RouteItem, TUNNEL } from './path-item.ts';
import type { PathTable, Reach } from './path-table.ts';
import { linkLocal, tunnelMAC } from './tunnel-address.ts';

/** Groups of rtnetlink: links, neighbours, addresses, routes and rules of both families. */
export const NODE_PATHS_GROUPS: readonly number[] = [1, 3, 5, 7, 8, 9, 11, 19];
/** Events may come in thousands: what follows from them is done at most this often. */
const EVENT_PACE_MS = 1_000;
/** To ask again how a node is reached takes some 20 µs: no more than 2 % of a processor, whatever happens to others' routes. */
const NODE_PACE_MS = 1;
/** One look at everything answers the questions about single nodes for so long. */
const VALIDATION_AGE_MS = 30_000;
const NODES_A_TURN = 64;
const SHOWN = 16;
/** What VXLAN puts before a packet: Ethernet, IP, UDP and its own header. */
const VXLAN_BYTES = { ipv4: 50, ipv6: 70 } as const;

/** How pods of other nodes are reached. */
export interface NodePathsOptions {
  /** `auto`: by a direct route where the node is on a link of this one, otherwise through the tunnel. */
  readonly mode: 'auto' | 'direct' | 'tunnel';
  /** The network identifier of the tunnel, and its UDP port: the same on all nodes. */
  readonly vni: number;
  readonly port: number;
  /** The name of the VXLAN interface. */
  readonly device: string;
  /** Packets of own pods use the table of our routes, by rules of this priority; by default there are none. */
  readonly rulePriority?: number | undefined;
  /** The own node by its full name, `cluster/name`: a kvstore says it as one of all. Of source `local` it is always. */
  readonly ownNode?: string | undefined;
}

/** A node that there is no path to, for one of its pod CIDRs at least. */
export interface NodeWithoutPath {
  readonly node: string;
  readonly reason: string;
}

/** How the paths to other nodes stand. */
export interface NodePathsStatus {
  readonly table: KeptTableStatus;
  readonly nodes: number;
  /** Pod CIDRs by the way that is taken. */
  readonly direct: number;
  readonly tunnel: number;
  readonly withoutPath: number;
  readonly failures: readonly NodeWithoutPath[];
  /** Claims on a pod CIDR, or an address in the tunnel, that another node has as well; some of them. */
  readonly overruled: readonly { readonly key: string; readonly owner: string; readonly by: string }[];
  readonly events: number;
  /** How often events were lost, after which everything is read again. */
  readonly overruns: number;
  readonly repairs: number;
  readonly lastFailure: Failure | undefined;
  /** What has failed for all paths together, a sentence each, until it succeeds. */
  readonly problems: readonly string[];
}

/** There is no way to a node: says why. */
export class NoPathError extends Error {
  override readonly name: string = 'NoPathError';
  readonly code: string = 'no-path';
}

/**
 * Routes and tunnels to the pods of other nodes. Derives from each node what is to be in the kernel, and keeps it there: what
 * somebody takes away is noticed by its event and put back. A call fails where there is no path to a node; that it
 * is tried again is the node manager's doing.
 */
export class NodePaths implements NodeHandler, Disposable {
  readonly name = 'paths';
  readonly #table: PathTable;
  readonly #options: NodePathsOptions;
  readonly #context: KeptTableContext & { readonly clock: Clock };
  readonly #claims = new ClaimedItems<PathItem>();
  readonly #nodes = new Map<string, Node>();
  readonly #withoutPath = new Map<string, string>();
  readonly #repair: PacedTask;
  readonly #reconsider: PacedTask;
  /** What the claims are kept in. */
  readonly kept: KeptTable<PathItem>;
  #underlay: NodeConfiguration['underlay'] = 'ipv4';
  #own: Node | undefined;
  #device: DeviceItem | string | undefined;
  #monitor: NetlinkSocket | undefined;
  #poll: Disposable | undefined;
  #events = 0;
  #overruns = 0;
  #repairs = 0;
  #lastFailure: Failure | undefined;
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
    this.kept = new KeptTable(table, this.#claims, context);
    this.#repair = new PacedTask(
      context.clock,
      () => EVENT_PACE_MS,
      () => this.#noted('paths cannot be compared', () => this.#repairAll()),
    );
    this.#reconsider = new PacedTask(
      context.clock,
      () => Math.max(EVENT_PACE_MS, this.#nodes.size * NODE_PACE_MS),
      () => this.#noted('it cannot be found how nodes are reached', () => this.#resolveAll()),
    );
  }

  /** Reads what is there, and listens from then on. Rejects with what the kernel refuses; may be called again then. */
  async start(): Promise<void> {
    this.#monitor ??= this.#table.open({ groups: NODE_PATHS_GROUPS });
    this.#poll ??= this.#monitor.onEvents(() => this.#hearAll());
    await this.kept.adopt();
  }

  nodeAdd(node: Node): void {
    if (this.#isOwn(node)) this.#setOwn(node);
    else this.#set(node);
  }

  nodeUpdate(old: Node, node: Node): void {
    if (this.#isOwn(old) !== this.#isOwn(node)) this.nodeDelete(old);
    this.nodeAdd(node);
  }

  nodeDelete(node: Node): void {
    this.#claim(node.fullName, new Map());
    this.#withoutPath.delete(node.fullName);
    this.#nodes.delete(node.fullName);
    if (this.#isOwn(node)) this.#setOwn(undefined);
  }

  /** Looks at all nodes, and not again within half a minute: a look at one costs nearly as much. */
  async nodeValidateImplementation(node: Node): Promise<void> {
    if (this.#repair.age > VALIDATION_AGE_MS) await this.#repair.request();
    const reason = this.#withoutPath.get(node.fullName);
    if (reason !== undefined) throw new NoPathError(reason);
  }

  nodeConfigurationChanged({ underlay }: NodeConfiguration): void {
    if (underlay === this.#underlay) return;
    this.#underlay = underlay;
    this.#device = undefined;
    void this.#reconsider.request();
  }

  status(): NodePathsStatus {
    let tunnel = 0;
    let direct = 0;
    for (const [, item] of this.#claims.entries()) {
      if (item.kind === 'route') item.interface === TUNNEL ? tunnel++ : direct++;
    }
    const failures = [...this.#withoutPath].slice(0, SHOWN).map(([node, reason]) => ({ node, reason }));
    return {
      ...{ table: this.kept.status(), nodes: this.#nodes.size, direct, tunnel },
      ...{
        withoutPath: this.#withoutPath.size,
        failures,
        overruled: [...this.#claims.overruled()].slice(0, SHOWN),
      },
      ...{
        events: this.#events,
        overruns: this.#overruns,
        repairs: this.#repairs,
        lastFailure: this.#lastFailure,
        problems: [...this.#problems.values()],
      },
    };
  }

  /** Ends it; what is in the kernel stays. Idempotent. */
  [Symbol.dispose](): void {
    this.#isDisposed = true;
    this.#poll?.[Symbol.dispose]();
    this.#monitor?.[Symbol.dispose]();
    this.#poll = undefined;
    this.#monitor = undefined;
    this.#repair[Symbol.dispose]();
    this.#reconsider[Symbol.dispose]();
    this.kept[Symbol.dispose]();
  }

  #isOwn({ source, fullName }: Node): boolean {
    return source === 'local' || fullName === this.#options.ownNode;
  }

  #setOwn(node: Node | undefined): void {
    this.#own = node;
    this.#device = undefined;
    const { rulePriority } = this.#options;
    if (node !== undefined && rulePriority !== undefined) {
      const item: PathItem = { kind: 'rule', priority: rulePriority };
      this.#claim(node.fullName, new Map(podCIDRs(node).map((cidr) => [pathKey('rule', cidr), item])));
    }
    void this.#reconsider.request();
  }

  #set(node: Node): void {
    this.#nodes.set(node.fullName, node);
    const reason = this.#resolve(node);
    if (reason !== undefined) throw new NoPathError(reason);
  }

  /** Claims what the paths to a node need; gives why one of them is missing. */
  #resolve(node: Node): string | undefined {
    const items = new Map<string, PathItem>();
    let missing: string | undefined;
    for (const cidr of podCIDRs(node)) {
      const reason = this.#addPath(node, cidr, items);
      if (reason !== undefined) missing ??= `no path to ${cidr} of ${node.fullName}: ${reason}`;
    }
    this.#claim(node.fullName, items);
    if (missing === undefined) this.#withoutPath.delete(node.fullName);
    else this.#withoutPath.set(node.fullName, missing);
    return missing;
  }

  #claim(owner: string, items: ReadonlyMap<string, PathItem>): void {
    for (const key of this.#claims.replace(owner, items)) {
      const item = this.#claims.get(key);
      if (item === undefined || !this.#table.has(key, item) || this.kept.isHeld(key)) this.kept.mark(key);
    }
  }

  #addPath(node: Node, cidr: string, items: Map<string, PathItem>): string | undefined {
    const hop = tunnelEndpoint(node, cidr.includes(':') ? 'ipv6' : 'ipv4');
    const end = tunnelEndpoint(node, this.#underlay);
    if ([hop, end].some((address) => address !== undefined && holds(cidr, address)))
      return 'it holds the address of its own node';
    const { mode } = this.#options;
    const direct = mode === 'tunnel' || hop === undefined ? undefined : this.#table.reach(hop);
    if (direct?.kind === 'link') {
      items.set(pathKey('route', cidr), { kind: 'route', gateway: hop, interface: direct.interface });
      return undefined;
    }
    if (mode === 'direct') return reasonOf(direct);
    return this.#addTunnel(cidr, end, items);
  }

  #addTunnel(cidr: string, end: string | undefined, items: Map<string, PathItem>): string | undefined {
    if (end === undefined) return `it has no ${this.#underlay} address for a tunnel`;
    this.#device ??= this.#ownDevice();
    if (typeof this.#device === 'string') return this.#device;
    const mac = tunnelMAC(end);
    const route: RouteItem = { kind: 'route', gateway: tunnelHop(cidr, mac), interface: TUNNEL };
    items.set(pathKey('device', this.#options.device), this.#device);
    items.set(pathKey('fdb', mac), { kind: 'fdb', host: end });
    items.set(pathKey('neighbor', route.gateway ?? ''), { kind: 'neighbor', mac });
    items.set(pathKey('route', cidr), route);
    return undefined;
  }

  /** The own end of the tunnel; or why there is none. */
  #ownDevice(): DeviceItem | string {
    const local = this.#own && tunnelEndpoint(this.#own, this.#underlay);
    if (local === undefined) return 'the own address for a tunnel is not known yet';
    const mtu = this.#table.mtuAt(local);
    if (mtu === undefined) return `no interface has the own address ${local}`;
    const { vni, port } = this.#options;
    return {
      kind: 'device',
      vni,
      port,
      local,
      mtu: mtu - VXLAN_BYTES[this.#underlay],
      mac: tunnelMAC(local),
    };
  }

  #hearAll(): void {
    try {
      this.#hearWaiting();
    } catch (error) {
      // Of an event that cannot be read nothing is known: as if it were lost.
      this.#lastFailure = failureOf(error, this.#context.clock);
      this.#hear({ reach: true, reread: true });
    }
  }

  #hearWaiting(): void {
    const monitor = this.#monitor;
    for (let got = monitor?.events(); got !== undefined; got = monitor?.events()) {
      if (got === 'overrun') {
        this.#overruns++;
        this.#hear({ reach: true, reread: true });
        continue;
      }
      this.#events += got.length;
      for (const message of got) {
        // Of what this process has done itself it knows, but for what went with an interface.
        if (message.port !== this.#table.port || isAboutLink(message.type))
          this.#hear(this.#table.hear(message));
      }
    }
  }

  #hear({ key, reach = false, reread = false }: ReturnType<PathTable['hear']>): void {
    if (reach) {
      this.#device = undefined;
      void this.#reconsider.request();
    }
    const item = key === undefined ? undefined : this.#claims.get(key);
    const isRight = key === undefined || this.#table.has(key, item);
    if (key !== undefined && !isRight && item !== undefined) this.kept.mark(key);
    else if (reread || !isRight) void this.#repair.request();
  }

  async #repairAll(): Promise<void> {
    this.#repairs++;
    await this.kept.repair();
  }

  /** What fails here is in the status, and is tried again at the next event, or by the next validation. */
  async #noted(problem: string, work: () => Promise<void>): Promise<void> {
    try {
      await work();
      this.#problems.delete(problem);
    } catch (error) {
      this.#lastFailure = failureOf(error, this.#context.clock);
      this.#problems.set(problem, `${problem}: ${this.#lastFailure.message}`);
    }
  }

  async #resolveAll(): Promise<void> {
    let left = NODES_A_TURN;
    for (const node of [...this.#nodes.values()]) {
      if (--left === 0) {
        await new Promise<void>((resolve) => void this.#context.nextTurn(resolve));
        // What routes are asked for through may be closed by then.
        if (this.#isDisposed) return;
        left = NODES_A_TURN;
      }
      // It may have been changed or deleted meanwhile.
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

function holds(cidr: string, address: string): boolean {
  const inner = Prefix.parse(address);
  return inner !== undefined && Prefix.parse(cidr)?.contains(inner) === true;
}

function reasonOf(reach: Reach | undefined): string {
  return reach?.kind === 'not' ? reach.reason : 'it has no address of that family';
}

/** The next hop in the tunnel: in IPv4 the first address of the CIDR, which no pod has; in IPv6 the other end itself. */
function tunnelHop(cidr: string, mac: string): string {
  return cidr.includes(':') ? linkLocal(mac) : (Prefix.parse(cidr)?.address ?? '');
}

function isAboutLink(type: number): boolean {
  return type === 16 || type === 17;
}
