import type { Family } from '../net/address-words.ts';
import type { KeyForm, PrefixRegister } from '../net/prefix.ts';
import type { PrefixBlock } from '../net/prefix-block.ts';

/**
 * A set of keys. A key is a prefix, a form (`endpoint` or `cidr`) and an address space. Every key has a *slot*, a small
 * number by which the owner of the table indexes its data. Slots of removed keys are reused, last in, first out. A slot
 * is always below `slotLimit`.
 *
 * Callers must pass canonical keys, as `parsePrefix` returns them. The table does not check this.
 */
export interface PrefixTable {
  /** Number of keys. */
  readonly size: number;
  /** One more than the highest slot ever allocated. */
  readonly slotLimit: number;
  /** Memory of the table in bytes, without the owner's data. */
  readonly bytes: number;
  /** Returns the slot of exactly this key, or -1. */
  find(key: Readonly<PrefixRegister>): number;
  /**
   * Reads the memory that `find` and `longestMatch` need for the first `count` keys of a block, so that cache misses
   * overlap.
   */
  prefetch(block: PrefixBlock, count: number): void;
  /** Adds a key and returns its slot. The caller has checked with `find` that the table does not contain the key. */
  insert(key: Readonly<PrefixRegister>): number;
  /** Removes a key. `slot` must be its slot. */
  remove(slot: number, key: Readonly<PrefixRegister>): void;
  /** Reads the key of a slot in use into `out`. */
  keyOf(slot: number, out: PrefixRegister): void;
  /**
   * Returns the slot of the longest key that contains an address, or -1. `key` is the address, as an endpoint. It is
   * overwritten with the found key; if no key was found, its content is unspecified. An endpoint is longer than its
   * full-length CIDR (I4, I6). Only keys of the same address space match.
   */
  longestMatch(key: PrefixRegister): number;
  /**
   * Yields every slot in use, ascending. Keys may be added and removed during the iteration. The slot of a key that
   * exists during the whole iteration is yielded exactly once; other slots once or not at all.
   * `isPageWanted` is called with the first slot of each page (`PAGE_ROWS` slots); if it returns false, the page is
   * skipped.
   */
  slots(isPageWanted?: (firstSlot: number) => boolean): Generator<number, void, void>;
  /**
   * Yields the slots of the keys in the address space of `prefix` that `prefix` contains, unordered. The cost is linear
   * in their number; a few other keys are read and skipped. Keys must not be added or removed during the iteration.
   */
  covered(prefix: Readonly<PrefixRegister>): Generator<number, void, void>;
  /** Returns a table with the same keys in the same slots. Later writes to one do not affect the other. */
  fork(): PrefixTable;
  /** Returns the number of keys with this family, length and form in all address spaces. */
  countOf(family: Family, length: number, form: KeyForm): number;
}
