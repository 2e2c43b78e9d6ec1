import { keyAfter, prefixRange } from '../key-range.ts';
import type { CallOptions, RangeResponse, Transport } from '../transport.ts';

/** What to list. */
export interface ListRequest {
  readonly prefix: string;
  /** As of this revision; 0: as of the first page's. */
  readonly revision: number;
  readonly keysOnly?: boolean;
}

/** Keys per page: one batch for the reader, about 1.5 MB of usual values. */
export const PAGE_KEYS = 4096;

/** Calls once, or again after a pause as long as failures pass; gives up when its signal fires. */
export type Retry = (call: () => Promise<RangeResponse>) => Promise<RangeResponse>;

/**
 * The pages of a prefix, ascending, all at one revision. A page that fails is retried at that revision by
 * `retry`; what it cannot retry ends the listing with that error.
 */
export async function* listPages(
  transport: Transport,
  request: ListRequest,
  retry: Retry,
  options: CallOptions,
): AsyncGenerator<RangeResponse> {
  const { start, end } = prefixRange(request.prefix);
  let { revision } = request;
  let from = start;
  for (;;) {
    const page = await retry(() =>
      transport.range(
        { start: from, end, limit: PAGE_KEYS, revision, keysOnly: request.keysOnly ?? false },
        options,
      ),
    );
    revision ||= page.header.revision;
    yield page;
    const last = page.kvs.at(-1);
    if (!page.more || last === undefined) return;
    from = keyAfter(last.key);
  }
}
