import { compareKeys, NO_END, prefixEnd } from '../codec/key-range.ts';
import type { RangeResponse } from '../session/transport.ts';

/** A range with more pages is too wide. */
const MAX_PAGES = 4;

/**
 * Selects the end of the range of each page of a listing. For every page, etcd walks the index over the *whole* range:
 * for a million keys in pages of 4096, these are a hundred million steps in total. If the range ends with the subtree
 * of the last key (the keys with its first `depth` characters), the walk visits only a few times as many keys as the
 * page has.
 *
 *     last key     p/10.0.15.255
 *     depth 8      p/10.0.1|          next range: up to p/10.0.2
 *
 * The bounds are a guess and affect only the speed, because consecutive ranges have no gap:
 *
 * - If a range was too wide, the depth becomes the length of the common prefix of its page. With a greater depth, a
 *   range could contain less than a page.
 * - After the end of a subtree, the depth decreases, so that the next range ends with the subtree around it.
 * - After the nth empty page in a row, the depth decreases by n.
 */
export class PageBounds {
  readonly #prefix: string;
  readonly #end: string;
  #depth = 0;
  #lastKey = '';
  #emptyPages = 0;
  /** Number of keys after the last page; too large after pages that omitted keys by `minModRevision`. */
  #remaining: number | undefined;
  /** True if a range with all remaining keys is not too wide. True for the first page, which counts the keys. */
  #isNearEnd = true;

  constructor(prefix: string, end: string) {
    this.#prefix = prefix;
    this.#end = end;
  }

  /** Adapts the depth to a page of at most `limit` keys. */
  observe({ kvs, count }: RangeResponse, limit: number): void {
    const maxKeys = MAX_PAGES * limit;
    this.#remaining = (this.#remaining ?? count) - kvs.length;
    this.#isNearEnd = this.#remaining <= maxKeys;
    const first = kvs[0];
    const last = kvs.at(-1);
    if (first === undefined || last === undefined) {
      this.#depth -= ++this.#emptyPages;
      return;
    }
    this.#emptyPages = 0;
    this.#lastKey = last.key;
    if (count > maxKeys) this.#depth = commonLength(first.key, last.key);
  }

  /** Returns the end of the range that begins at `from`. It is after `from`, and not after the end of the listing. */
  endFor(from: string): string {
    if (this.#isNearEnd) return this.#end;
    for (; this.#depth > this.#prefix.length; this.#depth--) {
      const end = prefixEnd(this.#lastKey.slice(0, this.#depth));
      if (end === NO_END || compareKeys(end, from) <= 0) continue;
      return this.#end === NO_END || compareKeys(end, this.#end) < 0 ? end : this.#end;
    }
    return this.#end;
  }
}

function commonLength(a: string, b: string): number {
  let length = 0;
  while (length < a.length && a[length] === b[length]) length++;
  return length;
}
