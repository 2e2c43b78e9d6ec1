// A bucket is a key and its value, side by side: one look touches one cache line. Value 0 means that it is empty.
const EMPTY = 0;
/** What a bucket of the table that is being left holds once its key has been removed: probes go on behind it. */
const REMOVED = -1;
const FIRST_BITS = 4;
/** Grown when half of the buckets are taken: to find that a key is not there takes a probe or two; 16 to 32 bytes an entry. */
const FULL = 0.5;
/** Buckets moved with every addition while it grows: it is through long before it has to grow again. */
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

  /** Where a key would best be. */
  home(key: number): number {
    return Math.imul(key, 0x9e37_79b1) >>> this.#shift; // 2^32 divided by the golden ratio: spreads runs evenly
  }

  /** The bucket of a key, or the empty one where it could go. */
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

  /** Empties a bucket and closes the gap: keys behind it that could not be nearer to their home move up. */
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
 * A map from 32-bit integers to positive ones, 0 standing for "none". Grows in small steps: while it does, keys are
 * looked for in the new table, then in what has not yet been moved of the old one.
 *
 *     old   [ moved ······ ▲ not yet moved ]        new   [ moved, and all that was added since ]
 *                          └ #next, a few buckets on with every addition
 */
export class Int32Map {
  #bits: number = FIRST_BITS;
  #buckets: Buckets = new Buckets(FIRST_BITS);
  #old: Buckets | undefined;
  #next = 0;
  #size = 0;
  /** Whether a fork has the same buckets: they are copied before they are written. */
  #shared = false;

  get size(): number {
    return this.#size;
  }

  /** Bytes held. */
  get bytes(): number {
    return this.#buckets.words.byteLength + (this.#old?.words.byteLength ?? 0);
  }

  /** A map with the same content. O(1); the next write to either copies its buckets once. */
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

  /** The value of a key, 0 when it has none. O(1). */
  get(key: number): number {
    const value = this.#buckets.valueAt(this.#buckets.find(key));
    return value !== EMPTY || this.#old === undefined ? value : this.#getOld(this.#old, key);
  }

  /** Sets the value of a key (0: none from now on) and gives the one before. O(1) but for what a fork costs. */
  exchange(key: number, value: number): number {
    if (this.#shared) this.#unshare();
    const at = this.#buckets.find(key);
    const before = this.#buckets.valueAt(at);
    if (before === EMPTY) return this.#exchangeAbsent(at, key, value);
    if (value !== EMPTY) {
      this.#buckets.words[2 * at + 1] = value;
    } else {
      this.#buckets.close(at);
      this.#size--;
    }
    return before;
  }

  #unshare(): void {
    this.#shared = false;
    this.#buckets = this.#buckets.copy();
    this.#old = this.#old?.copy();
  }

  /** The key is not in the new table, where bucket `at` would take it. */
  #exchangeAbsent(at: number, key: number, value: number): number {
    const before = this.#old === undefined ? EMPTY : this.#removeOld(this.#old, key);
    this.#size += (value === EMPTY ? 0 : 1) - (before === EMPTY ? 0 : 1);
    if (value === EMPTY) return before;
    this.#buckets.put(at, key, value);
    if (this.#old !== undefined) this.#move(this.#old);
    else if (this.#size > FULL * (this.#buckets.mask + 1)) this.#grow();
    return before;
  }

  /** Looks in what has not yet been moved: what has, and is not in the new table, is gone. */
  #getOld(old: Buckets, key: number): number {
    const at = old.find(key);
    return at < this.#next ? EMPTY : old.valueAt(at);
  }

  #removeOld(old: Buckets, key: number): number {
    const before = this.#getOld(old, key);
    if (before !== EMPTY) old.put(old.find(key), key, REMOVED);
    return before;
  }

  #grow(): void {
    this.#old = this.#buckets;
    this.#next = 0;
    this.#bits++;
    this.#buckets = new Buckets(this.#bits);
  }

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
