import { TUNNEL_DEVICE } from '../../../../../src/datapath/linux/kernel-names.ts';
import type { NetlinkSocket } from '../../../../../src/datapath/linux/netlink/netlink-socket.ts';
import {
  NODE_PATHS_GROUPS,
  NodePaths,
  type NodePathsOptions,
} from '../../../../../src/datapath/linux/paths/node-paths.ts';
import { PathTable } from '../../../../../src/datapath/linux/paths/path-table.ts';
import type { Kernel } from '../../../../../src/datapath/linux/syscall/kernel.ts';
import type { Node } from '../../../../../src/nodemanager/node.ts';
import type { NodeSpec } from '../../../../../src/nodemanager/node-spec.ts';
import { parseNode } from '../../../../../src/nodemanager/parse-node.ts';
import { ManualTurns } from '../../support/fake-table.ts';
import type { Namespace, Scratch } from '../../support/scratch.ts';

/** The tunnel, whose name is the same in all namespaces. */
export const DEVICE: string = TUNNEL_DEVICE;

/** Returns a node of cluster `c`. Throws on wrong fields. */
export function node(name: string, spec: Partial<NodeSpec>): Node {
  const parsed = parseNode({ name, cluster: 'c', source: 'kvstore', ...spec }, ({ reason, at }) => {
    throw new Error(`${reason} ${at}`);
  });
  if (parsed === undefined) throw new Error(`${name} is no node`);
  return parsed;
}

/** Internal addresses of a node. */
export function internal(...ips: readonly string[]): NodeSpec['addresses'] {
  return ips.map((ip) => ({ type: 'InternalIP', ip }));
}

/**
 * Maximum time until the paths have received an event. The kernel notifies all listeners at the same time.
 */
const HEARD_MS = 5_000;
/**
 * Minimum number of turns before the time counts, because a process that was suspended has not read its
 * events.
 */
const HEARD_TURNS = 1_000;

/** The handler under test in a namespace, with turns and a clock that the test controls. */
export class PathsUnderTest implements Disposable {
  readonly turns: ManualTurns = new ManualTurns();
  readonly table: PathTable;
  readonly paths: NodePaths;
  /** Receives the same events as the handler, to know when it has received all. */
  #events: NetlinkSocket | undefined;
  #sent = 0;

  /** Number of events that the handler has received, or lost. */
  #received = 0;
  /** Number of times that the handler has lost events. */
  overruns = 0;

  constructor(kernel: Kernel, namespace: Namespace, options: Partial<NodePathsOptions> = {}) {
    this.table = new PathTable(kernel, namespace.path);
    this.paths = new NodePaths(this.table, { mode: 'auto', ...options }, this.turns);
  }

  async start(): Promise<void> {
    this.#events = this.table.open({ groups: NODE_PATHS_GROUPS });
    const open = this.table.open.bind(this.table);
    this.table.open = (socketOptions) => this.#counted(open(socketOptions));
    const started = this.paths.start();
    this.table.open = open;
    await this.turns.until(started);
    this.paths.kept.allowDeletes();
    await this.settle();
  }

  /** Resolves when all events are received and all due writes are done. */
  async settle(): Promise<void> {
    for (let quiet = 0; quiet < 2; ) {
      await this.#heard();
      this.turns.clock.advance(1_000);
      quiet = (await this.turns.settle()) === 0 ? quiet + 1 : 0;
    }
  }

  /** Counts the events that the handler reads from its socket. */
  #counted(socket: NetlinkSocket): NetlinkSocket {
    const receive = socket.receive.bind(socket);
    socket.receive = () => {
      const got = receive();
      if (got === 'overrun') this.overruns++;
      else this.#received += got?.length ?? 0;
      return got;
    };
    return socket;
  }

  async #heard(): Promise<void> {
    for (let got = this.#events?.receive(); got !== undefined; got = this.#events?.receive())
      this.#sent = got === 'overrun' ? Number.NEGATIVE_INFINITY : this.#sent + got.length;
    const late = performance.now() + HEARD_MS;
    for (let turn = 0; this.#received < this.#sent; turn++) {
      // Only one of the two sockets receives an event between their openings.
      if (turn > HEARD_TURNS && performance.now() > late) this.#sent = this.#received;
      await new Promise((resolve) => setImmediate(resolve));
    }
  }

  [Symbol.dispose](): void {
    this.#events?.[Symbol.dispose]();
    this.paths[Symbol.dispose]();
    this.table[Symbol.dispose]();
  }
}

/** Joins two namespaces by a cable. Its interface has this name at each end. */
export function cable(
  [one, name, addresses]: readonly [Namespace, string, readonly string[]],
  [other, otherName, otherAddresses]: readonly [Namespace, string, readonly string[]],
): void {
  // Duplicate address detection would take seconds.
  for (const { run } of [one, other]) run('sysctl', '-qw', 'net.ipv6.conf.default.accept_dad=0');
  one.run('ip', 'link', 'add', name, 'type', 'veth', 'peer', 'name', otherName, 'netns', other.name);
  for (const [namespace, device, all] of [
    [one, name, addresses],
    [other, otherName, otherAddresses],
  ] as const) {
    const lines = all.map(
      (address) => `address add ${address} dev ${device} ${address.includes(':') ? 'nodad' : ''}`,
    );
    batch(namespace, [...lines, `link set ${device} up`]);
  }
}

/** Runs commands of `ip` in one process. */
export function batch(namespace: Namespace, lines: readonly string[]): void {
  for (const line of lines) namespace.run('ip', ...line.trim().split(/\s+/));
}

/** A pod behind a node: a namespace with one address of each CIDR, whose default route is the node. */
export function pod(scratch: Scratch, host: Namespace, index: number): Namespace {
  const made = scratch.namespace(`pod${index}`);
  cable(
    [host, 'pod', [`10.${index}.0.1/24`, `fd00:${index}::1/64`]],
    [made, 'eth0', [`10.${index}.0.9/24`, `fd00:${index}::9/64`]],
  );
  batch(made, [`route add default via 10.${index}.0.1`, `-6 route add default via fd00:${index}::1`]);
  host.run('sysctl', '-qw', 'net.ipv4.ip_forward=1', 'net.ipv6.conf.all.forwarding=1');
  return made;
}
