import type { Clock } from '../../base/clock.ts';
import { KvstoreError } from '../errors.ts';
import { type KeyRange, keyAfter } from '../key-range.ts';
import type { RangeRequest, RangeResponse, ResponseHeader } from '../transport.ts';
import { PageBounds } from './page-bounds.ts';
import type { PageSize } from './page-size.ts';

/** Makes one read. It decides whether a read that fails is tried again. */
export type Read = (request: RangeRequest) => Promise<RangeResponse>;

/** What to list, and how. */
export interface ListRequest {
  readonly range: KeyRange;
  /** The prefix of all keys of the range. */
  readonly prefix: string;
  /** As of this revision; 0: as of the first page's. */
  readonly revision: number;
  readonly keysOnly?: boolean;
  /** Leave out keys last written before this revision. */
  readonly minModRevision?: number;
  readonly read: Read;
  /** Adapts to how the pages do; may be shared with later listings. */
  readonly size: PageSize;
  /** Measures how long pages take. */
  readonly clock: Pick<Clock, 'now'>;
}

/** Keys of a listing, ascending. */
export interface Page extends RangeResponse {
  /** All keys of the listing before this one are in this page or an earlier one. */
  readonly upTo: string;
}

/** Asks for one page after the other, each where the last has ended. */
class Pager {
  readonly #request: ListRequest;
  readonly #bounds: PageBounds;
  #from: string;
  #revision: number;
  #clusterID: string | undefined;

  constructor(request: ListRequest) {
    this.#request = request;
    this.#from = request.range.start;
    this.#revision = request.revision;
    this.#bounds = new PageBounds(request.prefix, request.range.end);
  }

  /** Whether everything has been asked for. */
  get isDone(): boolean {
    return this.#from === this.#request.range.end;
  }

  async next(): Promise<Page> {
    const end = this.#bounds.endFor(this.#from);
    const { page, limit } = await this.#page(end);
    this.#check(page.header);
    this.#bounds.learn(page, limit);
    const last = page.kvs.at(-1);
    this.#from = page.more && last !== undefined ? keyAfter(last.key) : end;
    return { ...page, upTo: this.#from };
  }

  /** Finds most replacements of the store; that there was none proves only the stream beside which the pages are read. */
  #check({ revision, clusterID }: ResponseHeader): void {
    this.#revision ||= revision;
    this.#clusterID ??= clusterID;
    if (revision >= this.#revision && clusterID === this.#clusterID) return;
    throw new KvstoreError('unavailable', 'the store was replaced while it was being listed');
  }

  /** One page; a smaller one where the answer is larger than the transport takes. */
  async #page(end: string): Promise<{ readonly page: RangeResponse; readonly limit: number }> {
    const { read, size, clock, keysOnly = false, minModRevision = 0 } = this.#request;
    for (;;) {
      const limit = size.keys;
      const begun = clock.now();
      try {
        const request = { start: this.#from, end, limit, revision: this.#revision, keysOnly, minModRevision };
        const page = await read(request);
        size.arrived(page.kvs.length, clock.now() - begun);
        return { page, limit };
      } catch (error) {
        if (error instanceof KvstoreError && error.code === 'too-large' && size.tooLarge()) continue;
        size.failed();
        throw error;
      }
    }
  }
}

/**
 * The pages of a range, all at one revision; at least one, and some may be empty. The next page is under way while one
 * is read. A page that fails ends the listing with its error.
 */
export async function* listPages(request: ListRequest): AsyncGenerator<Page> {
  const pager = new Pager(request);
  let page = await pager.next();
  while (!pager.isDone) {
    const next = pager.next();
    next.catch(() => {}); // the reader may leave before it asks for it
    yield page;
    page = await next;
  }
  yield page;
}
