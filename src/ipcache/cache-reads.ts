import { checkArguments, NUMBER, OBJECT, optional, requireArgument } from '../base/arguments.ts';
import type { PrefixTable } from '../lpm/prefix-table.ts';
import type { NumericIdentity } from '../model/numeric-identity.ts';
import {
  comparePrefixes,
  formatKey,
  formatKeyOf,
  hasAddressLength,
  type PrefixRegister,
  parseKey,
  prefixRegister,
} from '../net/prefix.ts';
import { BLOCK_KEYS, PrefixBlock } from '../net/prefix-block.ts';
import {
  ADDRESS_LIST,
  type AddressList,
  countAddresses,
  IDENTITY_ARRAY,
  readIPv4Number,
  readListAddress,
} from './address-list.ts';
import { FLAG, type RowReader } from './row-reader.ts';
import type { KeyedEntry } from './types.ts';

// Buffers of `lookupMany`. All caches share them, because the function is synchronous and not re-entrant.
const block = new PrefixBlock();
const slots = new Int32Array(BLOCK_KEYS);

/** The reads of keys and their effective claims, common to a cache and its snapshots. */
export class CacheReads {
  protected readonly table: PrefixTable;
  protected readonly rows: RowReader;
  /** The key of the current call. */
  readonly #key: PrefixRegister = prefixRegister();

  protected constructor(table: PrefixTable, rows: RowReader) {
    this.table = table;
    this.rows = rows;
  }

  /** Number of keys, shadowed ones included. */
  get size(): number {
    return this.table.size;
  }

  /** Returns the effective entry of exactly this key, shadowed or not. */
  get(key: string): KeyedEntry | undefined {
    if (!parseKey(key, this.#key)) return undefined;
    return this.#entryFor(key, this.table.find(this.#key));
  }

  /** Returns the entry with the longest prefix that contains `ip` (I6); `undefined` for none or an invalid `ip`. */
  lookup(ip: string): KeyedEntry | undefined {
    if (!parseKey(ip, this.#key) || this.#key.form !== 'endpoint') return undefined;
    return this.#entryFor(ip, this.table.longestMatch(this.#key));
  }

  /** Returns the identity of {@link CacheReads.get}. Allocates nothing. */
  identityOf(key: string): NumericIdentity | undefined {
    return parseKey(key, this.#key) ? this.#identityAt(this.table.find(this.#key)) : undefined;
  }

  /** Returns the identity of {@link CacheReads.lookup}. An IPv4 address may be a number. Allocates nothing. */
  lookupIdentity(ip: string | number): NumericIdentity | undefined {
    const key = this.#key;
    const isAddress =
      typeof ip === 'number' ? readIPv4Number(ip, key) : parseKey(ip, key) && key.form === 'endpoint';
    return isAddress ? this.#identityAt(this.table.longestMatch(key)) : undefined;
  }

  /**
   * Calls {@link CacheReads.lookupIdentity} for many addresses, writes each identity to the same index of `identities`,
   * and returns the number of addresses that were found. Addresses that are invalid or not found get 0, the reserved
   * identity `unknown`. `identities` must have room for all. Allocates nothing per address; the memory reads of 256
   * addresses overlap.
   */
  lookupMany(addresses: AddressList, identities: Uint32Array): number {
    const count = countAddresses(addresses);
    requireArgument(
      identities.length >= count,
      'lookupMany: identities must have an element for each address',
    );
    let found = 0;
    for (let from = 0; from < count; from += BLOCK_KEYS) {
      found += this.#lookupBlock(addresses, from, Math.min(BLOCK_KEYS, count - from), identities);
    }
    return found;
  }

  /** Like {@link CacheReads.get}, but a full-length CIDR returns the entry of its IP if it exists (SEMANTICS 2.4). */
  lookupByPrefix(prefix: string): KeyedEntry | undefined {
    const key = this.#key;
    if (!parseKey(prefix, key)) return undefined;
    const slot = key.form === 'cidr' ? this.visibleSlot(key) : this.table.find(key);
    return slot < 0 ? undefined : this.entryAt(slot);
  }

  /**
   * Returns the canonical keys of all entries with this identity (I5), unordered, shadowed ones included. The first
   * call scans all entries, about 30 ns each, so call it while the cache is empty. The lists take 8 bytes an entry.
   * Later calls are linear in their result. A first call on a snapshot also makes the cache and later snapshots keep
   * the lists.
   */
  lookupByIdentity(identity: number): readonly string[] {
    return Array.from(this.rows.slotsOfIdentity(identity), (slot) => this.keyAt(slot));
  }

  /** Returns the number of keys that {@link CacheReads.lookupByIdentity} would return. O(1) after the first call. */
  countByIdentity(identity: number): number {
    return this.rows.countOfIdentity(identity);
  }

  /**
   * Returns the visible entries whose prefixes are in `prefix` (a CIDR or an IP), ordered by address. A prefix comes
   * before the prefixes that it contains. Returns an empty list if `prefix` is invalid. Cost: a scan of the result and
   * about a thousand neighbours (a few µs), and a sort. With `limit`, returns any `limit` of the entries if there are
   * more, and costs no more than a result of this size.
   */
  within(prefix: string, limit: number = Number.POSITIVE_INFINITY): readonly KeyedEntry[] {
    const around = prefixRegister();
    if (limit <= 0 || !parseKey(prefix, around)) return [];
    const found: { readonly slot: number; readonly key: PrefixRegister }[] = [];
    for (const slot of this.table.covered(around)) {
      if (this.rows.hasFlag(slot, FLAG.shadowed)) continue;
      const key = prefixRegister();
      this.table.keyOf(slot, key);
      found.push({ slot, key });
      if (found.length >= limit) break;
    }
    return found.sort((a, b) => comparePrefixes(a.key, b.key)).map(({ slot }) => this.entryAt(slot));
  }

  /**
   * Yields the visible entries, with `includeShadowed` all entries, unordered. If the cache is written during the
   * iteration, an entry that exists all the time is yielded once. `skip`: the number of entries to omit at the
   * beginning, about 10 ns each.
   */
  *entries(
    options: { readonly includeShadowed?: boolean; readonly skip?: number } = {},
  ): Generator<KeyedEntry, void, void> {
    let { skip = 0 } = options;
    for (const slot of this.table.slots()) {
      if (!options.includeShadowed && this.rows.hasFlag(slot, FLAG.shadowed)) continue;
      if (skip > 0) skip--;
      else yield this.entryAt(slot);
    }
  }

  /** Returns the slot that listeners see at a prefix: endpoint, else CIDR (I4), else -1. Changes the form of `key`. */
  protected visibleSlot(key: PrefixRegister): number {
    if (hasAddressLength(key)) {
      key.form = 'endpoint';
      const endpoint = this.table.find(key);
      if (endpoint >= 0) return endpoint;
    }
    key.form = 'cidr';
    return this.table.find(key);
  }

  /** Returns the entry of a slot in use. */
  protected entryAt(slot: number): KeyedEntry {
    return this.#keyedEntry(slot, this.keyAt(slot));
  }

  /** Returns the canonical key of a slot in use. */
  protected keyAt(slot: number): string {
    this.table.keyOf(slot, this.#key);
    return formatKey(this.#key);
  }

  /** Looks up a block of addresses in short loops. See {@link PrefixBlock}. */
  #lookupBlock(addresses: AddressList, from: number, count: number, identities: Uint32Array): number {
    const key = this.#key;
    for (let i = 0; i < count; i++) block.set(i, readListAddress(addresses, from + i, key) ? key : undefined);
    if (block.isScattered(count)) this.table.prefetch(block, count);
    for (let i = 0; i < count; i++) slots[i] = block.get(i, key) ? this.table.longestMatch(key) : -1;
    let found = 0;
    for (let i = 0; i < count; i++) {
      const slot = slots[i] ?? -1;
      identities[from + i] = slot < 0 ? 0 : this.rows.identity(slot);
      if (slot >= 0) found++;
    }
    return found;
  }

  #identityAt(slot: number): NumericIdentity | undefined {
    return slot < 0 ? undefined : this.rows.identity(slot);
  }

  /** Returns the entry that a lookup of `text` found. The register holds its key. */
  #entryFor(text: string, slot: number): KeyedEntry | undefined {
    return slot < 0 ? undefined : this.#keyedEntry(slot, formatKeyOf(text, this.#key));
  }

  #keyedEntry(slot: number, key: string): KeyedEntry {
    const { identity, hostIP, encryptKey, k8s, source, owner } = this.rows.claim(slot);
    const shadowed = this.rows.hasFlag(slot, FLAG.shadowed);
    return { key, identity, hostIP, encryptKey, k8s, source, owner, shadowed };
  }
}

checkArguments(CacheReads, {
  lookupByIdentity: { identity: NUMBER },
  countByIdentity: { identity: NUMBER },
  entries: { options: optional(OBJECT) },
  lookupMany: { addresses: ADDRESS_LIST, identities: IDENTITY_ARRAY },
});
