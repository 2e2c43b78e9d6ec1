import { KvstoreError } from '../errors.ts';
import { keyAfter, prefixRange } from '../key-range.ts';
import type { CallOptions, RangeResponse, Transport } from '../transport.ts';
import { PageBounds } from './page-bounds.ts';

/** What to list. */
export interface ListRequest {
  readonly prefix: string;
  /** As of this revision; 0: as of the first page's. */
  readonly revision: number;
  readonly keysOnly?: boolean;
  /** Leave out keys last written before this revision. */
  readonly minModRevision?: number;
}

/** Keys per page: about 1.5 MB of usual values, read by the transport in 2 ms. */
export const PAGE_KEYS = 4096;

/** Calls once, or again after a pause as long as failures pass; gives up when its signal fires. */
export type Retry = (call: () => Promise<RangeResponse>) => Promise<RangeResponse>;

/** Asks for one page after the other, each where the last has ended. */
class Pager {
  readonly #transport: Transport;
  readonly #request: ListRequest;
  readonly #retry: Retry;
  readonly #call: CallOptions;
  readonly #bounds: PageBounds;
  readonly #end: string;
  #from: string;
  #revision: number;
  #limit = PAGE_KEYS;

  constructor(transport: Transport, request: ListRequest, retry: Retry, call: CallOptions) {
    this.#transport = transport;
    this.#request = request;
    this.#retry = retry;
    this.#call = call;
    const { start, end } = prefixRange(request.prefix);
    this.#from = start;
    this.#end = end;
    this.#revision = request.revision;
    this.#bounds = new PageBounds(request.prefix, end, PAGE_KEYS);
  }

  /** Whether everything has been asked for. */
  get isDone(): boolean {
    return this.#from === this.#end;
  }

  async next(): Promise<RangeResponse> {
    const end = this.#bounds.endFor(this.#from);
    const page = await this.#retry(() => this.#range(end));
    this.#revision ||= page.header.revision;
    this.#bounds.learn(page);
    const last = page.kvs.at(-1);
    this.#from = page.more && last !== undefined ? keyAfter(last.key) : end;
    return page;
  }

  /** One page; a smaller one where the answer is larger than the transport takes. */
  async #range(end: string): Promise<RangeResponse> {
    for (;;) {
      try {
        const { keysOnly = false, minModRevision = 0 } = this.#request;
        const page = { start: this.#from, end, limit: this.#limit, revision: this.#revision };
        return await this.#transport.range({ ...page, keysOnly, minModRevision }, this.#call);
      } catch (error) {
        if (!(error instanceof KvstoreError) || error.code !== 'too-large' || this.#limit === 1) throw error;
        this.#limit = Math.ceil(this.#limit / 4);
      }
    }
  }
}

/**
 * The pages of a prefix, ascending, all at one revision; at least one, and some may be empty. The next page is
 * under way while one is read. A page that fails is retried at that revision by `retry`; what it cannot retry
 * ends the listing with that error.
 */
export async function* listPages(
  transport: Transport,
  request: ListRequest,
  retry: Retry,
  call: CallOptions,
): AsyncGenerator<RangeResponse> {
  const pager = new Pager(transport, request, retry, call);
  let page = await pager.next();
  while (!pager.isDone) {
    const next = pager.next();
    next.catch(() => {}); // the reader may leave before it asks for it
    yield page;
    page = await next;
  }
  yield page;
}
