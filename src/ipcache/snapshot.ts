import { HashPrefixTable } from '../net/hash-prefix-table.ts';
import { type PrefixRegister, prefixRegister, sameKey } from '../net/prefix.ts';
import type { PrefixTable } from '../net/prefix-table.ts';
import { prefixChange, sameEntry } from './change.ts';
import { type EntryReader, FLAG } from './entry-reader.ts';
import { EntryRows } from './entry-rows.ts';
import { EntryView } from './entry-view.ts';
import type { IPCacheChange } from './types.ts';

/**
 * All entries of an `IPCache` at one revision, made by `IPCache.snapshot`. Immutable: later writes do not show. Reads
 * are those of the cache and cost the same, the first ones too: nothing is built for them but, if the cache has none, the
 * lists by identity.
 *
 * It shares with the cache the pages (1,024 entries each) that were not written since it was taken; the cache copies a
 * page before the first write to it, and that is all that a snapshot costs it. The cache does not refer to its
 * snapshots: one that is let go leaves nothing behind, one that is kept holds the pages that were written since.
 */
export class IPCacheSnapshot extends EntryView {
  /** No entries, before the first revision. */
  static readonly EMPTY: IPCacheSnapshot = new IPCacheSnapshot(
    new HashPrefixTable(),
    new EntryRows(new HashPrefixTable()),
    0,
  );

  /** The revision of the cache when it was taken. */
  readonly revision: number;

  /** @internal `table` and `rows` belong together and are not written any more. */
  constructor(table: PrefixTable, rows: EntryReader, revision: number) {
    super(table, rows);
    this.revision = revision;
  }

  /**
   * The changes that lead a listener from `a` to `b`, in any direction of time, in no order that is promised. Cost:
   * a look at each entry of the pages in which they differ, if they are of one cache, else of both; and what differs.
   */
  static diff(a: IPCacheSnapshot, b: IPCacheSnapshot): readonly IPCacheChange[] {
    const changes: IPCacheChange[] = [];
    const key = prefixRegister();
    for (const slot of a.#slotsUnlike(b, key)) {
      const old = a.rows.entry(slot);
      const other = b.visible(key);
      const next = other < 0 ? undefined : b.rows.entry(other);
      if (!sameEntry(old, next)) changes.push(prefixChange(key, old, next));
    }
    for (const slot of b.#slotsUnlike(a, key)) {
      if (a.visible(key) < 0) changes.push(prefixChange(key, undefined, b.rows.entry(slot)));
    }
    return changes;
  }

  /** Visible slots that may be another key's, or say something else, in another snapshot; the key goes into `key`. */
  *#slotsUnlike(other: IPCacheSnapshot, key: PrefixRegister): Generator<number, void, void> {
    const { table, rows } = this;
    const otherKey = prefixRegister();
    for (const slot of table.slots((first) => !rows.sharesPage(other.rows, first))) {
      if (rows.has(slot, FLAG.shadowed)) continue;
      table.keyOf(slot, key);
      if (rows.holdsSame(slot, other.rows)) {
        other.table.keyOf(slot, otherKey);
        if (sameKey(key, otherKey)) continue;
      }
      yield slot;
    }
  }
}
