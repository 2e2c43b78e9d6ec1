import { familyOf } from '../netlink/address-bytes.ts';
import { NLM_F } from '../netlink/message-writer.ts';
import type { NetlinkRequest } from '../netlink/netlink-socket.ts';
import { type Route, RTM_ROUTE, writeRoute } from '../netlink/route.ts';
import { OWN_PROTOCOL } from './path-item.ts';

/** A request, and the errors that mean that it was not needed. */
export interface LenientRequest extends NetlinkRequest {
  readonly needless: readonly string[];
}

/**
 * Which routes a table of the kernel has to each destination, ours and those of others, as far as was read and heard of. Says
 * what to send so that our route is there, without touching another's: those of others are never replaced, because only
 * requests that name our protocol delete, and those that add do so exclusively or behind.
 */
export class RouteLedger {
  readonly #ours = new Map<string, readonly Route[]>();
  readonly #others = new Map<string, readonly Route[]>();

  clear(): void {
    this.#ours.clear();
    this.#others.clear();
  }

  /** Takes down what is there. */
  add(route: Route): void {
    const ledger = this.#ledgerOf(route);
    const before = ledger.get(route.destination) ?? [];
    ledger.set(route.destination, [...before.filter((one) => !isSameRoute(one, route)), route]);
  }

  delete(route: Route): void {
    const ledger = this.#ledgerOf(route);
    const left = (ledger.get(route.destination) ?? []).filter((one) => !isSameRoute(one, route));
    if (left.length === 0) ledger.delete(route.destination);
    else ledger.set(route.destination, left);
  }

  /** Forgets our routes over an interface: it is gone, and they with it. Gives their destinations. */
  deleteInterface(index: number): readonly string[] {
    const gone = [...this.#ours.values()].flat().filter((route) => route.interface === index);
    for (const route of gone) this.delete(route);
    return gone.map(({ destination }) => destination);
  }

  /** Our routes to a destination. More than one is one too many. */
  ours(destination: string): readonly Route[] {
    return this.#ours.get(destination) ?? [];
  }

  /** A route of somebody else to a destination. */
  other(destination: string): Route | undefined {
    return this.#others.get(destination)?.[0];
  }

  /**
   * Puts our route in the place of those of ours that are there. Of IPv4 the new one comes before the old one goes, so that
   * no packet is without a route; IPv6 would make one route over two next hops of them.
   */
  replacing(route: Route): readonly LenientRequest[] {
    const before = this.ours(route.destination);
    const only = before.length === 1 ? before[0] : undefined;
    if (only === undefined || familyOf(route.destination) === 6)
      return [...before.map((one) => deletion(one)), addition(route, NLM_F.create | NLM_F.exclusive)];
    return [addition(route, NLM_F.create | NLM_F.append), deletion(only)];
  }

  /** Takes away what of ours is there; where nothing is known to be, one that may be. */
  deleting(destination: string, table: number): readonly LenientRequest[] {
    const before = this.ours(destination);
    if (before.length > 0) return before.map((one) => deletion(one));
    const unknown = { gateway: undefined, interface: 0, onlink: false, metric: 0, isUnicast: true };
    return [deletion({ ...unknown, destination, table, protocol: OWN_PROTOCOL })];
  }

  #ledgerOf({ protocol }: Route): Map<string, readonly Route[]> {
    return protocol === OWN_PROTOCOL ? this.#ours : this.#others;
  }
}

function addition(route: Route, flags: number): LenientRequest {
  const what = `add route ${route.destination}`;
  // Appended, it exists only if it is there in every part.
  const needless = (flags & NLM_F.append) === 0 ? [] : ['EEXIST'];
  return { what, type: RTM_ROUTE.add, flags, write: (writer) => writeRoute(writer, route), needless };
}

function deletion(route: Route): LenientRequest {
  const what = `delete route ${route.destination}`;
  return {
    ...{ what, type: RTM_ROUTE.delete, flags: 0, write: (writer) => writeRoute(writer, route, 'delete') },
    needless: ['ESRCH'],
  };
}

/** Whether the kernel takes them for the same route. */
function isSameRoute(a: Route, b: Route): boolean {
  return (
    a.protocol === b.protocol &&
    a.gateway === b.gateway &&
    a.interface === b.interface &&
    a.metric === b.metric
  );
}
