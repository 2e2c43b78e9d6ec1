import { type Check, checkArguments, objectWith, requireArgument } from '../base/arguments.ts';
import {
  ADDRESS_LIST,
  type AddressList,
  countAddresses,
  IDENTITY_ARRAY,
  readIPv4Number,
  readListAddress,
} from '../ipcache/address-list.ts';
import type { NumericIdentity } from '../model/numeric-identity.ts';
import { type AddressWords, addressBits, type Family, wordMask } from '../net/address-words.ts';
import { formatAddress, formatPrefix } from '../net/format-address.ts';
import { type PrefixRegister, parsePrefix, prefixRegister } from '../net/prefix.ts';
import { PrefixBlock } from '../net/prefix-block.ts';
import {
  changedTable,
  findChanged,
  findSlot,
  HEADER,
  HEADER_WORDS,
  isMarked,
  isRecent,
  LAYOUT,
  LEAF,
  leafAt,
  leafBefore,
  leafOf,
  lengthOf,
  maskWordsOf,
  PEER,
  PEER_WORDS,
  peerOf,
  SLOT,
  STATE_WORDS,
  seededPrefixHash,
  stampOf,
  stemOf,
} from './layout.ts';
import { LeafPrefetch } from './leaf-prefetch.ts';

/** Number of addresses that are validated together: small, because two batches in that time make the read invalid. */
const GROUP = 16;

/** Posted to a worker, which passes it to `openLookup`. Its fields are internal. */
export interface SharedLookupHandle {
  readonly buffer: SharedArrayBuffer;
}

/** The visible entry of a prefix. */
export interface SharedEntry {
  /** Canonical CIDR text, always with a length: `10.1.2.3/32`. */
  readonly prefix: string;
  readonly identity: NumericIdentity;
  /** Canonical text. */
  readonly hostIP: string | undefined;
  readonly encryptKey: number;
}

/** Returns a view of the first words of a buffer. */
export type MapWords = (buffer: SharedArrayBuffer, words: number) => Int32Array;

/**
 * Reads the table of a `SharedLookup` in any thread. Returned by {@link openLookup}.
 *
 * Each call returns the state of one revision, which is the latest at the start of the call or newer. The calls of one
 * reader never go back to an older revision. All changes of a batch are visible, or none. A call takes no lock, never
 * waits for the writer and needs no other thread. It repeats its reads only if the writer begins two batches during the
 * call.
 */
export class SharedReader {
  readonly #buffer: SharedArrayBuffer;
  readonly #map: MapWords;
  readonly #header: Int32Array;
  readonly #seed: number;
  /**
   * A store to this word is a part of the fence in {@link SharedReader.#isValid}. The word is shared memory, so that no
   * engine may omit the store.
   */
  readonly #fence = new Int32Array(new SharedArrayBuffer(4));
  #words: Int32Array;
  #wordCount: number;
  readonly #key: PrefixRegister = prefixRegister();
  readonly #block = new PrefixBlock();
  readonly #prefetch = new LeafPrefetch();
  /** The prefix tried by a longest match. */
  readonly #tried: AddressWords = { family: 4, w0: 0, w1: 0, w2: 0, w3: 0 };

  /** @internal */
  constructor(buffer: SharedArrayBuffer, map: MapWords) {
    this.#buffer = buffer;
    this.#map = map;
    this.#header = new Int32Array(buffer, 0, HEADER_WORDS);
    this.#seed = this.#header[HEADER.seed] ?? 0;
    this.#wordCount = this.#header[HEADER.words] ?? 0;
    this.#words = map(buffer, this.#wordCount);
  }

  /** Lower bound of the `IPCache` revision whose state the next call returns. It never decreases. */
  get revision(): number {
    for (;;) {
      const batch = this.#begin();
      const state = HEADER.state + (batch & 1) * STATE_WORDS;
      const low = this.#header[state] ?? 0;
      const revision = (this.#header[state + 1] ?? 0) * 2 ** 32 + (low >>> 0);
      if (this.#isValid(batch)) return revision;
    }
  }

  /** Number of visible prefixes. */
  get size(): number {
    for (;;) {
      const batch = this.#begin();
      const size = this.#header[HEADER.state + (batch & 1) * STATE_WORDS + 2] ?? 0;
      if (this.#isValid(batch)) return size;
    }
  }

  /** True after `SharedLookup.close`. Reads then return the last state. */
  get closed(): boolean {
    return Atomics.load(this.#header, HEADER.closed) === 1;
  }

  /**
   * Returns the entry with the longest prefix that contains `ip`, `undefined` if there is none or `ip` is not an
   * address. An IPv4 address may be a number.
   */
  lookup(ip: string | number): SharedEntry | undefined {
    if (!this.#readAddress(ip)) return undefined;
    for (;;) {
      const batch = this.#begin();
      const slot = this.#longestMatch(this.#key, batch);
      const found = slot === 0 ? undefined : this.#entryAt(slot, batch);
      if (this.#isValid(batch)) return found;
    }
  }

  /** Returns the identity of {@link SharedReader.lookup}. Allocates nothing. */
  lookupIdentity(ip: string | number): NumericIdentity | undefined {
    if (!this.#readAddress(ip)) return undefined;
    for (;;) {
      const batch = this.#begin();
      const slot = this.#longestMatch(this.#key, batch);
      const identity = this.#identityAt(slot, batch);
      if (this.#isValid(batch)) return slot === 0 ? undefined : toIdentity(identity);
    }
  }

  /**
   * Returns the identity of exactly this prefix. `10.1.2.3` and `10.1.2.3/32` are one prefix, that of the endpoint if
   * there is one. Allocates nothing.
   */
  identityOf(key: string): NumericIdentity | undefined {
    if (!parsePrefix(key, this.#key)) return undefined;
    for (;;) {
      const batch = this.#begin();
      const slot = this.#find(this.#key, this.#key.length, batch);
      const identity = this.#identityAt(slot, batch);
      if (this.#isValid(batch)) return slot === 0 ? undefined : toIdentity(identity);
    }
  }

  /**
   * Looks up many addresses, writes each identity to the same index of `identities`, and returns the number of
   * addresses that were found. Addresses that are invalid or not found get 0, the reserved identity `unknown`.
   * `identities` must have room for all. Allocates nothing per address. A batch may be published during the call; later
   * addresses are then of a newer revision.
   */
  lookupMany(addresses: AddressList, identities: Uint32Array): number {
    const count = countAddresses(addresses);
    requireArgument(
      identities.length >= count,
      'lookupMany: identities must have an element for each address',
    );
    let found = 0;
    for (let from = 0; from < count; from += GROUP) {
      const to = Math.min(from + GROUP, count);
      const batch = this.#begin();
      const foundInGroup = this.#lookupRange(addresses, from, to, identities, batch);
      found += this.#isValid(batch) ? foundInGroup : this.#lookupEach(addresses, from, to, identities);
    }
    return found;
  }

  /** Looks up the addresses of a group one by one, each until its result is valid. Returns the number of matches. */
  #lookupEach(addresses: AddressList, from: number, to: number, identities: Uint32Array): number {
    let found = 0;
    for (let at = from; at < to; ) {
      const batch = this.#begin();
      const foundHere = this.#lookupRange(addresses, at, at + 1, identities, batch);
      if (!this.#isValid(batch)) continue;
      found += foundHere;
      at++;
    }
    return found;
  }

  /** Looks up the addresses of a group in one batch. Returns the number of matches. The results may be invalid. */
  #lookupRange(
    addresses: AddressList,
    from: number,
    to: number,
    identities: Uint32Array,
    batch: number,
  ): number {
    const key = this.#key;
    const block = this.#block;
    const count = to - from;
    for (let i = 0; i < count; i++) block.set(i, readListAddress(addresses, from + i, key) ? key : undefined);
    if (count > 1) this.#prefetch.read(this.#words, this.#seed, block, count, 'header');
    let found = 0;
    for (let at = from; at < to; at++) {
      const slot = block.get(at - from, key) ? this.#longestMatch(key, batch) : 0;
      identities[at] = slot === 0 ? 0 : this.#identityAt(slot, batch);
      if (slot !== 0) found++;
    }
    return found;
  }

  /** Parses an address into the register. Returns false if it is invalid. */
  #readAddress(ip: string | number): boolean {
    if (typeof ip === 'number') return readIPv4Number(ip, this.#key);
    return parsePrefix(ip, this.#key) && this.#key.form === 'endpoint';
  }

  /** Returns the batch of the next lookup. If the writer has added memory, maps it. */
  #begin(): number {
    const batch = Atomics.load(this.#header, HEADER.published);
    const words = this.#header[HEADER.words] ?? 0;
    if (words !== this.#wordCount) {
      this.#words = this.#map(this.#buffer, words);
      this.#wordCount = words;
    }
    return batch;
  }

  /**
   * Returns true if a lookup of this batch is valid: no memory that it has read was reused, and all of it was mapped.
   */
  #isValid(batch: number): boolean {
    Atomics.store(this.#fence, 0, 0); // with the load, a full fence: no read of the lookup is later than it
    const started = Atomics.load(this.#header, HEADER.started);
    return isRecent(batch, started) && this.#header[HEADER.words] === this.#wordCount;
  }

  /** Returns the position of the slot with the longest prefix that contains an address, or 0. */
  #longestMatch(key: Readonly<PrefixRegister>, batch: number): number {
    const slot = this.#find(key, key.length, batch);
    if (slot !== 0) return slot;
    const { family } = key;
    const filter = this.#header[family === 4 ? HEADER.filter4 : HEADER.filter6] ?? 0;
    if (filter === 0) return 0;
    const size = maskWordsOf(family);
    const stem = filter + stemOf(this.#seed, family, key) * size;
    for (let word = size - 1; word >= 0; word--) {
      let lengths = (this.#words[filter + word] ?? 0) | (this.#words[stem + word] ?? 0);
      while (lengths !== 0) {
        const bit = 31 - Math.clz32(lengths);
        lengths ^= 1 << bit;
        const shorter = this.#findShortened(key, 32 * word + bit, batch);
        if (shorter !== 0) return shorter;
      }
    }
    return 0;
  }

  /** Like {@link SharedReader.#find}, for the prefix of an address with this length. */
  #findShortened(
    { family, w0, w1, w2, w3 }: Readonly<PrefixRegister>,
    length: number,
    batch: number,
  ): number {
    const tried = this.#tried;
    tried.family = family;
    tried.w0 = w0 & wordMask(length);
    tried.w1 = w1 & wordMask(length - 32);
    tried.w2 = w2 & wordMask(length - 64);
    tried.w3 = w3 & wordMask(length - 96);
    return this.#find(tried, length, batch);
  }

  /** Returns the position of the slot of a prefix, or 0. */
  #find(key: Readonly<AddressWords>, length: number, batch: number): number {
    const words = this.#words;
    const { family } = key;
    const directory = this.#header[family === 4 ? HEADER.directory4 : HEADER.directory6] ?? 0;
    const hash = seededPrefixHash(this.#seed, family, key, length);
    let leaf = leafAt(words, directory, hash);
    const stamp = words[leafOf(leaf) + LEAF.stamp] ?? 0;
    // A later, unpublished batch has written this leaf. Use the leaf that it replaced.
    if (stamp !== 0 && stamp !== stampOf(batch)) leaf = leafBefore(words, leaf, hash);
    return findSlot(words, leaf, key, length, hash);
  }

  #identityAt(slot: number, batch: number): number {
    const words = this.#words;
    const identity = words[slot + SLOT.identity] ?? 0;
    if (slot === 0 || !isMarked(words, slot)) return identity;
    const pair = findChanged(words, changedTable(this.#header[HEADER.changed] ?? 0, batch), slot);
    return words[pair] === slot ? (words[pair + 1] ?? 0) : identity;
  }

  /** Returns an entry. If the lookup is not valid, its fields may have any values. */
  #entryAt(slot: number, batch: number): SharedEntry {
    const words = this.#words;
    const meta = words[slot + SLOT.meta] ?? 0;
    const identity = toIdentity(this.#identityAt(slot, batch));
    const { family } = this.#key;
    const length = Math.min(lengthOf(meta), addressBits(family));
    const { w0, w1, w2, w3 } = this.#key;
    const prefix = {
      family,
      w0: w0 & wordMask(length),
      w1: w1 & wordMask(length - 32),
      w2: w2 & wordMask(length - 64),
      w3: w3 & wordMask(length - 96),
    };
    return { prefix: formatPrefix(prefix, length), identity, ...this.#peerAt(peerOf(meta)) };
  }

  #peerAt(number: number): { readonly hostIP: string | undefined; readonly encryptKey: number } {
    const words = this.#words;
    if (number === 0) return { hostIP: undefined, encryptKey: 0 };
    const row = (this.#header[HEADER.peers] ?? 0) + number * PEER_WORDS;
    const family = words[row + PEER.family] ?? 0;
    const encryptKey = words[row + PEER.encryptKey] ?? 0;
    if (family === 0) return { hostIP: undefined, encryptKey };
    const host = {
      family: (family === 4 ? 4 : 6) as Family,
      w0: words[row + PEER.w0] ?? 0,
      w1: words[row + PEER.w1] ?? 0,
      w2: words[row + PEER.w2] ?? 0,
      w3: words[row + PEER.w3] ?? 0,
    };
    return { hostIP: formatAddress(host), encryptKey };
  }
}

function toIdentity(word: number): NumericIdentity {
  return (word >>> 0) as NumericIdentity; // the IPCache has checked it
}

checkArguments(SharedReader, { lookupMany: { addresses: ADDRESS_LIST, identities: IDENTITY_ARRAY } });

const SHARED: Check = (value) =>
  typeof SharedArrayBuffer === 'function' && value instanceof SharedArrayBuffer
    ? undefined
    : ' must be a SharedArrayBuffer';
const HANDLE: Check = objectWith({ buffer: SHARED });

/** Returns a reader of a `SharedLookup`, by its `handle`. Works in the same thread, too. */
export function openLookup(handle: SharedLookupHandle): SharedReader {
  const fault = HANDLE(handle);
  requireArgument(fault === undefined, `openLookup: handle${fault}`);
  const { buffer } = handle;
  const isOurs =
    buffer.byteLength >= 4 * HEADER_WORDS &&
    Atomics.load(new Int32Array(buffer, 0, 1), HEADER.layout) === LAYOUT;
  requireArgument(isOurs, 'openLookup: handle.buffer is not of a SharedLookup of this version');
  return new SharedReader(buffer, (mapped, words) => new Int32Array(mapped, 0, words));
}
