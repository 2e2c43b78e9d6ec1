import { GOLDEN } from './mix.ts';

// A bucket is a key followed by its value, so that a lookup touches one cache line. Value 0 marks an empty bucket.
const EMPTY = 0;
/** Marks a bucket of the old table whose key was removed. Probes continue after it. */
const REMOVED = -1;
const FIRST_BITS = 4;
/**
 * Load factor at which the table grows. A lookup of an absent key takes one or two probes; an entry takes 16 to 32
 * bytes.
 */
const FULL = 0.5;
/** Buckets moved per insertion while the table grows. The move ends long before the next growth. */
const STEP = 4;

/** Open addressing with linear probes over 2^bits buckets. */
class Buckets {
  readonly mask: number;
  readonly words: Int32Array;
  readonly #shift: number;

  constructor(bits: number, words: Int32Array = new Int32Array(2 << bits)) {
    this.mask = (1 << bits) - 1;
    this.#shift = 32 - bits;
    this.words = words;
  }

  copy(): Buckets {
    return new Buckets(32 - this.#shift, this.words.slice());
  }

  /** Returns the preferred bucket of a key. */
  home(key: number): number {
    return Math.imul(key, GOLDEN) >>> this.#shift;
  }

  /** Returns the bucket of a key. If the key is absent, returns the empty bucket for it. */
  find(key: number): number {
    const { words, mask } = this;
    for (let at = this.home(key); ; at = (at + 1) & mask) {
      const value = words[2 * at + 1] ?? EMPTY;
      if (value === EMPTY || (words[2 * at] === key && value !== REMOVED)) return at;
    }
  }

  valueAt(at: number): number {
    return this.words[2 * at + 1] ?? EMPTY;
  }

  put(at: number, key: number, value: number): void {
    this.words[2 * at] = key;
    this.words[2 * at + 1] = value;
  }

  /** Yields the keys of the buckets from `first` on. */
  *keys(first: number): Generator<number, void, void> {
    for (let at = first; at <= this.mask; at++) {
      const value = this.valueAt(at);
      if (value !== EMPTY && value !== REMOVED) yield this.words[2 * at] ?? 0;
    }
  }

  /**
   * Empties a bucket and closes the gap: a later key of the run moves into the gap unless its home is after the gap.
   */
  close(at: number): void {
    let gap = at;
    for (let next = (gap + 1) & this.mask; this.valueAt(next) !== EMPTY; next = (next + 1) & this.mask) {
      const key = this.words[2 * next] ?? 0;
      const fromHome = (next - this.home(key)) & this.mask;
      if (fromHome < ((next - gap) & this.mask)) continue;
      this.put(gap, key, this.valueAt(next));
      gap = next;
    }
    this.put(gap, 0, EMPTY);
  }
}

/**
 * A map from 32-bit integers to positive integers; 0 means "none". It grows in small steps. During growth, a lookup
 * reads the new table first, then the part of the old table not moved yet.
 *
 *     old   [ moved ······ ▲ not moved ]        new   [ moved keys, and keys added since ]
 *                          └ #next, advances with every insertion
 */
export class Int32Map {
  #bits: number = FIRST_BITS;
  #buckets: Buckets = new Buckets(FIRST_BITS);
  /** The former table while its keys are moved. Its buckets before `#next` were moved. */
  #old: Buckets | undefined;
  #next = 0;
  #size = 0;
  /** True if a fork has the same buckets, which must be copied before a write. */
  #shared = false;

  get size(): number {
    return this.#size;
  }

  /** Memory in bytes. */
  get bytes(): number {
    return this.#buckets.words.byteLength + (this.#old?.words.byteLength ?? 0);
  }

  /** Yields all keys, unordered. The map must not be written during the iteration. */
  *keys(): Generator<number, void, void> {
    yield* this.#buckets.keys(0);
    if (this.#old !== undefined) yield* this.#old.keys(this.#next);
  }

  /** Returns a map with the same content. O(1); the next write to either map copies its buckets once. */
  fork(): Int32Map {
    const fork = new Int32Map();
    fork.#bits = this.#bits;
    fork.#buckets = this.#buckets;
    fork.#old = this.#old;
    fork.#next = this.#next;
    fork.#size = this.#size;
    fork.#shared = true;
    this.#shared = true;
    return fork;
  }

  /** Returns the value of a key, or 0 if it has none. O(1). */
  get(key: number): number {
    const value = this.#buckets.valueAt(this.#buckets.find(key));
    return value !== EMPTY || this.#old === undefined ? value : this.#getOld(this.#old, key);
  }

  /**
   * Sets the value of a key and returns the previous value; 0 removes the key. O(1), except for the first write after a
   * fork.
   */
  exchange(key: number, value: number): number {
    if (this.#shared) this.#unshare();
    const at = this.#buckets.find(key);
    const previous = this.#buckets.valueAt(at);
    if (previous === EMPTY) return this.#exchangeAbsent(at, key, value);
    if (value !== EMPTY) {
      this.#buckets.words[2 * at + 1] = value;
    } else {
      this.#buckets.close(at);
      this.#size--;
    }
    return previous;
  }

  #unshare(): void {
    this.#shared = false;
    this.#buckets = this.#buckets.copy();
    this.#old = this.#old?.copy();
  }

  /** Sets the value of a key missing from the new table; `at` is its bucket there. */
  #exchangeAbsent(at: number, key: number, value: number): number {
    const previous = this.#old === undefined ? EMPTY : this.#removeOld(this.#old, key);
    this.#size += (value === EMPTY ? 0 : 1) - (previous === EMPTY ? 0 : 1);
    if (value === EMPTY) return previous;
    this.#buckets.put(at, key, value);
    if (this.#old !== undefined) this.#move(this.#old);
    else if (this.#size > FULL * (this.#buckets.mask + 1)) this.#grow();
    return previous;
  }

  /**
   * Returns the value of a key in the part of the old table not moved yet. A moved key which is not in the new
   * table was deleted.
   */
  #getOld(old: Buckets, key: number): number {
    const at = old.find(key);
    return at < this.#next ? EMPTY : old.valueAt(at);
  }

  #removeOld(old: Buckets, key: number): number {
    const previous = this.#getOld(old, key);
    if (previous !== EMPTY) old.put(old.find(key), key, REMOVED);
    return previous;
  }

  #grow(): void {
    this.#old = this.#buckets;
    this.#next = 0;
    this.#bits++;
    this.#buckets = new Buckets(this.#bits);
  }

  /** Moves the keys of the next buckets of the old table. */
  #move(old: Buckets): void {
    const end = Math.min(this.#next + STEP, old.mask + 1);
    for (; this.#next < end; this.#next++) {
      const value = old.valueAt(this.#next);
      if (value === EMPTY || value === REMOVED) continue;
      const key = old.words[2 * this.#next] ?? 0;
      this.#buckets.put(this.#buckets.find(key), key, value);
    }
    if (this.#next > old.mask) this.#old = undefined;
  }
}
