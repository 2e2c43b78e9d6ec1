import type { IPCache } from '../../../src/ipcache/ipcache.ts';
import type { IPCacheChange, IPCacheEntry, IPCacheListener } from '../../../src/ipcache/types.ts';
import { attributes, longestMatch } from './naive-ipcache.ts';

/** The part of a cache that the tests use, so that a mutant can replace it. */
export type CacheUnderTest = Pick<
  IPCache,
  | 'upsert'
  | 'delete'
  | 'withdraw'
  | 'batch'
  | 'get'
  | 'lookup'
  | 'lookupByPrefix'
  | 'lookupByIdentity'
  | 'countByIdentity'
  | 'entries'
  | 'explain'
  | 'subscribe'
  | 'subscribeOwners'
>;

/**
 * A listener that folds its events, and complains of events without a change (I3) and of an unknown `old`.
 */
export class FoldingListener implements IPCacheListener {
  readonly view: Map<string, IPCacheEntry> = new Map();
  readonly complaints: string[] = [];
  synced = 0;
  /** Reported prefixes since the last `takeTold`. */
  #told: string[] = [];

  onChanges(changes: readonly IPCacheChange[]): void {
    if (changes.length === 0) this.complaints.push('told of nothing');
    if (new Set(changes.map(({ prefix }) => prefix)).size < changes.length)
      this.complaints.push(`I8: a prefix twice in one delivery: ${changes.map(({ prefix }) => prefix)}`);
    for (const change of changes) {
      const known = this.view.get(change.prefix);
      const [was, old, now] = [known, change.old, change.new].map((entry) => entry && attributes(entry));
      if (was !== old) this.complaints.push(`${change.prefix}: old is not what was told before`);
      if (old === now) this.complaints.push(`${change.prefix}: told of no change`);
      if (change.new === undefined) this.view.delete(change.prefix);
      else this.view.set(change.prefix, change.new);
      this.#told.push(change.prefix);
    }
  }

  onSynced(): void {
    this.synced++;
  }

  takeTold(): readonly string[] {
    const told = this.#told;
    this.#told = [];
    return told;
  }
}

/** Returns a map of entries as plain sorted data, for comparison and output. */
export function plain(view: ReadonlyMap<string, IPCacheEntry>): Record<string, unknown> {
  const rows = [...view].map(([prefix, { identity, hostIP, encryptKey, k8s }]) => [
    prefix,
    { identity, hostIP, encryptKey, k8s },
  ]);
  return Object.fromEntries(rows.sort(([a], [b]) => (String(a) < String(b) ? -1 : 1)));
}

/** I1: the folded events of a listener are equal to the replay of a new one. */
export function foldEqualsDump(cache: CacheUnderTest, folded: FoldingListener): string[] {
  const fresh = new FoldingListener();
  cache.subscribe(fresh)();
  const problems = [...fresh.complaints];
  if (fresh.synced !== 1) problems.push(`synced ${fresh.synced} times`);
  const isHeld = ([prefix, entry]: readonly [string, IPCacheEntry]): boolean => {
    const held = folded.view.get(prefix);
    // The text does not distinguish an absent field from its default.
    return (
      held !== undefined &&
      held.hostIP === entry.hostIP &&
      held.encryptKey === entry.encryptKey &&
      attributes(held) === attributes(entry)
    );
  };
  if (folded.view.size !== fresh.view.size || ![...fresh.view].every(isHeld)) {
    problems.push(
      `I1: fold ${JSON.stringify(plain(folded.view))} but dump ${JSON.stringify(plain(fresh.view))}`,
    );
  }
  return problems;
}

/** I5: `lookupByIdentity` (and its count) is the inverse of the entries; for caches without a model. */
export function identityIsInverse(cache: CacheUnderTest): string[] {
  const byIdentity = new Map<number, string[]>([100, 200, 300].map((id) => [id, []]));
  for (const { identity, key } of cache.entries({ includeShadowed: true })) {
    const keys = byIdentity.get(identity) ?? [];
    byIdentity.set(identity, keys);
    keys.push(key);
  }
  return [...byIdentity].flatMap(([id, keys]) => {
    const [actual, expected] = [[...cache.lookupByIdentity(id)].sort().join(), keys.sort().join()];
    const count = cache.countByIdentity(id);
    if (actual === expected && count === keys.length) return [];
    return [`I5: identity ${id}: ${actual}, counted ${count}, but entries say ${expected}`];
  });
}

/** I6: `lookup` finds the longest prefix; for caches without a model. */
export function longestPrefixWins(cache: CacheUnderTest, addresses: readonly string[]): string[] {
  const keys = Array.from(cache.entries(), ({ key }) => key);
  return addresses.flatMap((address) => {
    const [actual, expected] = [cache.lookup(address)?.key, longestMatch(keys, address)];
    return actual === expected ? [] : [`I6: ${address}: ${actual} but the longest match is ${expected}`];
  });
}
