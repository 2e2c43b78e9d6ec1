import type { Clock, Timer } from '../../base/clock.ts';
import { onAbort } from '../../base/follow-signal.ts';
import type { PastDocument } from '../past-document.ts';
import { ProblemError } from '../problem.ts';

export interface ListPage<T> {
  readonly items: readonly T[];
  /** Revision of the change feed for the whole list. A monitor can resume from it. */
  readonly revision: number;
  /** Token of the next page; absent on the last page. */
  readonly continue?: string;
  /** See {@link PagedSource}. */
  readonly past?: PastDocument;
}

/**
 * Source of a list. `items` may yield `undefined` for items read that do not belong to the list, so that a page also
 * limits the number of items it reads.
 */
export interface PagedSource<T> {
  /** Lists with equal names have the same items in the same order. */
  readonly name: string;
  readonly revision: number;
  /** The state of the list in memory. Several lists may share one. */
  readonly view?: object;
  /** The moment of the list and its certainty; absent for a list of now. */
  readonly past?: PastDocument;
  readonly items: Iterator<T | undefined>;
}

/** A list at the position of a client. */
interface ListCursor<T> {
  readonly listing: PagedSource<T>;
  /** Number of items before the position. */
  readCount: number;
  /** Token of the next page; `undefined` at the end. */
  token: string | undefined;
  /** The last page read, for a client that did not receive it. */
  last: ListPage<T> | undefined;
  /** Token of `last`; `undefined` for the first page. */
  lastToken: string | undefined;
  /** Time of the last request, by the monotonic clock. */
  usedAt: number;
}

/** A list is released if its next page is not requested within this time. */
const LIST_TTL_MS = 60_000;

/**
 * Maximum number of cursors. If there are more, the least recently used ones are released: first cursors at their first
 * or last page, because clients that poll a first page must not release a list that another client reads slowly.
 */
const MAX_LISTS = 32;

/**
 * Maximum number of views of all cursors. If there are more, cursors are released in the same order. A view of a
 * million entries costs about 50 MB if all entries change.
 */
const MAX_VIEWS = 8;

/** Maximum weight of the items of a page. They take a few milliseconds. */
const MAX_PAGE_WEIGHT = 10_000;

/**
 * Serves lists in pages. A list is one consistent view of its engine and is held for a minute after each page. A timer
 * releases it then, because a view costs memory for every later change. A repeated request returns the same page and
 * holds the list for another minute. The problem `expired` is returned for older pages and released lists.
 *
 * A page contains the token of the next one: the name of the list and the number of items before it. Therefore the
 * first page of an unchanged list, and its ETag, are always the same. Each first page creates a cursor. A client may
 * continue with the cursor of another client which has the same token, because the following items are the same.
 */
export class ListPages<T> {
  readonly #clock: Clock;
  /** Cursors, least recently used first. */
  readonly #cursors = new Set<ListCursor<T>>();
  readonly #ended: AbortSignal;
  readonly #weigh: (item: T) => number;
  #timer: Timer | undefined;

  /** Holds lists until `ended` fires. `weigh` returns the weight of an item. */
  constructor(clock: Clock, ended: AbortSignal, weigh: (item: T) => number = () => 1) {
    this.#clock = clock;
    this.#ended = ended;
    this.#weigh = weigh;
    onAbort(ended, () => {
      this.#cursors.clear();
      this.#timer?.cancel();
    });
  }

  /** Number of held lists. */
  get size(): number {
    return this.#cursors.size;
  }

  /** True if the limit of views is reached. */
  get isFull(): boolean {
    return viewsOf(this.#cursors).size >= MAX_VIEWS;
  }

  /** Returns the first page of a list. */
  begin(listing: PagedSource<T>, limit: number): ListPage<T> {
    const cursor = {
      listing,
      readCount: 0,
      token: undefined,
      last: undefined,
      lastToken: undefined,
      usedAt: 0,
    };
    return this.#read(cursor, limit);
  }

  /** Returns the page of a token. Throws `ProblemError` if its list was released. */
  next(token: string, limit: number): ListPage<T> {
    this.#expire();
    const cursors = [...this.#cursors];
    const cursor = cursors.find((other) => other.token === token);
    if (cursor !== undefined) return this.#read(cursor, limit);
    const previous = cursors.find((other) => other.lastToken === token);
    if (previous?.last !== undefined) {
      this.#touch(previous);
      return previous.last;
    }
    throw new ProblemError('expired', 'The continue token has expired: start the list again without it.', {
      field: 'continue',
      value: token,
    });
  }

  #read(cursor: ListCursor<T>, limit: number): ListPage<T> {
    const { name, revision, items: list, past } = cursor.listing;
    const items: T[] = [];
    let done = false;
    this.#cursors.delete(cursor); // even if reading throws, because a failed generator looks finished
    let weight = 0;
    while (weight < MAX_PAGE_WEIGHT && items.length < limit) {
      const next = list.next();
      done = next.done === true;
      if (done) break;
      cursor.readCount++;
      if (next.value !== undefined) items.push(next.value);
      weight += next.value === undefined ? 1 : this.#weigh(next.value);
    }
    cursor.lastToken = cursor.token;
    cursor.token = done ? undefined : `${name}.${cursor.readCount}`;
    const page = {
      items,
      revision,
      ...(cursor.token !== undefined && { continue: cursor.token }),
      ...(past !== undefined && { past }),
    };
    cursor.last = page;
    if (done && cursor.lastToken === undefined) return page; // the only page
    this.#touch(cursor);
    this.#expire();
    return page;
  }

  /** Makes a cursor the most recently used one. */
  #touch(cursor: ListCursor<T>): void {
    cursor.usedAt = this.#clock.now();
    this.#cursors.delete(cursor);
    this.#cursors.add(cursor);
  }

  /** Returns all cursors in the reverse order of their release. */
  #ranked(): readonly ListCursor<T>[] {
    const [newest, ...earlier] = [...this.#cursors].reverse();
    const isInMiddle = ({ token, lastToken }: ListCursor<T>): boolean =>
      token !== undefined && lastToken !== undefined;
    const atEnds = earlier.filter((cursor) => !isInMiddle(cursor));
    return newest === undefined ? [] : [newest, ...earlier.filter(isInMiddle), ...atEnds];
  }

  /** Releases the cursors that are old or exceed a limit. */
  #expire(): void {
    const now = this.#clock.now();
    const ranked = this.#ranked();
    const excessViews = new Set<object | undefined>([...viewsOf(ranked)].slice(MAX_VIEWS));
    for (const [rank, cursor] of ranked.entries()) {
      const isOld = now - cursor.usedAt >= LIST_TTL_MS;
      const isExcess = rank >= MAX_LISTS || excessViews.has(cursor.listing.view);
      if (isOld || isExcess) this.#cursors.delete(cursor);
    }
    const [oldest] = this.#cursors;
    if (oldest !== undefined && !this.#ended.aborted)
      this.#timer ??= this.#clock.after(oldest.usedAt + LIST_TTL_MS - now, () => this.#onTimer());
  }

  #onTimer(): void {
    this.#timer = undefined;
    this.#expire();
  }
}

function viewsOf(cursors: Iterable<ListCursor<unknown>>): ReadonlySet<object> {
  const views = new Set<object>();
  for (const { listing } of cursors) if (listing.view !== undefined) views.add(listing.view);
  return views;
}

/** Yields the JSON text of a page in pieces. `jsonOf` yields that of an item. */
export function* pageJSON<T>(
  { items, ...fields }: { readonly items: readonly T[] },
  jsonOf: (item: T) => Iterable<string | undefined>,
): Generator<string | undefined, void, void> {
  yield '{"items":[';
  for (const [at, item] of items.entries()) {
    if (at > 0) yield ',';
    yield* jsonOf(item);
  }
  yield `],${JSON.stringify(fields).slice(1)}`;
}
