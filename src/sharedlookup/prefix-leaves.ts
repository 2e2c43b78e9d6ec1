import type { AddressWords, Family } from '../net/address-words.ts';
import type { PrefixRegister } from '../net/prefix.ts';
import type { ChangedValues } from './changed-values.ts';
import {
  capacityOf,
  countOf,
  depthOf,
  findSlot,
  homeOf,
  isMarked,
  LEAF,
  leafAt,
  leafOf,
  leafWords,
  lengthOf,
  MAX_SIZE_CLASS,
  metaOf,
  partOf,
  peerOf,
  SLOT,
  seededPrefixHash,
  shapeOf,
  sizeClassOf,
  slotWords,
  stampOf,
} from './layout.ts';
import { NumberList } from './number-list.ts';
import type { SharedHeap } from './shared-memory.ts';

/** Two leaves of 20 slots are merged if together they have at most this many prefixes. There is room for four more. */
const MERGED_PREFIXES = 16;
/** Maximum number of prefixes of a leaf that a deletion tries to merge. If it has more, its sibling is not read. */
const SPARSE_PREFIXES = 12;
/** The directory doubles only if it has fewer references per leaf than this. Otherwise a full leaf gets more slots. */
const REFERENCES_PER_LEAF = 4;

/** Results of {@link PrefixLeaves.set} other than a peer. */
export const ADDED = -1;
export const FULL = -2;

/** Buffer for the prefix of a moved slot. All tables share it, because moves are not re-entrant. */
const moved: AddressWords = { family: 4, w0: 0, w1: 0, w2: 0, w3: 0 };

/**
 * The prefixes of one family: an extendible hash table of leaves, written by one thread.
 *
 *     hash of the prefix ─► directory: a reference for each upper part of a hash ─► leaf: 20 slots or more
 *                                                                      the leaf that it replaced ◄─ before ┘
 *
 * The first write of a batch to a published leaf copies it. The copy refers to the original, which readers use until
 * the batch is published. Later writes of the batch change the copy in place. If only the identity of a prefix changes,
 * a published leaf is not copied ({@link ChangedValues}). A full leaf is split,
 * or gets more slots. If the two halves of a split become
 * sparse, they are merged, so that memory is bounded by the number of prefixes and does not grow with changes.
 */
export class PrefixLeaves {
  readonly #heap: SharedHeap;
  readonly #changed: ChangedValues;
  readonly #family: Family;
  readonly #stride: number;
  readonly #seed: number;
  /** Header word with the position of the directory. */
  readonly #root: number;
  #directory: number;
  #bits = 0;
  #leaves = 1;
  #size = 0;
  #stamp = 0;
  /** The leaves of the running batch, or of the last one. */
  readonly #stamped = new NumberList();
  /** Number of leaves created so far. */
  #created = 0;
  /** The hash of the last search, and the reference to its leaf. */
  #hash = 0;
  #foundLeaf = 0;

  constructor(heap: SharedHeap, changed: ChangedValues, family: Family, seed: number, root: number) {
    this.#heap = heap;
    this.#changed = changed;
    this.#family = family;
    this.#stride = slotWords(family);
    this.#seed = seed;
    this.#root = root;
    const leaf = heap.allocate(leafWords(family, 0));
    this.#directory = heap.allocate(2);
    heap.words[this.#directory + 1] = leaf;
    heap.words[root] = this.#directory;
  }

  get size(): number {
    return this.#size;
  }

  /** Number of leaves created so far by copies, splits, merges and changes of size. */
  get created(): number {
    return this.#created;
  }

  /** Starts a batch. Deletes the stamps of the previous one, because later batches use the same stamps again. */
  begin(batch: number): void {
    const { words } = this.#heap;
    for (let i = 0; i < this.#stamped.length; i++) words[this.#stamped.at(i) + LEAF.stamp] = 0;
    this.#stamped.clear();
    this.#stamp = stampOf(batch);
  }

  /**
   * Sets the value of a prefix. Returns the previous peer, or {@link ADDED} if the prefix is new. Returns {@link FULL},
   * and changes nothing, if the prefix is new, its leaf is full and the heap has no room for another.
   */
  set(key: Readonly<PrefixRegister>, identity: number, peer: number): number {
    let slot = this.#find(key);
    const [reference, hash] = [this.#foundLeaf, this.#hash];
    if (slot === 0 && this.#isFull(reference) && !this.#mayGrow(reference)) return FULL;
    let previous = ADDED;
    if (slot === 0) slot = this.#addSlot(this.#withRoom(reference, hash), key, hash);
    else {
      slot += leafOf(this.#writable(reference, hash)) - leafOf(reference);
      previous = peerOf(this.#heap.words[slot + SLOT.meta] ?? 0);
    }
    const { words } = this.#heap;
    words[slot + SLOT.meta] = metaOf(key.length, peer);
    words[slot + SLOT.identity] = identity;
    return previous;
  }

  /** Changes the identity of a prefix, if possible in place. Returns false if the table does not contain it. */
  setIdentity(key: Readonly<PrefixRegister>, identity: number): boolean {
    const found = this.#find(key);
    if (found === 0) return false;
    const [reference, hash] = [this.#foundLeaf, this.#hash];
    // If the batch has written no leaf, the header need not be read, which may be a cache miss.
    const isOfBatch =
      this.#stamped.length > 0 && this.#heap.words[leafOf(reference) + LEAF.stamp] === this.#stamp;
    if (!isOfBatch && this.#changed.change(found, identity)) return true;
    const slot = found + leafOf(this.#writable(reference, hash)) - leafOf(reference);
    this.#heap.words[slot + SLOT.identity] = identity;
    return true;
  }

  /** Removes a prefix. Returns its peer, or -1 if it is missing. Without `mayMerge`, no leaves are merged. */
  remove(key: Readonly<PrefixRegister>, mayMerge: boolean): number {
    const found = this.#find(key);
    if (found === 0) return -1;
    const [reference, hash] = [this.#foundLeaf, this.#hash];
    const writable = this.#writable(reference, hash);
    const { words } = this.#heap;
    const slot = found + leafOf(writable) - leafOf(reference);
    const peer = peerOf(words[slot + SLOT.meta] ?? 0);
    this.#clearSlot(writable, slot);
    words[leafOf(writable) + LEAF.shape] = (words[leafOf(writable) + LEAF.shape] ?? 0) - 1;
    this.#size--;
    if (mayMerge) this.#mergeSparse(writable, hash);
    return peer;
  }

  /** Returns the position of the slot of a prefix; 0 if the table does not contain it. */
  #find(key: Readonly<PrefixRegister>): number {
    this.#hash = seededPrefixHash(this.#seed, this.#family, key, key.length);
    this.#foundLeaf = leafAt(this.#heap.words, this.#directory, this.#hash);
    return findSlot(this.#heap.words, this.#foundLeaf, key, key.length, this.#hash);
  }

  /** Empties a slot. A later prefix moves into the gap unless its home slot lies between the gap and its own slot. */
  #clearSlot(reference: number, slot: number): void {
    const { words } = this.#heap;
    const capacity = capacityOf(sizeClassOf(reference));
    const first = leafOf(reference) + LEAF.slots;
    const end = first + capacity * this.#stride;
    const after = (at: number): number => (at + this.#stride === end ? first : at + this.#stride);
    let gap = slot;
    for (let at = after(gap); at !== slot && words[at + SLOT.meta] !== 0; at = after(at)) {
      const home = first + homeOf(this.#hashAt(at), capacity) * this.#stride;
      const size = end - first;
      const fromHome = (at - home + size) % size;
      if (fromHome < (at - gap + size) % size) continue;
      words.copyWithin(gap, at, at + this.#stride);
      gap = at;
    }
    words[gap + SLOT.meta] = 0;
  }

  /** Returns a leaf of this batch with the same content in the same slots: `reference` itself, or a copy of it. */
  #writable(reference: number, hash: number): number {
    const { words } = this.#heap;
    const leaf = leafOf(reference);
    if (words[leaf + LEAF.stamp] === this.#stamp) return reference;
    const copy = this.#newLeaf(reference, sizeClassOf(reference));
    const size = leafWords(this.#family, sizeClassOf(reference));
    // The heap may have grown.
    this.#heap.words[leafOf(copy) + LEAF.shape] = words[leaf + LEAF.shape] ?? 0;
    this.#heap.words.copyWithin(leafOf(copy) + LEAF.slots, leaf + LEAF.slots, leaf + size);
    for (let slot = leaf + LEAF.slots; slot < leaf + size; slot += this.#stride)
      if (isMarked(this.#heap.words, slot)) this.#changed.moveToCopy(slot, slot + leafOf(copy) - leaf);
    this.#replace(reference, copy, hash);
    return copy;
  }

  /** Returns a leaf of this batch with room for one more prefix of this hash. */
  #withRoom(full: number, hash: number): number {
    let reference = full;
    while (this.#isFull(reference)) {
      reference = this.#canSplit(reference)
        ? this.#split(reference, hash)
        : this.#resize(reference, hash, sizeClassOf(reference) + 1);
    }
    return this.#writable(reference, hash);
  }

  /** Fills the tag and the address of an empty slot, and returns it. */
  #addSlot(reference: number, key: Readonly<PrefixRegister>, hash: number): number {
    const { words } = this.#heap;
    const slot = this.#findEmptySlot(reference, hash);
    words[slot + SLOT.tag] = this.#family === 4 ? key.w0 : key.w3;
    if (this.#family === 6) {
      words[slot + SLOT.w0] = key.w0;
      words[slot + SLOT.w1] = key.w1;
      words[slot + SLOT.w2] = key.w2;
    }
    words[leafOf(reference) + LEAF.shape] = (words[leafOf(reference) + LEAF.shape] ?? 0) + 1;
    this.#size++;
    return slot;
  }

  /** Returns the first empty slot for a hash in a leaf with room. */
  #findEmptySlot(reference: number, hash: number): number {
    const { words } = this.#heap;
    const capacity = capacityOf(sizeClassOf(reference));
    const first = leafOf(reference) + LEAF.slots;
    let index = homeOf(hash, capacity);
    while (words[first + index * this.#stride + SLOT.meta] !== 0)
      index = index + 1 === capacity ? 0 : index + 1;
    return first + index * this.#stride;
  }

  /** Returns an empty leaf of this batch, which replaces another. Its shape is undefined. */
  #newLeaf(replaced: number, sizeClass: number): number {
    const leaf = this.#heap.allocate(leafWords(this.#family, sizeClass));
    const { words } = this.#heap;
    const from = leafOf(replaced);
    const isOfBatch = words[from + LEAF.stamp] === this.#stamp;
    words[leaf + LEAF.stamp] = this.#stamp;
    words[leaf + LEAF.before] = isOfBatch ? (words[from + LEAF.before] ?? 0) : replaced;
    words[leaf + LEAF.beforeHigh] = isOfBatch ? (words[from + LEAF.beforeHigh] ?? 0) : replaced;
    this.#stamped.push(leaf);
    this.#created++;
    return leaf | sizeClass;
  }

  /** Installs a leaf in the place of another, which is released. */
  #replace(old: number, replacement: number, hash: number): void {
    const depth = depthOf(this.#heap.words, replacement);
    this.#install(replacement, partOf(hash, depth), depth);
    this.#release(old);
  }

  /** Writes a reference to a part of the directory, atomically, so that readers of it see the header of the leaf. */
  #install(reference: number, part: number, depth: number): void {
    const { words } = this.#heap;
    const copies = 1 << (this.#bits - depth);
    const first = this.#directory + 1 + part * copies;
    for (let at = first; at < first + copies; at++) Atomics.store(words, at, reference);
  }

  #canSplit(reference: number): boolean {
    if (sizeClassOf(reference) === MAX_SIZE_CLASS) return true;
    return (
      depthOf(this.#heap.words, reference) < this.#bits ||
      1 << this.#bits < REFERENCES_PER_LEAF * this.#leaves
    );
  }

  /** Divides the prefixes of a leaf by the next bit of their hashes. Returns the leaf of `hash`. */
  #split(reference: number, hash: number): number {
    const depth = depthOf(this.#heap.words, reference);
    if (depth === this.#bits) this.#double();
    const low = this.#emptyLeaf(reference, depth + 1, sizeClassOf(reference));
    const high = this.#emptyLeaf(reference, depth + 1, sizeClassOf(reference));
    const { words } = this.#heap;
    // If this batch created the leaf by a merge, each half gets the merged leaf with the same prefixes.
    words[leafOf(low) + LEAF.beforeHigh] = words[leafOf(low) + LEAF.before] ?? 0;
    words[leafOf(high) + LEAF.before] = words[leafOf(high) + LEAF.beforeHigh] ?? 0;
    this.#moveAll(reference, low, high);
    const part = partOf(hash, depth);
    this.#install(low, 2 * part, depth + 1);
    this.#install(high, 2 * part + 1, depth + 1);
    this.#release(reference);
    this.#leaves++;
    return (partOf(hash, depth + 1) & 1) === 0 ? low : high;
  }

  /** Moves the prefixes of a leaf into one of another size class. */
  #resize(reference: number, hash: number, sizeClass: number): number {
    const resized = this.#emptyLeaf(reference, depthOf(this.#heap.words, reference), sizeClass);
    this.#moveAll(reference, resized, resized);
    this.#replace(reference, resized, hash);
    return resized;
  }

  /** Moves a large sparse leaf to half as many slots, or merges a small one with its sibling, as often as possible. */
  #mergeSparse(sparse: number, hash: number): void {
    for (let reference = sparse; reference !== 0; ) {
      const { words } = this.#heap;
      const count = countOf(words, reference);
      const sizeClass = sizeClassOf(reference);
      if (sizeClass > 0 && 4 * count <= capacityOf(sizeClass))
        reference = this.#resize(reference, hash, sizeClass - 1);
      else reference = sizeClass === 0 && count <= SPARSE_PREFIXES ? this.#merge(reference, hash) : 0;
    }
  }

  /** Merges a leaf with the other half of a split. Returns the result; 0 if they are too full or merged before. */
  #merge(reference: number, hash: number): number {
    const { words } = this.#heap;
    const depth = depthOf(words, reference);
    if (depth === 0) return 0;
    const part = partOf(hash, depth);
    const sibling = words[this.#directory + 1 + ((part ^ 1) << (this.#bits - depth))] ?? 0;
    const count = countOf(words, reference) + countOf(words, sibling);
    if (sizeClassOf(sibling) > 0 || depthOf(words, sibling) !== depth || count > MERGED_PREFIXES) return 0;
    const [low, high] = (part & 1) === 0 ? [reference, sibling] : [sibling, reference];
    const [beforeLow, beforeHigh] = [this.#publishedOf(low), this.#publishedOf(high)];
    if (beforeLow === 0 || beforeHigh === 0) return 0;
    const merged = this.#emptyLeaf(low, depth - 1, 0);
    this.#heap.words[leafOf(merged) + LEAF.before] = beforeLow;
    this.#heap.words[leafOf(merged) + LEAF.beforeHigh] = beforeHigh;
    this.#moveAll(low, merged, merged);
    this.#moveAll(high, merged, merged);
    this.#install(merged, part >>> 1, depth - 1);
    this.#release(low);
    this.#release(high);
    this.#leaves--;
    return merged;
  }

  /** Returns the published leaf that had the prefixes of this leaf before the batch; 0 if it is the merge of two. */
  #publishedOf(reference: number): number {
    const { words } = this.#heap;
    const leaf = leafOf(reference);
    if (words[leaf + LEAF.stamp] !== this.#stamp) return reference;
    const before = words[leaf + LEAF.before] ?? 0;
    return before === words[leaf + LEAF.beforeHigh] ? before : 0;
  }

  #emptyLeaf(replaced: number, depth: number, sizeClass: number): number {
    const created = this.#newLeaf(replaced, sizeClass);
    const leaf = leafOf(created);
    this.#heap.words.fill(0, leaf + LEAF.slots, leaf + leafWords(this.#family, sizeClass));
    this.#heap.words[leaf + LEAF.shape] = shapeOf(depth, 0);
    return created;
  }

  /** Moves the prefixes of a leaf into two others of the same depth, by the last bit of their part. */
  #moveAll(from: number, low: number, high: number): void {
    const { words } = this.#heap;
    const depth = depthOf(words, low);
    const first = leafOf(from) + LEAF.slots;
    const end = first + capacityOf(sizeClassOf(from)) * this.#stride;
    for (let slot = first; slot < end; slot += this.#stride) {
      if (words[slot + SLOT.meta] === 0) continue;
      const hash = this.#hashAt(slot);
      const into = (partOf(hash, depth) & 1) === 0 ? low : high;
      const copy = this.#findEmptySlot(into, hash);
      words.copyWithin(copy, slot, slot + this.#stride);
      if (isMarked(words, slot)) this.#changed.moveToCopy(slot, copy);
      words[leafOf(into) + LEAF.shape] = (words[leafOf(into) + LEAF.shape] ?? 0) + 1;
    }
  }

  #hashAt(slot: number): number {
    const { words } = this.#heap;
    const tag = words[slot + SLOT.tag] ?? 0;
    const isWide = this.#family === 6;
    moved.w0 = isWide ? (words[slot + SLOT.w0] ?? 0) : tag;
    moved.w1 = isWide ? (words[slot + SLOT.w1] ?? 0) : 0;
    moved.w2 = isWide ? (words[slot + SLOT.w2] ?? 0) : 0;
    moved.w3 = isWide ? tag : 0;
    return seededPrefixHash(this.#seed, this.#family, moved, lengthOf(words[slot + SLOT.meta] ?? 0));
  }

  /** Doubles the directory. Takes about a millisecond for each million leaves. */
  #double(): void {
    const old = this.#directory;
    const count = 1 << this.#bits;
    const doubled = this.#heap.allocate(1 + 2 * count);
    const { words } = this.#heap;
    words[doubled] = this.#bits + 1;
    for (let i = 0; i < count; i++) {
      const reference = words[old + 1 + i] ?? 0;
      words[doubled + 1 + 2 * i] = reference;
      words[doubled + 2 + 2 * i] = reference;
    }
    this.#directory = doubled;
    this.#bits++;
    Atomics.store(words, this.#root, doubled);
    this.#heap.release(old, 1 + count);
  }

  #release(reference: number): void {
    this.#heap.release(leafOf(reference), leafWords(this.#family, sizeClassOf(reference)));
  }

  /** Returns true if the heap has room for the leaf that a full one needs. */
  #mayGrow(reference: number): boolean {
    const sizeClass = sizeClassOf(reference) + (this.#canSplit(reference) ? 0 : 1);
    return this.#heap.hasRoom(leafWords(this.#family, sizeClass));
  }

  #isFull(reference: number): boolean {
    return countOf(this.#heap.words, reference) === capacityOf(sizeClassOf(reference));
  }
}
