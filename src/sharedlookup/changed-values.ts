import { CHANGED, changedTable, findChanged, HEADER, MARK, SLOT } from './layout.ts';
import { NumberList } from './number-list.ts';
import type { SharedHeap } from './shared-memory.ts';

/**
 * Changes identities in published leaves without copying the leaves. Only one writer may use it. A *pair* is the
 * position of a slot and its new identity, in the table of a batch ({@link CHANGED}).
 *
 *     batch n          the pair is added to the table of n, and the slot is marked
 *     start of n + 1   the new identity is written to the slot. Lookups of n use the table; those of n - 1 are invalid
 *     start of n + 2   the mark is deleted unless n + 1 has changed the slot again, and the table of n is emptied
 *
 * A word that a valid lookup uses therefore never changes its result, in whatever order the lookup reads the marks,
 * tables and slots.
 */
export class ChangedValues {
  readonly #heap: SharedHeap;
  /** Tables of the running batch and of the one before. */
  #table = 0;
  #tableBefore = 0;
  /** Positions of the pairs in these tables. */
  #pairs = new NumberList();
  #pairsBefore = new NumberList();
  /** XOR of the prefetched words. Storing it prevents the compiler from removing the reads. */
  #read = 0;
  /** For each pair of both tables: 1 if the leaf was copied after the change, so that its block may be reused. */
  readonly #isCopied = new Uint8Array(2 * CHANGED.words);

  constructor(heap: SharedHeap) {
    this.#heap = heap;
    const tables = heap.allocate(2 * CHANGED.words);
    heap.words.fill(0, tables, tables + 2 * CHANGED.words);
    heap.words[HEADER.changed] = tables;
  }

  /**
   * Starts a batch. Writes to leaves that the last two batches changed, so it must be called before any block becomes
   * free.
   */
  begin(batch: number): void {
    const { words } = this.#heap;
    const [emptied, pairs] = [this.#pairsBefore, this.#pairs];
    this.#tableBefore = this.#table;
    this.#table = changedTable(words[HEADER.changed] ?? 0, batch);
    this.#prefetch(emptied);
    for (let i = 0; i < emptied.length; i++) this.#deletePair(emptied.at(i));
    this.#prefetch(pairs);
    for (let i = 0; i < pairs.length; i++) {
      const pair = pairs.at(i);
      if (!this.#wasCopied(pair)) words[(words[pair] ?? 0) + SLOT.identity] = words[pair + 1] ?? 0;
    }
    emptied.clear();
    this.#pairs = emptied;
    this.#pairsBefore = pairs;
  }

  /** Changes the identity of a published slot. Returns false, without a change, if the table of the batch is full. */
  change(slot: number, identity: number): boolean {
    const { words } = this.#heap;
    const pair = findChanged(words, this.#table, slot);
    if (words[pair] !== slot) {
      if (this.#pairs.length === CHANGED.limit) return false;
      words[pair] = slot;
      this.#isCopied[pair - (words[HEADER.changed] ?? 0)] = 0;
      this.#pairs.push(pair);
      words[slot + SLOT.meta] = (words[slot + SLOT.meta] ?? 0) | MARK;
    }
    words[pair + 1] = identity;
    return true;
  }

  /** Writes the latest identity of a marked slot to the copy of the slot, and deletes the mark of the copy. */
  moveToCopy(slot: number, copy: number): void {
    const { words } = this.#heap;
    words[copy + SLOT.meta] = (words[copy + SLOT.meta] ?? 0) & ~MARK;
    const pair = findChanged(words, this.#table, slot);
    if (words[pair] !== slot) return;
    words[copy + SLOT.identity] = words[pair + 1] ?? 0;
    this.#isCopied[pair - (words[HEADER.changed] ?? 0)] = 1;
  }

  /** Reads the slots of pairs in a short loop, so that their cache misses overlap. */
  #prefetch(pairs: NumberList): void {
    const { words } = this.#heap;
    let read = 0;
    for (let i = 0; i < pairs.length; i++) read ^= words[(words[pairs.at(i)] ?? 0) + SLOT.meta] ?? 0;
    this.#read ^= read;
  }

  /** Deletes a pair, and the mark of its slot if no later pair needs it. */
  #deletePair(pair: number): void {
    const { words } = this.#heap;
    const slot = words[pair] ?? 0;
    const isChangedAgain = words[findChanged(words, this.#tableBefore, slot)] === slot;
    if (!isChangedAgain && !this.#wasCopied(pair))
      words[slot + SLOT.meta] = (words[slot + SLOT.meta] ?? 0) & ~MARK;
    words[pair] = 0;
  }

  #wasCopied(pair: number): boolean {
    return this.#isCopied[pair - (this.#heap.words[HEADER.changed] ?? 0)] === 1;
  }
}
