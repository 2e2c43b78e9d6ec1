import { addressBits, type Family } from '../net/address-words.ts';
import type { PrefixRegister } from '../net/prefix.ts';
import type { PrefixBlock } from '../net/prefix-block.ts';
import { ChangedValues } from './changed-values.ts';
import { HEADER, LAYOUT, nextBatch, STATE_WORDS } from './layout.ts';
import { LeafPrefetch } from './leaf-prefetch.ts';
import { LengthFilter } from './length-filter.ts';
import { NO_PEER, PeerTable } from './peer-table.ts';
import { ADDED, FULL, PrefixLeaves } from './prefix-leaves.ts';
import { SharedHeap } from './shared-memory.ts';

/** Reserved memory besides that of the entries. */
const SPARE_BYTES: number = 16 << 20;

export interface SharedAttributes {
  readonly identity: number;
  readonly hostIP: string | undefined;
  readonly encryptKey: number;
}

/**
 * The table of a `SharedLookup`, written by one thread in batches. Readers see a batch when {@link SharedTable.publish}
 * returns, as a whole.
 *
 *     begin: started + 1 ─► free the blocks that the last batch released ─► copy leaves ─► publish: published + 1
 *
 * A lookup belongs to the last published batch. It is valid if at most one further batch has started before the
 * lookup ends, because only the second one reuses memory that the lookup has read. Readers write nothing that others
 * read, so a reader may end at any time.
 */
export class SharedTable {
  readonly #heap: SharedHeap;
  readonly #maxWords: number;
  readonly #ipv4: FamilyTable;
  readonly #ipv6: FamilyTable;
  readonly #peers: PeerTable;
  readonly #changed: ChangedValues;
  readonly #seed: number;
  readonly #leafPrefetch = new LeafPrefetch();
  #batch = 0;
  /** Number of leaves created before the last prefetch. */
  #createdLeaves = 0;
  #isOpen = false;

  /** `maxBytes` limits growth. 2.25 times as much is reserved for copies of all leaves, and for merges. */
  constructor(maxBytes: number, seed: number, spareBytes: number = SPARE_BYTES) {
    const heap = new SharedHeap(2.25 * maxBytes + spareBytes, maxBytes, 2 * maxBytes + spareBytes / 2);
    this.#heap = heap;
    this.#maxWords = maxBytes / 4;
    this.#changed = new ChangedValues(heap);
    this.#ipv4 = new FamilyTable(heap, this.#changed, 4, seed);
    this.#ipv6 = new FamilyTable(heap, this.#changed, 6, seed);
    this.#peers = new PeerTable(heap, Math.min(maxBytes, spareBytes) / 16);
    this.#seed = seed;
    heap.words[HEADER.seed] = seed;
    Atomics.store(heap.words, HEADER.layout, LAYOUT);
  }

  get buffer(): SharedArrayBuffer {
    return this.#heap.buffer;
  }

  get size(): number {
    return this.#ipv4.leaves.size + this.#ipv6.leaves.size;
  }

  /** Bytes of blocks in use. */
  get bytes(): number {
    return 4 * this.#heap.used;
  }

  /** True from the start of a batch until it is published. */
  get isOpen(): boolean {
    return this.#isOpen;
  }

  /** Begins a batch. If the last one was not published, continues it. */
  begin(): void {
    if (this.#isOpen) return;
    this.#isOpen = true;
    this.#batch = nextBatch(this.#batch);
    const { words } = this.#heap;
    Atomics.store(words, HEADER.started, this.#batch);
    Atomics.load(words, HEADER.started); // with the store, a full fence: no write below is visible before it
    this.#changed.begin(this.#batch);
    this.#ipv4.begin(this.#batch);
    this.#ipv6.begin(this.#batch);
    this.#peers.begin();
    this.#heap.begin();
  }

  /**
   * Prefetches the memory of the first `count` prefixes of a block, which are written next. Reads whole leaves if the
   * number of leaves created since the last call is more than a quarter of `count`.
   */
  prefetch(block: PrefixBlock, count: number): void {
    const created = this.#ipv4.leaves.created + this.#ipv6.leaves.created;
    const part = 4 * (created - this.#createdLeaves) > count ? 'leaf' : 'slot';
    this.#leafPrefetch.read(this.#heap.words, this.#seed, block, count, part);
    this.#createdLeaves = created;
  }

  /**
   * Adds a prefix or changes its attributes. Returns false if there is no room; the table then does not contain it.
   */
  set(key: Readonly<PrefixRegister>, { identity, hostIP, encryptKey }: SharedAttributes): boolean {
    const { leaves, filter } = this.#of(key.family);
    const peer = this.#peers.use(hostIP, encryptKey);
    if (peer === NO_PEER) {
      this.remove(key);
      return false;
    }
    const previous = leaves.set(key, identity, peer);
    if (previous === FULL) this.#peers.release(peer);
    else if (previous !== ADDED) this.#peers.release(previous);
    else if (key.length < addressBits(key.family)) filter.adjust(key, 1);
    return previous !== FULL;
  }

  /** Changes the identity of a prefix. Returns false if the table does not contain it. */
  setIdentity(key: Readonly<PrefixRegister>, identity: number): boolean {
    return this.#of(key.family).leaves.setIdentity(key, identity);
  }

  /** Removes a prefix. Returns false if the table does not contain it. */
  remove(key: Readonly<PrefixRegister>): boolean {
    const { leaves, filter } = this.#of(key.family);
    // Merges copy leaves. The reserved memory has room for these copies only up to this share of `maxBytes`.
    const mayMerge = this.#heap.released < this.#maxWords / 8;
    const peer = leaves.remove(key, mayMerge);
    if (peer < 0) return false;
    this.#peers.release(peer);
    if (key.length < addressBits(key.family)) filter.adjust(key, -1);
    return true;
  }

  /** Ends the batch. Readers see it, and `revision`, from now on. */
  publish(revision: number): void {
    const { words } = this.#heap;
    const state = HEADER.state + (this.#batch & 1) * STATE_WORDS;
    words[state] = revision;
    words[state + 1] = revision / 2 ** 32;
    words[state + 2] = this.size;
    Atomics.store(words, HEADER.published, this.#batch);
    this.#isOpen = false;
  }

  /** Marks the memory as closed, so that readers know that nothing changes any more. */
  close(): void {
    Atomics.store(this.#heap.words, HEADER.closed, 1);
  }

  #of(family: Family): FamilyTable {
    return family === 4 ? this.#ipv4 : this.#ipv6;
  }
}

/** The prefixes of one family, and the lengths of those shorter than an address. */
class FamilyTable {
  readonly leaves: PrefixLeaves;
  readonly filter: LengthFilter;

  constructor(heap: SharedHeap, changed: ChangedValues, family: Family, seed: number) {
    const root = family === 4 ? HEADER.directory4 : HEADER.directory6;
    this.leaves = new PrefixLeaves(heap, changed, family, seed, root);
    this.filter = new LengthFilter(heap, family, seed, family === 4 ? HEADER.filter4 : HEADER.filter6);
  }

  begin(batch: number): void {
    this.leaves.begin(batch);
    this.filter.begin();
  }
}
