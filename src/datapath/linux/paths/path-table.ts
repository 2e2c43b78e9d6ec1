import { constants } from 'node:os';
import { disposeOnError } from '../../../base/dispose-on-error.ts';
import { ROUTE_TABLE, TUNNEL_DEVICE } from '../kernel-names.ts';
import type { KernelTable, TableChange } from '../kernel-table.ts';
import { familyOf } from '../netlink/address-bytes.ts';
import {
  ADDRESS_DUMP,
  type InterfaceAddress,
  RTM_ADDRESS,
  readInterfaceAddress,
} from '../netlink/interface-address.ts';
import { type Link, linkRequest, RTM_LINK, readLink } from '../netlink/link.ts';
import type { NetlinkMessage } from '../netlink/message-reader.ts';
import { NLM_F } from '../netlink/message-writer.ts';
import { NETLINK, NetlinkSocket, type NetlinkSocketOptions } from '../netlink/netlink-socket.ts';
import {
  IPV6_ROUTES_GROUP,
  type NextHop,
  type Route,
  RTM_ROUTE,
  readRoute,
  routeDump,
  routeRequest,
} from '../netlink/route.ts';
import type { Kernel } from '../syscall/kernel.ts';
import { SyscallError } from '../syscall/syscall-error.ts';
import {
  equalItems,
  type PathItem,
  pathKey,
  pathOrder,
  printItem,
  ROUTE_PROTOCOL,
  type RouteItem,
  splitKey,
  TUNNEL,
} from './path-item.ts';
import { type LenientRequest, RouteLedger } from './route-ledger.ts';
import { deviceItem, isOurLink, namedTunnel, setDevice } from './tunnel-device.ts';
import { readFilter, setFilter } from './tunnel-filter.ts';

const { EEXIST, ENODEV } = constants.errno;

/** Returns the metric of our routes: the kernel's default, 0 in IPv4 and 1024 in IPv6. */
function metricOf(destination: string): number {
  return familyOf(destination) === 4 ? 0 : 1024;
}

/** Errors of a lookup which do not mean that an address is unreachable: the kernel has no memory for the answer. */
const NO_ANSWER: ReadonlySet<string> = new Set(['ENOBUFS', 'ENOMEM']);
const MAX_PROBLEMS = 16;
/** Number of IPv4 routes which double the time of adding one. 256 routes beside 2,048 take about 20 ms. */
const ROUTES_PER_CHANGE = 2_048;

export interface PathEvent {
  /** Key of our changed item. */
  readonly key?: string | undefined;
  /** True if the routes to next hops may have changed. */
  readonly reachChanged?: boolean | undefined;
  /** True if some of our items may have changed, and only a read can tell which. */
  readonly mustReread?: boolean | undefined;
}

interface QueuedRequest {
  /** Index of its change in the call of `apply`. */
  readonly at: number;
  readonly request: LenientRequest;
}

/** How an address is reached. */
export type Reach =
  | { readonly kind: 'link'; readonly interface: number }
  | { readonly kind: 'unreachable'; readonly reason: string };

/**
 * Our items in the kernel, needed to reach pods of other nodes: one VXLAN interface with its filter, and routes. A
 * route is ours if it has our protocol number.
 *
 * Foreign routes are never changed. The kernel chooses between our route and a foreign one to the same destination by
 * their metrics. If both have the same metric, ours cannot be added, and its key fails until the foreign
 * route is deleted.
 */
export class PathTable implements KernelTable<PathItem>, Disposable {
  readonly name = 'paths';
  readonly equal: typeof equalItems = equalItems;
  readonly order: typeof pathOrder = pathOrder;
  readonly #kernel: Kernel;
  readonly #namespace: string | undefined;
  readonly #socket: NetlinkSocket;
  readonly #links = new Map<number, Link>();
  readonly #routes = new RouteLedger();
  /** Existing items other than routes, by key. */
  readonly #known = new Map<string, PathItem>();

  /** `namespace` is the path of a network namespace; default that of the process. */
  constructor(kernel: Kernel, namespace?: string) {
    this.#kernel = kernel;
    this.#namespace = namespace;
    this.#socket = this.open();
    disposeOnError([this.#socket], () => this.#readLinks());
  }

  /** Port of the events caused by our own changes. */
  get port(): number {
    return this.#socket.port;
  }

  open(options: NetlinkSocketOptions = {}): NetlinkSocket {
    return new NetlinkSocket(this.#kernel, { ...options, namespace: this.#namespace });
  }

  readonly #openNftables = (): NetlinkSocket => this.open({ protocol: NETLINK.netfilter });

  [Symbol.dispose](): void {
    this.#socket[Symbol.dispose]();
  }

  /** The kernel compares each new IPv4 route with all others of the same protocol, metric and interface. */
  weight(key: string, item: PathItem | undefined): number {
    const isCompared = item?.kind === 'route' && familyOf(splitKey(key)[1]) === 4;
    return isCompared ? 1 + this.#routes.size / ROUTES_PER_CHANGE : 1;
  }

  print(item: PathItem): string {
    return printItem(item, (index) => this.#links.get(index)?.name ?? `interface ${index}`);
  }

  *dump(): Generator<readonly [key: string, item: PathItem] | undefined, void, void> {
    this.#readLinks();
    this.#routes.clear();
    this.#known.clear();
    using socket = this.open();
    yield* this.#dumpTunnel();
    yield* this.#readRoutes(socket, 4);
    // On a socket of its own, because a receive queue full of events would delay the dump.
    using changes = this.open({ groups: [IPV6_ROUTES_GROUP] });
    yield* this.#readRoutes(socket, 6);
    // If IPv6 routes change during a dump, it may miss others, and the kernel does not flag this.
    if (changes.receive() !== undefined) yield* this.#readRoutes(socket, 6);
  }

  apply(changes: readonly TableChange<PathItem>[]): readonly (SyscallError | undefined)[] {
    const outcomes: (SyscallError | undefined)[] = changes.map(() => undefined);
    const batch: QueuedRequest[] = [];
    changes.forEach(({ key, item }, at) => {
      if (item !== undefined && this.#isInstalled(key, item)) return;
      const [kind, name] = splitKey(key);
      // Routes over the device are deleted before the device.
      if (kind !== 'route') this.#send(batch, outcomes);
      try {
        if (kind === 'device') this.#applyDevice(item);
        else if (kind === 'filter') this.#applyFilter(item);
        else
          for (const request of this.#routeRequests(name, item?.kind === 'route' ? item : undefined))
            batch.push({ at, request });
      } catch (error) {
        if (!(error instanceof SyscallError)) throw error;
        outcomes[at] = error;
      }
    });
    this.#send(batch, outcomes);
    changes.forEach((change, at) => {
      if (outcomes[at] === undefined) this.#recordSuccess(change);
    });
    return outcomes;
  }

  /** Returns true if the kernel has the desired item of a key, according to the received events. */
  has(key: string, item: PathItem | undefined): boolean {
    const [kind, name] = splitKey(key);
    if (item !== undefined) return this.#isInstalled(key, item);
    return kind === 'route' ? this.#routes.ourRoutes(name).length === 0 : !this.#known.has(key);
  }

  /** Returns how an address is reached now, tunnel routes excluded. Throws if the kernel cannot answer. */
  reach(address: string): Reach {
    try {
      const route = this.#socket.ask(routeRequest(address), readRoute);
      if (route === undefined || !route.isUnicast)
        return { kind: 'unreachable', reason: `${address} is not a unicast address` };
      if (route.gateway !== undefined)
        return {
          kind: 'unreachable',
          reason: `${address} is not on a local link: its next hop is ${route.gateway}`,
        };
      if (route.interface === this.#device()?.index)
        return { kind: 'unreachable', reason: `${address} is routed through the tunnel` };
      return { kind: 'link', interface: route.interface };
    } catch (error) {
      if (!(error instanceof SyscallError) || NO_ANSWER.has(error.code)) throw error;
      return { kind: 'unreachable', reason: error.message };
    }
  }

  /** Returns a sentence for each of some destinations whose packets take a foreign route with a smaller metric. */
  problems(): readonly string[] {
    const problems: string[] = [];
    for (const { destination, protocol, metric } of this.#routes.preferredForeign()) {
      if (problems.length === MAX_PROBLEMS) break;
      problems.push(
        `a foreign route to ${destination} (protocol ${protocol}, metric ${metric}) takes precedence`,
      );
    }
    return problems;
  }

  addresses(): readonly InterfaceAddress[] {
    return this.#socket.dump(ADDRESS_DUMP, readInterfaceAddress);
  }

  /** Returns the MTU of the interface with an address; `undefined` if no interface has it. */
  mtuAt(address: string): number | undefined {
    const found = this.addresses().find((one) => one.address === address);
    return found && this.#links.get(found.interface)?.mtu;
  }

  applyMessage(message: NetlinkMessage): PathEvent {
    const isGone = message.type === RTM_ROUTE.delete || message.type === RTM_LINK.delete;
    const link = readLink(message);
    if (link !== undefined) return this.#applyLink(link, isGone);
    const route = readRoute(message);
    const isReplacing = (message.flags & NLM_F.replace) !== 0;
    if (route !== undefined) return this.#applyRoute(route, isGone, isReplacing);
    if (readInterfaceAddress(message) === undefined) return {};
    // If an address is deleted, the kernel deletes the routes that need it, without an event for IPv4 routes.
    return { reachChanged: true, mustReread: message.type === RTM_ADDRESS.delete };
  }

  /** Sends the queued requests, and empties the queue. */
  #send(batch: QueuedRequest[], outcomes: (SyscallError | undefined)[]): void {
    const queued = batch.splice(0);
    const errors = this.#socket.transact(queued.map(({ request }) => request));
    for (const [index, { at, request }] of queued.entries()) {
      const error = errors[index];
      if (error !== undefined && !request.ignoredErrors.includes(error.code)) outcomes[at] ??= error;
    }
  }

  *#dumpTunnel(): Generator<readonly [string, PathItem], void, void> {
    const device = this.#device();
    const items = [device && deviceItem(device), readFilter(this.#openNftables)];
    for (const item of items) {
      if (item === undefined) continue;
      const key = pathKey(item.kind, TUNNEL_DEVICE);
      this.#known.set(key, item);
      yield [key, item];
    }
  }

  /**
   * Reads routes in pieces. Each piece is recorded when it is read, because events about it may follow. If the dump
   * starts again, the recorded routes are removed, because they may not exist any more.
   */
  *#readRoutes(
    socket: NetlinkSocket,
    family: 4 | 6,
  ): Generator<readonly [string, PathItem] | undefined, void, void> {
    let entries: (readonly [string, PathItem])[] = [];
    let seen: Route[] = [];
    try {
      for (const piece of socket.dumpPieces(routeDump(family, ROUTE_TABLE), readRoute)) {
        if (piece === 'again') {
          for (const route of seen) this.#routes.delete(route);
          [seen, entries] = [[], []];
          continue;
        }
        for (const route of piece) entries.push(...this.#recordRoute(route));
        seen.push(...piece);
        yield undefined;
      }
    } catch (error) {
      // A routing table exists only from its first route on.
      if (!(error instanceof SyscallError && error.code === 'ENOENT')) throw error;
    }
    yield* entries;
  }

  #recordRoute(route: Route): readonly (readonly [string, PathItem])[] {
    if (route.table !== ROUTE_TABLE) return [];
    this.#routes.add(route);
    return route.protocol === ROUTE_PROTOCOL
      ? [[pathKey('route', route.destination), this.#routeItem(route)]]
      : [];
  }

  /** Returns a route as an item. One of several routes, or of another metric, equals no desired item. */
  #routeItem(route: Route): RouteItem {
    const { destination } = route;
    if (this.#routes.ourRoutes(destination).length > 1 || route.metric !== metricOf(destination))
      return { kind: 'route', gateway: undefined, interface: 0 };
    const item = this.#hopItem(route);
    return route.hops === undefined ? item : { ...item, joined: route.hops.map((hop) => this.#hopItem(hop)) };
  }

  #hopItem({ gateway, interface: index, encap }: NextHop): RouteItem {
    const isTunnel = index !== 0 && index === this.#device()?.index;
    return { kind: 'route', gateway, interface: isTunnel ? TUNNEL : index, encap };
  }

  #applyLink(link: Link, isGone: boolean): PathEvent {
    const previous = this.#links.get(link.index);
    if (isGone) this.#links.delete(link.index);
    else this.#links.set(link.index, link);
    const isSame = previous?.name === link.name && previous.up === link.up && previous.mtu === link.mtu;
    // A dump may have read the link before this event, which then reports no change. A defect of our link must be
    // repaired nevertheless.
    const hasDefect = isOurLink(link) && deviceItem(link)?.defect !== undefined;
    if (!isGone && isSame && !hasDefect) return {};
    const isOurs = link.name === TUNNEL_DEVICE || (previous !== undefined && isOurLink(previous));
    if (isGone) this.#forgetInterface(link.index, isOurs);
    return { reachChanged: true, mustReread: isGone || isOurs || !link.up };
  }

  #forgetInterface(index: number, isOurs: boolean): void {
    this.#routes.deleteInterface(index);
    if (isOurs) this.#known.clear();
  }

  #applyRoute(route: Route, isGone: boolean, isReplacing: boolean): PathEvent {
    if (route.table !== ROUTE_TABLE) return {};
    if (isGone) this.#routes.delete(route);
    else this.#routes.add(route);
    const isForeign = route.protocol !== ROUTE_PROTOCOL;
    // No event reports the replaced route.
    const mustReread = isReplacing && (isForeign || this.#routes.ourRoutes(route.destination).length > 1);
    return { key: pathKey('route', route.destination), reachChanged: isForeign, mustReread };
  }

  #isInstalled(key: string, item: PathItem): boolean {
    const [kind, name] = splitKey(key);
    if (kind !== 'route') {
      const known = this.#known.get(key);
      return known !== undefined && equalItems(known, item);
    }
    const [ours, ...more] = this.#routes.ourRoutes(name);
    if (ours === undefined || more.length > 0) return false;
    return equalItems(this.#routeItem(ours), item);
  }

  #routeRequests(destination: string, item: RouteItem | undefined): readonly LenientRequest[] {
    if (item === undefined) return this.#routes.deleteRequests(destination, ROUTE_TABLE);
    const equal = this.#routes.foreignRoute(destination, metricOf(destination));
    if (equal !== undefined && this.#routes.ourRoutes(destination).length === 0) {
      const message = `a foreign route of protocol ${equal.protocol} with the same metric exists`;
      throw new SyscallError(`add route ${destination}`, EEXIST, message);
    }
    const index = item.interface === TUNNEL ? this.#device()?.index : item.interface;
    if (index === undefined)
      throw new SyscallError(`add route ${destination}`, ENODEV, `no interface ${TUNNEL_DEVICE}`);
    return this.#routes.replaceRequests(this.#route(destination, item, index));
  }

  #route(destination: string, { gateway, interface: on, encap }: RouteItem, index: number): Route {
    const isIPv4 = familyOf(destination) === 4;
    return {
      destination,
      table: ROUTE_TABLE,
      protocol: ROUTE_PROTOCOL,
      gateway,
      interface: index,
      encap,
      // A link-local next hop is always on the link.
      onlink: on === TUNNEL && isIPv4,
      metric: metricOf(destination),
      isUnicast: true,
    };
  }

  #applyDevice(item: PathItem | undefined): void {
    const previous = this.#device();
    setDevice(this.#socket, item?.kind === 'device' ? item : undefined);
    const after = namedTunnel(this.#socket);
    if (previous !== undefined && previous.index !== after?.index) {
      this.#links.delete(previous.index);
      this.#forgetInterface(previous.index, true);
    }
    if (after !== undefined) this.#links.set(after.index, after);
  }

  #applyFilter(item: PathItem | undefined): void {
    if (item?.kind === 'filter' && this.#device() === undefined)
      throw new SyscallError(`add filter ${TUNNEL_DEVICE}`, ENODEV, `no interface ${TUNNEL_DEVICE}`);
    setFilter(this.#openNftables, item?.kind === 'filter' ? item : undefined);
  }

  #recordSuccess({ key, item }: TableChange<PathItem>): void {
    const [kind, name] = splitKey(key);
    if (kind === 'route') {
      for (const route of this.#routes.ourRoutes(name)) this.#routes.delete(route);
      if (item?.kind !== 'route') return;
      const index = item.interface === TUNNEL ? (this.#device()?.index ?? 0) : item.interface;
      this.#routes.add(this.#route(name, item, index));
    } else if (item === undefined) this.#known.delete(key);
    else this.#known.set(key, item);
  }

  /** Returns our VXLAN interface, even if others have renamed it, because its items still work. */
  #device(): Link | undefined {
    let found: Link | undefined;
    for (const link of this.#links.values())
      if (isOurLink(link) && (found === undefined || link.name === TUNNEL_DEVICE)) found = link;
    return found;
  }

  #readLinks(): void {
    const links = this.#socket.dump(linkRequest(), readLink);
    this.#links.clear(); // not earlier: the known links stay if the read fails
    for (const link of links) this.#links.set(link.index, link);
  }
}
