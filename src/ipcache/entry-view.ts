import { BYTES, type Check, checkArguments, OBJECT, objectWith, optional } from '../base/arguments.ts';
import { assert } from '../base/assert.ts';
import type { NumericIdentity } from '../identity/numeric-identity.ts';
import { addressBits } from '../net/address-words.ts';
import {
  comparePrefixes,
  formatKey,
  formatKeyOf,
  type PrefixRegister,
  parsePrefix,
  prefixRegister,
} from '../net/prefix.ts';
import { BLOCK_KEYS, PrefixBlock } from '../net/prefix-block.ts';
import type { PrefixTable } from '../net/prefix-table.ts';
import { type AddressList, countAddresses, readAddress, readIPv4Number } from './address-list.ts';
import { type EntryReader, FLAG } from './entry-reader.ts';
import type { KeyedEntry } from './types.ts';

// What a look-up of many addresses works in. It calls nothing back, so one of each serves every view.
const block = new PrefixBlock();
const slots = new Int32Array(BLOCK_KEYS);

/** What can be read of keys and their effective claims: the common part of a cache and its snapshots. */
export class EntryView {
  protected readonly table: PrefixTable;
  protected readonly rows: EntryReader;
  /** The key of the call under way: no call yields while it needs it. */
  readonly #key: PrefixRegister = prefixRegister();

  protected constructor(table: PrefixTable, rows: EntryReader) {
    this.table = table;
    this.rows = rows;
  }

  /** Keys that are held, shadowed ones included. */
  get size(): number {
    return this.table.size;
  }

  /** The effective entry of exactly this key, shadowed or not. */
  get(key: string): KeyedEntry | undefined {
    if (!parsePrefix(key, this.#key)) return undefined;
    return this.#entryFor(key, this.table.find(this.#key));
  }

  /** The entry with the longest prefix that contains `ip` (I6). A CIDR is no IP: `undefined`. */
  lookup(ip: string): KeyedEntry | undefined {
    if (!parsePrefix(ip, this.#key) || this.#key.form !== 'endpoint') return undefined;
    return this.#entryFor(ip, this.table.longestMatch(this.#key));
  }

  /** The identity alone of what {@link EntryView.get} gives. Allocates nothing. */
  identityOf(key: string): NumericIdentity | undefined {
    return parsePrefix(key, this.#key) ? this.#identityAt(this.table.find(this.#key)) : undefined;
  }

  /** The identity alone of what {@link EntryView.lookup} gives; an IPv4 address may be a number. Allocates nothing. */
  lookupIdentity(ip: string | number): NumericIdentity | undefined {
    const key = this.#key;
    const isAddress =
      typeof ip === 'number' ? readIPv4Number(ip, key) : parsePrefix(ip, key) && key.form === 'endpoint';
    return isAddress ? this.#identityAt(this.table.longestMatch(key)) : undefined;
  }

  /**
   * {@link EntryView.lookupIdentity} of many addresses: writes the identity of each to its place in `identities`, which
   * has room for all, and says how many were found. What is not found, or no address, gets 0, which is the reserved
   * identity `unknown`. Allocates nothing for an address; 256 of them wait for memory together.
   */
  lookupMany(addresses: AddressList, identities: Uint32Array): number {
    const count = countAddresses(addresses);
    assert(identities.length >= count, 'lookupMany: there is a place for the identity of each address');
    let found = 0;
    for (let from = 0; from < count; from += BLOCK_KEYS) {
      found += this.#lookupBlock(addresses, from, Math.min(BLOCK_KEYS, count - from), identities);
    }
    return found;
  }

  /** As {@link EntryView.get}, but a full-length CIDR finds the endpoint IP first (SEMANTICS 2.4). */
  lookupByPrefix(prefix: string): KeyedEntry | undefined {
    const key = this.#key;
    if (!parsePrefix(prefix, key)) return undefined;
    const slot = key.form === 'cidr' ? this.visible(key) : this.table.find(key);
    return slot < 0 ? undefined : this.entryAt(slot);
  }

  /**
   * Canonical keys of every entry with this identity, shadowed ones included (I5), in no order that is promised. The first
   * call walks all entries, some 30 ns each: make it while the cache is empty, and it costs nothing. From then on lists are
   * kept, 8 bytes an entry; a call costs what it gives. What a snapshot is asked for, the cache and later ones have.
   */
  lookupByIdentity(identity: number): readonly string[] {
    return Array.from(this.rows.slotsOfIdentity(identity), (slot) => this.keyAt(slot));
  }

  /** How many keys {@link EntryView.lookupByIdentity} would give. O(1) but for its first call. */
  countByIdentity(identity: number): number {
    return this.rows.countOfIdentity(identity);
  }

  /**
   * The visible entries whose prefixes lie in `prefix` (a CIDR; an IP stands for itself), in order: by address, a prefix
   * before what it contains. Empty for what is neither. Costs a look at each of them and at
   * some thousand neighbours, a few µs; and a sort.
   */
  within(prefix: string): readonly KeyedEntry[] {
    const around = prefixRegister();
    if (!parsePrefix(prefix, around)) return [];
    const found: { readonly slot: number; readonly key: PrefixRegister }[] = [];
    for (const slot of this.table.covered(around)) {
      if (this.rows.has(slot, FLAG.shadowed)) continue;
      const key = prefixRegister();
      this.table.keyOf(slot, key);
      found.push({ slot, key });
    }
    return found.sort((a, b) => comparePrefixes(a.key, b.key)).map(({ slot }) => this.entryAt(slot));
  }

  /**
   * The visible entries, with `includeShadowed` all of them, in no order that is promised. Where entries may change
   * meanwhile, one that is there all the time comes once. Costs nothing until it is read, then by the entry.
   */
  *entries(options: { readonly includeShadowed?: boolean } = {}): Generator<KeyedEntry, void, void> {
    for (const slot of this.table.slots()) {
      if (options.includeShadowed || !this.rows.has(slot, FLAG.shadowed)) yield this.entryAt(slot);
    }
  }

  /** The slot of what listeners see at a prefix: the endpoint, else the CIDR (I4); or -1. Changes the form of `key`. */
  protected visible(key: PrefixRegister): number {
    if (key.length === addressBits(key.family)) {
      key.form = 'endpoint';
      const endpoint = this.table.find(key);
      if (endpoint >= 0) return endpoint;
    }
    key.form = 'cidr';
    return this.table.find(key);
  }

  /** What is in a slot that is in use. */
  protected entryAt(slot: number): KeyedEntry {
    return this.#keyedEntry(slot, this.keyAt(slot));
  }

  /** The canonical key of a slot that is in use. */
  protected keyAt(slot: number): string {
    this.table.keyOf(slot, this.#key);
    return formatKey(this.#key);
  }

  /** Short loops, see {@link PrefixBlock}. */
  #lookupBlock(addresses: AddressList, from: number, count: number, identities: Uint32Array): number {
    const key = this.#key;
    for (let i = 0; i < count; i++) block.set(i, readAddress(addresses, from + i, key) ? key : undefined);
    if (block.isScattered(count)) this.table.warm(block, count);
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

  /** What a look-up of `text` found, whose key the register holds. */
  #entryFor(text: string, slot: number): KeyedEntry | undefined {
    return slot < 0 ? undefined : this.#keyedEntry(slot, formatKeyOf(text, this.#key));
  }

  #keyedEntry(slot: number, key: string): KeyedEntry {
    const { identity, hostIP, encryptKey, k8s, source, owner } = this.rows.claim(slot);
    const shadowed = this.rows.has(slot, FLAG.shadowed);
    return { key, identity, hostIP, encryptKey, k8s, source, owner, shadowed };
  }
}

const ADDRESSES: Check = (value) =>
  Array.isArray(value) || value instanceof Uint32Array ? undefined : objectWith({ bytes: BYTES })(value);
const NUMBERS: Check = (value) => (value instanceof Uint32Array ? undefined : ' must be a Uint32Array');

checkArguments(EntryView, {
  entries: { options: optional(OBJECT) },
  lookupMany: { addresses: ADDRESSES, identities: NUMBERS },
});
