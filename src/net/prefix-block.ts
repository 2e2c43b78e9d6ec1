import type { PrefixRegister } from './prefix.ts';

/** Keys in a block: as many as a batch of events has, and few enough to stay in the nearest cache. */
export const BLOCK_KEYS = 256;

const ENDPOINT = 256;
const IPV6 = 512;
const NONE = -1;

/**
 * Up to {@link BLOCK_KEYS} keys side by side. Work on many keys goes over them in short loops: all are parsed into a block,
 * `PrefixTable.warm` reads ahead for all of them, then each is worked on. A loop in which no step waits for the memory of
 * the one before has many reads under way at once; one that parses in between has not.
 */
export class PrefixBlock {
  readonly #words = new Int32Array(4 * BLOCK_KEYS);
  /** Length, form and family; {@link NONE} where there is no key. */
  readonly #shapes: Int16Array = new Int16Array(BLOCK_KEYS).fill(NONE);

  /** Puts a key in a place, or `undefined` for none. */
  set(at: number, key: Readonly<PrefixRegister> | undefined): void {
    if (key === undefined) {
      this.#shapes[at] = NONE;
      return;
    }
    this.#shapes[at] = key.length | (key.form === 'endpoint' ? ENDPOINT : 0) | (key.family === 6 ? IPV6 : 0);
    this.#words[4 * at] = key.w0;
    this.#words[4 * at + 1] = key.w1;
    this.#words[4 * at + 2] = key.w2;
    this.#words[4 * at + 3] = key.w3;
  }

  /**
   * Whether fewer than half of the first `count` keys follow a neighbour (one of the same /24, or IPv6 /64). Neighbours lie
   * together in memory: it does not pay to read ahead for them.
   */
  isScattered(count: number): boolean {
    let neighbours = 0;
    for (let at = 1; at < count; at++) {
      const unlike = (this.#words[4 * at] ?? 0) ^ (this.#words[4 * at - 4] ?? 0);
      const isWide = ((this.#shapes[at] ?? 0) & IPV6) !== 0;
      const follows = isWide
        ? unlike === 0 && this.#words[4 * at + 1] === this.#words[4 * at - 3]
        : unlike >>> 8 === 0;
      if (follows) neighbours++;
    }
    return 2 * neighbours < count;
  }

  /** Writes the key in a place to `out`; false when there is none, `out` is then as it was. */
  get(at: number, out: PrefixRegister): boolean {
    const shape = this.#shapes[at] ?? NONE;
    if (shape === NONE) return false;
    out.length = shape & (ENDPOINT - 1);
    out.form = (shape & ENDPOINT) === 0 ? 'cidr' : 'endpoint';
    out.family = (shape & IPV6) === 0 ? 4 : 6;
    out.w0 = this.#words[4 * at] ?? 0;
    out.w1 = this.#words[4 * at + 1] ?? 0;
    out.w2 = this.#words[4 * at + 2] ?? 0;
    out.w3 = this.#words[4 * at + 3] ?? 0;
    return true;
  }
}
