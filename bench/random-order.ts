/**
 * A fixed random order of the numbers 0 to size − 1, computed number by number: a permutation of the next power
 * of two, repeated until the number is below size. Uses no memory; two seeds result in two unrelated orders.
 */
export class RandomOrder {
  readonly size: number;
  readonly #bits: number;
  readonly #mask: number;
  readonly #seed: number;

  /** `size` is at most 2^30. */
  constructor(size: number, seed: number) {
    this.size = size;
    this.#bits = Math.max(2, Math.ceil(Math.log2(Math.max(2, size))));
    this.#mask = 2 ** this.#bits - 1;
    this.#seed = seed;
  }

  /** Returns the number at position `index` of the order. */
  at(index: number): number {
    let value = index;
    do value = this.#permute(value);
    while (value >= this.size);
    return value;
  }

  /** Invertible steps: a multiplication by an odd number, and a xor with a shift. */
  #permute(value: number): number {
    const half = this.#bits >>> 1;
    for (let round = 1; round <= 4; round++) {
      value = (Math.imul(value, 0x9e37_79b1) + Math.imul(this.#seed, round)) & this.#mask;
      value ^= value >>> half;
    }
    return value;
  }
}

/** A stream of unsigned 32-bit numbers that is the same in every run (Tommy Ettinger's mulberry32). */
export function randomWords(seed: number): () => number {
  let state = seed | 0;
  return () => {
    state = (state + 0x6d2b_79f5) | 0;
    let word = Math.imul(state ^ (state >>> 15), 1 | state);
    word = (word + Math.imul(word ^ (word >>> 7), 61 | word)) ^ word;
    return (word ^ (word >>> 14)) >>> 0;
  };
}
