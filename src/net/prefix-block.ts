import type { PrefixRegister } from './prefix.ts';

/** Maximum number of keys in a block: as many as a batch of events has, and few enough for the L1 cache. */
export const BLOCK_KEYS = 256;

// The shape of a key has its length in the lowest eight bits, then two flags, then the id of its address space.
const ENDPOINT = 256;
const IPV6 = 512;
const SPACE_SHIFT = 10;
/** The shape if there is no key. */
const NONE = -1;

/**
 * Up to {@link BLOCK_KEYS} keys in columns. Bulk operations work in short loops: they parse all keys into a block,
 * `PrefixTable.prefetch` reads the memory of all of them, then each key is processed. If the loop only reads memory,
 * many cache misses overlap; if it also parses, they do not.
 */
export class PrefixBlock {
  /** The address of each key, four words. */
  readonly #words = new Int32Array(4 * BLOCK_KEYS);
  /** Length, form, family and address space of each key; {@link NONE} if there is no key. */
  readonly #shapes: Int32Array = new Int32Array(BLOCK_KEYS).fill(NONE);

  /** Stores a key at an index; `undefined` for no key. */
  set(at: number, key: Readonly<PrefixRegister> | undefined): void {
    if (key === undefined) {
      this.#shapes[at] = NONE;
      return;
    }
    this.#shapes[at] =
      key.length |
      (key.form === 'endpoint' ? ENDPOINT : 0) |
      (key.family === 6 ? IPV6 : 0) |
      (key.clusterID << SPACE_SHIFT);
    this.#words[4 * at] = key.w0;
    this.#words[4 * at + 1] = key.w1;
    this.#words[4 * at + 2] = key.w2;
    this.#words[4 * at + 3] = key.w3;
  }

  /**
   * Returns true if fewer than half of the first `count` keys follow a neighbour (a key of the same /24, or IPv6 /64).
   * Neighbours are close in memory, so prefetching does not pay for them.
   */
  isScattered(count: number): boolean {
    let neighbours = 0;
    for (let at = 1; at < count; at++) {
      const difference = (this.#words[4 * at] ?? 0) ^ (this.#words[4 * at - 4] ?? 0);
      const isIPv6 = ((this.#shapes[at] ?? 0) & IPV6) !== 0;
      const isNeighbour = isIPv6
        ? difference === 0 && this.#words[4 * at + 1] === this.#words[4 * at - 3]
        : difference >>> 8 === 0;
      if (isNeighbour) neighbours++;
    }
    return 2 * neighbours < count;
  }

  /** Reads the key at an index into `out`. Returns false, and does not change `out`, if there is none. */
  get(at: number, out: PrefixRegister): boolean {
    const shape = this.#shapes[at] ?? NONE;
    if (shape === NONE) return false;
    out.length = shape & (ENDPOINT - 1);
    out.form = (shape & ENDPOINT) === 0 ? 'cidr' : 'endpoint';
    out.family = (shape & IPV6) === 0 ? 4 : 6;
    out.clusterID = shape >>> SPACE_SHIFT;
    out.w0 = this.#words[4 * at] ?? 0;
    out.w1 = this.#words[4 * at + 1] ?? 0;
    out.w2 = this.#words[4 * at + 2] ?? 0;
    out.w3 = this.#words[4 * at + 3] ?? 0;
    return true;
  }
}
