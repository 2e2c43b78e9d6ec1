import { compareKeys, NO_END, prefixEnd } from '../codec/key-range.ts';
import type { RangeResponse } from '../session/transport.ts';

// After this many empty answers in a row the range is widened, because a prefix can have large gaps.
const MAX_EMPTY_PAGES = 4;

/**
 * Selects the end of the range of each page of a listing. For every page, etcd walks the index over the *whole* range:
 * for a million keys in pages of 4096, these are a hundred million steps in total. If the range ends with the subtree
 * of the last key (the keys with its first `depth` characters), the walk visits hardly more keys than the page.
 *
 *     last key     p/10.0.15.255
 *     depth 8      p/10.0.1|          next range: up to p/10.0.2
 *
 * The bounds are a guess and affect only the speed, because consecutive ranges have no gap. The depth is adapted: one
 * character more if a subtree has several pages, one character less if it has only a part of a page.
 */
export class PageBounds {
  readonly #prefix: string;
  readonly #end: string;
  #depth = 0;
  /** Number of empty pages in a row. */
  #emptyPages = 0;
  #lastKey = '';

  constructor(prefix: string, end: string) {
    this.#prefix = prefix;
    this.#end = end;
  }

  /** Adapts the depth to a page of at most `limit` keys. The first page determines the initial depth. */
  observe({ kvs, count }: RangeResponse, limit: number): void {
    const first = kvs[0];
    const last = kvs.at(-1);
    if (first === undefined || last === undefined) {
      this.#emptyPages++;
      return;
    }
    this.#emptyPages = 0;
    this.#lastKey = last.key;
    if (this.#depth === 0) {
      if (first !== last) this.#depth = commonLength(first.key, last.key) + 1;
    } else if (count > 2 * limit) this.#depth++;
    else if (count < limit / 2 && this.#depth > this.#prefix.length) this.#depth--;
  }

  /** Returns the end of the range that begins at `from`. It is after `from`, and not after the end of the listing. */
  endFor(from: string): string {
    if (this.#depth === 0) return this.#end;
    const surplus = Math.max(0, this.#emptyPages - MAX_EMPTY_PAGES);
    const narrow = this.#subtree(from);
    const subtree = narrow.slice(0, Math.max(0, narrow.length - surplus));
    if (subtree.length < this.#prefix.length) return this.#end;
    const end = prefixEnd(subtree);
    const isInside = this.#end === NO_END || compareKeys(end, this.#end) < 0;
    return end !== NO_END && isInside && compareKeys(end, from) > 0 ? end : this.#end;
  }

  /**
   * Returns the subtree that contains `from`. After a gap, `from` is shorter than a key; the missing characters are
   * then copied from the last key, because adjacent keys have the same form.
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
