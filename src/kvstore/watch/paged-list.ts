import type { Clock } from '../../base/clock.ts';
import { inRange, type KeyRange, keyAfter } from '../codec/key-range.ts';
import { KvstoreError } from '../session/errors.ts';
import type { RangeRequest, RangeResponse } from '../session/transport.ts';
import { entrySize } from '../session/wire-key-value.ts';
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
  /** Adapts to the speed and the bytes of the pages. Later listings may share it, unless `keysOnly` differs. */
  readonly pageSize: PageSize;
  /** Measures the duration of pages. */
  readonly clock: Pick<Clock, 'now'>;
}

/** Keys of a listing, ascending. */
export interface KeyPage extends RangeResponse {
  /** All keys of the listing before this key are in this page or an earlier page. */
  readonly end: string;
}

/**
 * Yields the pages of a range, all at one revision. There is at least one page; pages may be empty. The next page is
 * requested while the current one is processed. If a page fails, the listing fails with its error.
 */
export async function* listPages(request: ListRequest): AsyncGenerator<KeyPage> {
  const { range, prefix } = request;
  const bounds = new PageBounds(prefix, range.end);
  let { revision } = request;
  let clusterID: string | undefined;
  const pageFrom = async (start: string): Promise<KeyPage> => {
    const part = { start, end: bounds.endFor(start) };
    const { page, limit } = await readPage(request, part, revision);
    const { header } = page;
    revision ||= header.revision;
    clusterID ??= header.clusterID;
    // Detects most replacements of the store. Only the stream on the same server proves that there was none.
    if (header.revision < revision || header.clusterID !== clusterID)
      throw new KvstoreError('unavailable', 'the store was replaced during the list');
    const last = lastKeyOf(page, part);
    bounds.observe(page, limit);
    return { ...page, end: page.more && last !== undefined ? keyAfter(last) : part.end };
  };
  let page = await pageFrom(range.start);
  while (page.end !== range.end) {
    const next = pageFrom(page.end);
    next.catch(() => {}); // the reader may stop before it awaits this page
    yield page;
    page = await next;
  }
  yield page;
}

/** Reads one page. If the answer exceeds the limit of the transport, reads a smaller page. */
async function readPage(
  { read, pageSize, clock, keysOnly = false, minModRevision = 0 }: ListRequest,
  part: KeyRange,
  revision: number,
): Promise<{ readonly page: RangeResponse; readonly limit: number }> {
  for (;;) {
    const limit = pageSize.keys;
    const startedAt = clock.now();
    try {
      const page = await read({ ...part, limit, revision, keysOnly, minModRevision });
      const bytes = page.kvs.reduce((sum, kv) => sum + entrySize(kv), 0);
      pageSize.recordPage(page.kvs.length, bytes, clock.now() - startedAt);
      return { page, limit };
    } catch (error) {
      if (error instanceof KvstoreError && error.code === 'too-large' && pageSize.shrink()) continue;
      pageSize.recordFailure();
      throw error;
    }
  }
}

/** Returns the last key of a page. Throws if the page skips keys or goes backwards. */
function lastKeyOf({ kvs, more }: RangeResponse, part: KeyRange): string | undefined {
  const last = kvs.at(-1)?.key;
  if (last === undefined && more)
    throw new KvstoreError(
      'internal',
      `the server sent an empty page from ${part.start}, and more keys follow`,
    );
  if (last !== undefined && !inRange(last, part))
    throw new KvstoreError('internal', `the server sent ${last} in a page from ${part.start}`);
  return last;
}
