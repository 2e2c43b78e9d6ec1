import { familyOf } from '../netlink/address-bytes.ts';
import { NLM_F } from '../netlink/message-writer.ts';
import type { NetlinkRequest } from '../netlink/netlink-socket.ts';
import { equalEncaps, type Route, RTM_ROUTE, writeRoute } from '../netlink/route.ts';
import { ROUTE_PROTOCOL } from './path-item.ts';

/** A request, and the errors which only mean that it was unnecessary. */
export interface LenientRequest extends NetlinkRequest {
  readonly ignoredErrors: readonly string[];
}

/**
 * The routes of one kernel table by destination, ours and foreign ones, as read by dumps and events. Returns the
 * requests that add, replace and delete ours. They never change a foreign route: a delete names our protocol, and an
 * add does not replace.
 */
export class RouteLedger {
  readonly #ours = new Map<string, readonly Route[]>();
  readonly #foreign = new Map<string, readonly Route[]>();

  /** Number of destinations of our routes. */
  get size(): number {
    return this.#ours.size;
  }

  clear(): void {
    this.#ours.clear();
    this.#foreign.clear();
  }

  add(route: Route): void {
    const ledger = this.#ledgerOf(route);
    const previous = ledger.get(route.destination) ?? [];
    ledger.set(route.destination, [...previous.filter((one) => !isSameRoute(one, route)), route]);
  }

  delete(route: Route): void {
    const ledger = this.#ledgerOf(route);
    const left = (ledger.get(route.destination) ?? []).filter((one) => !isSameRoute(one, route));
    if (left.length === 0) ledger.delete(route.destination);
    else ledger.set(route.destination, left);
  }

  /** Deletes our routes over a deleted interface. */
  deleteInterface(index: number): void {
    for (const route of [...this.#ours.values()].flat()) if (route.interface === index) this.delete(route);
  }

  /** Returns our routes to a destination. There should be at most one. */
  ourRoutes(destination: string): readonly Route[] {
    return this.#ours.get(destination) ?? [];
  }

  /**
   * Returns a foreign route to a destination with this metric. While it exists, ours must not be added: IPv4 refuses a
   * second route, and IPv6 shares the packets between both.
   */
  foreignRoute(destination: string, metric: number): Route | undefined {
    return this.#foreign.get(destination)?.find((route) => route.metric === metric);
  }

  /** Returns the foreign routes preferred to ours by the kernel, because their metric is smaller. */
  *preferredForeign(): Generator<Route, void, void> {
    for (const [destination, [ours]] of this.#ours) {
      const metric = ours?.metric ?? 0;
      for (const route of this.#foreign.get(destination) ?? []) if (route.metric < metric) yield route;
    }
  }

  /**
   * Returns the requests that replace our routes to a destination. In IPv4 the new route is added before the old one is
   * deleted, so that no packet is without a route. IPv6 would join both into one route with two next hops.
   */
  replaceRequests(route: Route): readonly LenientRequest[] {
    const previous = this.ourRoutes(route.destination);
    const only = previous.length === 1 ? previous[0] : undefined;
    if (only !== undefined && familyOf(route.destination) === 4)
      return [addRequest(route, NLM_F.create), ...hopDeletes(only)];
    // A foreign route with the same metric may have been added beside ours. After the delete of ours, an exclusive add
    // would then fail.
    const isExclusive = this.foreignRoute(route.destination, route.metric) === undefined;
    const flags = NLM_F.create | (isExclusive ? NLM_F.exclusive : NLM_F.append);
    return [...previous.flatMap(hopDeletes), addRequest(route, flags)];
  }

  /** Returns the requests that delete our routes to a destination; if none is known, any with our protocol number. */
  deleteRequests(destination: string, table: number): readonly LenientRequest[] {
    const previous = this.ourRoutes(destination);
    if (previous.length > 0) return previous.flatMap(hopDeletes);
    const unknown = { gateway: undefined, interface: 0, onlink: false, metric: 0, isUnicast: true };
    return hopDeletes({ ...unknown, destination, table, protocol: ROUTE_PROTOCOL });
  }

  #ledgerOf({ protocol }: Route): Map<string, readonly Route[]> {
    return protocol === ROUTE_PROTOCOL ? this.#ours : this.#foreign;
  }
}

function addRequest(route: Route, flags: number): LenientRequest {
  const operation = `add route ${route.destination}`;
  // Without `exclusive`, EEXIST means that an identical route exists.
  const ignoredErrors = (flags & NLM_F.exclusive) !== 0 ? [] : ['EEXIST'];
  return {
    operation,
    type: RTM_ROUTE.add,
    flags,
    write: (writer) => writeRoute(writer, route),
    ignoredErrors,
  };
}

/**
 * Returns a delete request for each next hop, because a single request would also delete the foreign routes that IPv6
 * has joined with ours.
 */
function hopDeletes({ hops, ...route }: Route): readonly LenientRequest[] {
  const operation = `delete route ${route.destination}`;
  return (hops ?? [route]).map((hop) => ({
    operation,
    type: RTM_ROUTE.delete,
    flags: 0,
    ignoredErrors: ['ESRCH'],
    write: (writer) => writeRoute(writer, { ...route, ...hop }, 'delete'),
  }));
}

/** Returns true if the kernel considers them the same route. */
function isSameRoute(a: Route, b: Route): boolean {
  return (
    a.protocol === b.protocol &&
    a.gateway === b.gateway &&
    a.interface === b.interface &&
    a.metric === b.metric &&
    equalEncaps(a.encap, b.encap)
  );
}
