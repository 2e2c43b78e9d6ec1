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
  /** Returns the origin of a winner whose address has one claim. Checks the slices of its cluster one by one. */
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

/**
 * Finds the origins of addresses with one claim. A search checks the slices one by one and, at about the same cost,
 * adds some addresses to the index, so that later searches find them there. Changes of the service update the index.
 */
export class OriginIndex {
  /**
   * The origin of each address with one claim, if it is indexed. Addresses without a claim, or with several, may have
   * any origin, because a new or last claim replaces it.
   */
  readonly #byAddress = new Map<string, Origin>();
  /** The addresses that are not yet indexed; undefined before the first search. */
  #unindexed: Iterator<readonly [string, Origin]> | undefined;
  /**
   * Number of changes after which the index is discarded if none of them uses it. It is the number of slices: each
   * slice may have changed by then, and the next search costs no more than these changes.
   */
  #changesUntilDiscard = 0;

  /** Must be called at the end of each change. Returns false if the index is to be discarded. */
  endChange(): boolean {
    return this.#changesUntilDiscard-- > 0;
  }

  /** Returns the origin of a winner whose address has one claim. The claim is not the changed origin's. */
  find(winner: Backend, change: OriginChange, origins: Origins): Origin | undefined {
    const slices = origins.sliceCount(winner.cluster);
    if (slices < 2) return origins.search(winner);
    this.#changesUntilDiscard = slices;
    const known = this.#byAddress.get(winner.address);
    if (known !== undefined) return known;
    this.#unindexed ??= addressesAfter(change, origins);
    this.#addNext(this.#unindexed, slices);
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

  /** Adds the next `count` addresses of `unindexed`. Addresses that changed since are in the index already. */
  #addNext(unindexed: Iterator<readonly [string, Origin]>, count: number): void {
    for (let added = 0; added < count; added++) {
      const { done, value } = unindexed.next();
      if (done === true) return;
      const [address, origin] = value;
      if (!this.#byAddress.has(address)) this.#byAddress.set(address, origin);
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
