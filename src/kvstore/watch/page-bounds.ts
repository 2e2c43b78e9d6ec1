import { compareKeys, NO_END, prefixEnd } from '../key-range.ts';
import type { RangeResponse } from '../transport.ts';

// So many empty answers in a row, and the range is widened: a prefix with large gaps is not to be felt through.
const PATIENCE = 4;

/**
 * Chooses where the ranges of a paged listing end. etcd walks the index over the *whole* range for every page,
 * so that a million keys in pages of 4096 make it walk a hundred million; a range that ends with the subtree
 * of the last key keeps the walk near the page.
 *
 *     last key     p/10.0.15.255
 *     depth 7      p/10.0.1|          next range: up to p/10.0.2
 *
 * A guess only, and a matter of speed: the ranges follow each other without gap whatever it chooses. It adapts:
 * one character more where a subtree holds several pages, one less where it holds a part of one.
 */
export class PageBounds {
  readonly #prefix: string;
  readonly #end: string;
  #depth = 0;
  #empty = 0;
  #lastKey = '';

  constructor(prefix: string, end: string) {
    this.#prefix = prefix;
    this.#end = end;
  }

  /** What a page of at most `limit` keys has shown. The first one shows how deep subtrees of a page are. */
  learn({ kvs, count }: RangeResponse, limit: number): void {
    const first = kvs[0];
    const last = kvs.at(-1);
    if (first === undefined || last === undefined) {
      this.#empty++;
      return;
    }
    this.#empty = 0;
    this.#lastKey = last.key;
    if (this.#depth === 0) {
      if (first !== last) this.#depth = commonLength(first.key, last.key) + 1;
    } else if (count > 2 * limit) this.#depth++;
    else if (count < limit / 2 && this.#depth > this.#prefix.length) this.#depth--;
  }

  /** The end of the range that begins at `from`; after `from`, and not after the listing's own end. */
  endFor(from: string): string {
    if (this.#depth === 0) return this.#end;
    const patience = Math.max(0, this.#empty - PATIENCE);
    const subtree = this.#subtree(from).slice(0, -patience || undefined);
    if (subtree.length < this.#prefix.length) return this.#end;
    const end = prefixEnd(subtree);
    const isInside = this.#end === NO_END || compareKeys(end, this.#end) < 0;
    return end !== NO_END && isInside && compareKeys(end, from) > 0 ? end : this.#end;
  }

  /**
   * The subtree that `from` is in. After a gap `from` is shorter than a key; what it lacks is taken from the
   * last key, because keys that stand together are built alike.
   */
  #subtree(from: string): string {
    if (from.length >= this.#depth) return from.slice(0, this.#depth);
    return from + this.#lastKey.slice(from.length, this.#depth);
  }
}

function commonLength(a: string, b: string): number {
  let length = 0;
  while (length < a.length && a[length] === b[length]) length++;
  return length;
}
