import { SplitMap } from '../columns/split-map.ts';
import type { Backend, OfferedBackends } from './backend.ts';

/**
 * The origin of a backend: a slice of the local cluster (`cluster` is empty), a slice of a remote cluster, or a remote
 * service that is not in slices (`slice` is empty).
 */
export interface Origin {
  readonly cluster: string;
  readonly slice: string;
}

/** The backends of one origin before and after a change. */
export interface OriginChange {
  readonly origin: Origin;
  readonly before: OfferedBackends;
  readonly after: OfferedBackends;
}

/** The used origins of a service, before a change. */
export interface Origins {
  /** Returns all origins with their backends, unordered. */
  all(): Iterable<readonly [Origin, OfferedBackends]>;
  /**
   * Returns the origin of `winner`, the effective backend of its address, if only one origin has the address. Checks
   * the slices of its cluster one by one.
   */
  search(winner: Backend): Origin | undefined;
  /** Returns the number of slices of a cluster, which a search checks. */
  sliceCount(cluster: string): number;
}

/** Compares origins (I4): the local cluster first, then clusters by name, then slices by name, by UTF-16 code unit. */
export function compareOrigins(a: Origin, b: Origin): number {
  if (a.cluster !== b.cluster) return a.cluster < b.cluster ? -1 : 1;
  if (a.slice === b.slice) return 0;
  return a.slice < b.slice ? -1 : 1;
}

/** A service is indexed if a cluster has this many slices of it. A search of fewer slices takes less than 10 µs. */
const INDEXED_SLICES = 16;
/** Number of addresses that each change of an indexed service adds to the index: less than 1 ms. */
const INDEXED_PER_CHANGE = 1024;

/**
 * Finds the origins of addresses with one claim. A search checks the slices one by one and, at about the same cost,
 * adds some addresses to the index, so that later searches find them there. Changes of the service update the index.
 *
 * If a cluster has at least {@link INDEXED_SLICES} slices, the index is built with its changes and kept. Without
 * this, the first slice that overlaps many others would search, and index, all backends of the service in one turn.
 */
export class OriginIndex {
  /**
   * The origin of each address with one claim, if it is indexed. The origin of any other address may be wrong: it
   * is set again when the address has one claim.
   */
  readonly #byAddress = new SplitMap<Origin>();
  /** The addresses that are not yet indexed; undefined before the first search. */
  #unindexed: Iterator<readonly [string, Origin]> | undefined;
  #isKept = false;
  /**
   * Number of further changes without a use of the index after which it is discarded, if it is not kept. Each use sets
   * this to the number of slices: each slice may have changed by then, and the next search costs no more than these
   * changes.
   */
  #changesUntilDiscard = 0;

  /** Must be called at the beginning of each change. */
  beginChange(change: OriginChange, origins: Origins): void {
    this.#isKept ||= origins.sliceCount(change.origin.cluster) >= INDEXED_SLICES;
    if (this.#isKept) this.#addNext(INDEXED_PER_CHANGE, change, origins);
  }

  /** Must be called at the end of each change. Returns false if the index is to be discarded. */
  endChange(): boolean {
    return this.#changesUntilDiscard-- > 0 || this.#isKept;
  }

  /** Returns the origin of a winner whose address has one claim. The claim is not the changed origin's. */
  find(winner: Backend, change: OriginChange, origins: Origins): Origin | undefined {
    const slices = origins.sliceCount(winner.cluster);
    if (slices < 2) return origins.search(winner);
    this.#changesUntilDiscard = slices;
    const known = this.#byAddress.get(winner.address);
    if (known !== undefined) return known;
    this.#addNext(slices, change, origins);
    return origins.search(winner);
  }

  /** Sets the origin of an address with one claim. */
  set(address: string, origin: Origin): void {
    if (this.#unindexed !== undefined) this.#byAddress.set(address, origin);
  }

  /** Deletes an address without claims. */
  delete(address: string): void {
    this.#byAddress.delete(address);
  }

  /** Adds the next `count` addresses. Addresses that changed since the first call are in the index already. */
  #addNext(count: number, change: OriginChange, origins: Origins): void {
    this.#unindexed ??= addressesAfter(change, origins);
    for (let added = 0; added < count; added++) {
      const { done, value } = this.#unindexed.next();
      if (done === true) return;
      const [address, origin] = value;
      if (this.#byAddress.get(address) === undefined) this.#byAddress.set(address, origin);
    }
  }
}

/** Yields the addresses of all origins after a change, those of the changed origin last. */
function* addressesAfter(
  change: OriginChange,
  origins: Origins,
): Generator<readonly [string, Origin], undefined, void> {
  for (const [origin, offered] of origins.all()) {
    if (compareOrigins(origin, change.origin) === 0) continue;
    for (const { address } of offered.values()) yield [address, origin];
  }
  for (const { address } of change.after.values()) yield [address, change.origin];
}
