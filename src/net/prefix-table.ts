import type { Family } from './address-words.ts';
import type { KeyForm, PrefixRegister } from './prefix.ts';
import type { PrefixBlock } from './prefix-block.ts';

/**
 * A set of keys, each a prefix in a form (`endpoint` or `cidr`), that gives every key a *slot*: a small number
 * under which the owner keeps what belongs to it. Slots of removed keys are used again, the last one freed
 * first; a slot is below `slotLimit` at all times.
 *
 * Callers give canonical keys, as `parsePrefix` makes them; this is not checked again.
 */
export interface PrefixTable {
  /** How many keys it holds. */
  readonly size: number;
  /** One more than the highest slot ever given out. */
  readonly slotLimit: number;
  /** Bytes held, as far as the table knows. */
  readonly bytes: number;
  /** The slot of exactly this key, or -1. */
  find(key: Readonly<PrefixRegister>): number;
  /**
   * Reads ahead what `find` and `longestMatch` of the first `count` keys of a block will read, so that they need not wait
   * for one after the other. Changes nothing.
   */
  warm(block: PrefixBlock, count: number): void;
  /** Adds a key that is not there (the caller has asked `find`) and gives its slot. */
  insert(key: Readonly<PrefixRegister>): number;
  /** Removes a slot in use; `key` is its key, which the caller knows. */
  remove(slot: number, key: Readonly<PrefixRegister>): void;
  /** Writes the key of a slot in use to `out`. */
  keyOf(slot: number, out: PrefixRegister): void;
  /**
   * The slot of the longest key that contains an address, or -1. `key` is the address, as an endpoint, and becomes
   * the key that was found (something undefined if there is none). An endpoint counts as longer than the full-length CIDR over the same address (I4, I6).
   */
  longestMatch(key: PrefixRegister): number;
  /**
   * Every slot in use, ascending. Keys may be added and removed meanwhile: each key that is there all the time
   * comes exactly once, others come once or not at all. With `isWanted` only those of pages (`PAGE_ROWS` slots)
   * for which it holds; it is asked for the first slot of each.
   */
  slots(isWanted?: (slot: number) => boolean): Generator<number, void, void>;
  /**
   * The slots of the keys whose addresses all lie in `prefix`, in no order. Costs a look at each of them and at some
   * neighbours. Keys must not be added or removed meanwhile.
   */
  covered(prefix: Readonly<PrefixRegister>): Generator<number, void, void>;
  /** The same keys in the same slots. Writes to either do not show in the other. */
  fork(): PrefixTable;
  /** How many keys have this family, length and form. */
  countOf(family: Family, length: number, form: KeyForm): number;
}
