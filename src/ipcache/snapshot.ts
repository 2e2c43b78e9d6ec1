import { HashPrefixTable } from '../lpm/hash-prefix-table.ts';
import type { PrefixTable } from '../lpm/prefix-table.ts';
import { type PrefixRegister, prefixRegister, sameKey } from '../net/prefix.ts';
import { CacheReads } from './cache-reads.ts';
import { prefixChange, sameEntry } from './change.ts';
import { FLAG, type RowReader } from './row-reader.ts';
import { RowStore } from './row-store.ts';
import type { IPCacheChange, KeyedEntry } from './types.ts';

/**
 * The immutable entries of an `IPCache` at one revision, returned by `IPCache.snapshot`. Its reads are those of the
 * cache and cost the same, except the first lookup by identity if the cache has had none: it builds the lists.
 *
 * A snapshot shares its pages (1,024 entries each) with the cache, which copies a page before it writes the page for
 * the first time. The first change of a CIDR after a snapshot also copies the index of CIDRs (16 to 32 bytes for all
 * CIDRs that are equal except for their last one to eight bits), and the first change of an identity the index of
 * identities (16 to 32 bytes each). The cache does not reference its snapshots, so a discarded snapshot releases the
 * pages that only it has.
 */
export class IPCacheSnapshot extends CacheReads {
  /** The empty snapshot, before the first revision. */
  static readonly EMPTY: IPCacheSnapshot = new IPCacheSnapshot(
    new HashPrefixTable(),
    new RowStore(new HashPrefixTable()),
    0,
  );

  /** The revision of the cache when the snapshot was taken. */
  readonly revision: number;

  /** @internal `table` and `rows` belong together and must not be written. */
  constructor(table: PrefixTable, rows: RowReader, revision: number) {
    super(table, rows);
    this.revision = revision;
  }

  /**
   * Returns the changes from `before` to `after`, unordered. Either may be the older one. Cost: a scan of the pages
   * that differ if both are of the same cache, otherwise a scan of both.
   */
  static diff(before: IPCacheSnapshot, after: IPCacheSnapshot): readonly IPCacheChange[] {
    const changes: IPCacheChange[] = [];
    const key = prefixRegister();
    for (const slot of before.#slotsUnlike(after, key)) {
      const old = before.rows.entry(slot);
      const slotAfter = after.visibleSlot(key);
      const next = slotAfter < 0 ? undefined : after.rows.entry(slotAfter);
      if (!sameEntry(old, next)) changes.push(prefixChange(key, old, next));
    }
    for (const slot of after.#slotsUnlike(before, key)) {
      if (before.visibleSlot(key) < 0) changes.push(prefixChange(key, undefined, after.rows.entry(slot)));
    }
    return changes;
  }

  /** Yields the identities of all entries, also shadowed ones, each once, unordered. Costs like `lookupByIdentity`. */
  identities(): Generator<number, void, void> {
    return this.rows.identities();
  }

  /** Yields the visible entries with this identity, unordered. */
  *entriesOf(identity: number): Generator<KeyedEntry, void, void> {
    for (const slot of this.rows.slotsOfIdentity(identity))
      if (!this.rows.hasFlag(slot, FLAG.shadowed)) yield this.entryAt(slot);
  }

  /** Yields the visible slots whose key or entry may differ in another snapshot. `key` receives the key of each. */
  *#slotsUnlike(other: IPCacheSnapshot, key: PrefixRegister): Generator<number, void, void> {
    const { table, rows } = this;
    const otherKey = prefixRegister();
    for (const slot of table.slots((firstOfPage) => !rows.sharesPage(other.rows, firstOfPage))) {
      if (rows.hasFlag(slot, FLAG.shadowed)) continue;
      table.keyOf(slot, key);
      if (rows.holdsSame(slot, other.rows)) {
        other.table.keyOf(slot, otherKey);
        if (sameKey(key, otherKey)) continue;
      }
      yield slot;
    }
  }
}
