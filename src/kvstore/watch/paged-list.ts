import type { Clock } from '../../base/clock.ts';
import { inRange, type KeyRange, keyAfter } from '../codec/key-range.ts';
import { KvstoreError } from '../session/errors.ts';
import type { RangeRequest, RangeResponse, ResponseHeader } from '../session/transport.ts';
import { PageBounds } from './page-bounds.ts';
import type { PageSize } from './page-size.ts';

/** Makes one read, with or without retries. */
export type Read = (request: RangeRequest) => Promise<RangeResponse>;

export interface ListRequest {
  readonly range: KeyRange;
  /** The prefix of all keys of the range. */
  readonly prefix: string;
  /** Revision of the listing; 0 means the revision of the first page. */
  readonly revision: number;
  readonly keysOnly?: boolean;
  /** Omits keys last written before this revision. */
  readonly minModRevision?: number;
  readonly read: Read;
  /** Adapts to the speed of the pages. Later listings may share it. */
  readonly pageSize: PageSize;
  /** Measures the duration of pages. */
  readonly clock: Pick<Clock, 'now'>;
}

/** Keys of a listing, ascending. */
export interface KeyPage extends RangeResponse {
  /** All keys of the listing before this key are in this page or an earlier page. */
  readonly end: string;
}

/** Reads page after page, each from the end of the previous one. */
class Pager {
  readonly #request: ListRequest;
  readonly #bounds: PageBounds;
  #nextKey: string;
  #revision: number;
  #clusterID: string | undefined;

  constructor(request: ListRequest) {
    this.#request = request;
    this.#nextKey = request.range.start;
    this.#revision = request.revision;
    this.#bounds = new PageBounds(request.prefix, request.range.end);
  }

  /** True if all pages were requested. */
  get isDone(): boolean {
    return this.#nextKey === this.#request.range.end;
  }

  async next(): Promise<KeyPage> {
    const end = this.#bounds.endFor(this.#nextKey);
    const { page, limit } = await this.#readPage(end);
    this.#check(page.header);
    const last = this.#lastOf(page, end);
    this.#bounds.observe(page, limit);
    this.#nextKey = page.more && last !== undefined ? keyAfter(last) : end;
    return { ...page, end: this.#nextKey };
  }

  /** Returns the last key of a page. Throws if the page skips keys or goes backwards. */
  #lastOf({ kvs, more }: RangeResponse, end: string): string | undefined {
    const last = kvs.at(-1)?.key;
    if (last === undefined) {
      if (more)
        throw new KvstoreError(
          'internal',
          `the server sent an empty page before the last key, from ${this.#nextKey}`,
        );
      return undefined;
    }
    if (inRange(last, { start: this.#nextKey, end })) return last;
    throw new KvstoreError('internal', `the server sent ${last} in a page from ${this.#nextKey}`);
  }

  /** Detects most replacements of the store. Only the stream on the same server proves that there was none. */
  #check({ revision, clusterID }: ResponseHeader): void {
    this.#revision ||= revision;
    this.#clusterID ??= clusterID;
    if (revision >= this.#revision && clusterID === this.#clusterID) return;
    throw new KvstoreError('unavailable', 'the store was replaced during the list');
  }

  /** Reads one page. If the answer exceeds the limit of the transport, reads a smaller page. */
  async #readPage(end: string): Promise<{ readonly page: RangeResponse; readonly limit: number }> {
    const { read, pageSize, clock, keysOnly = false, minModRevision = 0 } = this.#request;
    for (;;) {
      const limit = pageSize.keys;
      const startedAt = clock.now();
      try {
        const request = {
          start: this.#nextKey,
          end,
          limit,
          revision: this.#revision,
          keysOnly,
          minModRevision,
        };
        const page = await read(request);
        pageSize.recordPage(page.kvs.length, clock.now() - startedAt);
        return { page, limit };
      } catch (error) {
        if (error instanceof KvstoreError && error.code === 'too-large' && pageSize.shrink()) continue;
        pageSize.recordFailure();
        throw error;
      }
    }
  }
}

/**
 * Yields the pages of a range, all at one revision. There is at least one page; pages may be empty. The next page is
 * requested while the current one is processed. If a page fails, the listing fails with its error.
 */
export async function* listPages(request: ListRequest): AsyncGenerator<KeyPage> {
  const pager = new Pager(request);
  let page = await pager.next();
  while (!pager.isDone) {
    const next = pager.next();
    next.catch(() => {}); // the reader may stop before it awaits this page
    yield page;
    page = await next;
  }
  yield page;
}
