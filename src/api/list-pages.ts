import type { Clock, Timer } from '../base/clock.ts';
import { ProblemError } from './problem.ts';

/** A part of a list. */
export interface Page<T> {
  readonly items: readonly T[];
  /** The revision of the change feed that the whole list shows: a monitor goes on from there. */
  readonly revision: number;
  /** Asks for the next page; without it this is the last one. */
  readonly continue?: string;
}

/**
 * What a list is read from. It may give `undefined` for something that was looked at and is not in the list: so a page is
 * bounded in what it looks at, too.
 */
export interface Listing<T> {
  /** Lists of one name have the same items in the same order. */
  readonly name: string;
  readonly revision: number;
  /** What is held while the list is, where that costs something. Lists may share one. */
  readonly view?: object;
  readonly items: Iterator<T | undefined>;
}

/** A place in a list. */
interface Cursor<T> {
  readonly listing: Listing<T>;
  /** How many items have been looked at. */
  looked: number;
  /** Asks for what comes next; `undefined` at the end. */
  token: string | undefined;
  /** The page before, for a client that did not receive it, and what asked for it. */
  last: Page<T> | undefined;
  lastToken: string | undefined;
  usedAt: number;
}

/** A list whose next page is not asked for is let go after this time. */
const HELD_MS = 60_000;

/** So many places in lists are held; the one that waited longest goes. */
const HELD_LISTS = 32;

/** They are places in the lists of so many views: one of a million entries that all change costs some 50 MB. */
const HELD_VIEWS = 8;

/** A page looks at so many items at most, or at fewer that weigh as much: some milliseconds. */
const LOOKED_AT = 10_000;

/**
 * Lists in pages, each list one consistent view of its engine: it is held between its pages, for a minute, and let go
 * then whether or not anybody asks, since it costs what has changed since. Asking for the
 * same page again gives the same page; an older one, and a list that is not held any more, is the problem `expired`.
 *
 * What asks for the next page says the name of the list and how many items come before: the first page of a list that has
 * not changed is the same each time, and so is its ETag. Who goes on with what was asked before may share a place with
 * another, or take the other's: what follows is the same.
 */
export class ListPages<T> {
  readonly #clock: Clock;
  /** In the order of their last use. */
  readonly #held = new Set<Cursor<T>>();
  readonly #ended: AbortSignal;
  readonly #weigh: (item: T) => number;
  #timer: Timer | undefined;

  /** Holds lists until `ended` fires; `weigh` says how many items one is worth. */
  constructor(clock: Clock, ended: AbortSignal, weigh: (item: T) => number = () => 1) {
    this.#clock = clock;
    this.#ended = ended;
    this.#weigh = weigh;
    ended.addEventListener('abort', () => {
      this.#held.clear();
      this.#timer?.cancel();
    });
  }

  /** Places in lists that are held. */
  get size(): number {
    return this.#held.size;
  }

  /** Whether another view would be one too many. */
  get isFull(): boolean {
    return this.#views().size >= HELD_VIEWS;
  }

  /** The first page. */
  begin(listing: Listing<T>, limit: number): Page<T> {
    const from = { looked: 0, token: undefined, last: undefined, lastToken: undefined, usedAt: 0 };
    return this.#read({ listing, ...from }, limit);
  }

  /** The page that a `continue` asks for. */
  next(token: string, limit: number): Page<T> {
    this.#expire();
    const held = [...this.#held];
    const cursor = held.find((place) => place.token === token);
    if (cursor !== undefined) return this.#read(cursor, limit);
    const last = held.find((place) => place.lastToken === token)?.last;
    if (last !== undefined) return last;
    throw new ProblemError('expired', 'The list is not held any more: ask for it from its beginning.', {
      field: 'continue',
      value: token.slice(0, 40),
    });
  }

  #read(cursor: Cursor<T>, limit: number): Page<T> {
    const { name, revision, items: list } = cursor.listing;
    const items: T[] = [];
    let done = false;
    this.#held.delete(cursor); // also if it fails: the rest of a list that has failed would look like its end
    for (let weight = 0; weight < LOOKED_AT && items.length < limit && !done; ) {
      const { done: over, value } = list.next();
      done = over === true;
      if (!done) cursor.looked++;
      if (over !== true && value !== undefined) items.push(value);
      weight += over === true || value === undefined ? 1 : this.#weigh(value);
    }
    cursor.lastToken = cursor.token;
    cursor.token = done ? undefined : `${name}.${cursor.looked}`;
    const page = { items, revision, ...(cursor.token !== undefined && { continue: cursor.token }) };
    cursor.last = page;
    if (done && cursor.lastToken === undefined) return page;
    cursor.usedAt = this.#clock.now();
    this.#held.add(cursor);
    this.#expire();
    return page;
  }

  /** Of places that are held, the one that was used last first. */
  #views(): Set<object> {
    return new Set([...this.#held].reverse().flatMap(({ listing }) => listing.view ?? []));
  }

  #expire(): void {
    const now = this.#clock.now();
    const tooMany = new Set<object | undefined>([...this.#views()].slice(HELD_VIEWS));
    for (const cursor of this.#held) {
      const isOld = this.#held.size > HELD_LISTS || now - cursor.usedAt >= HELD_MS;
      if (isOld || tooMany.has(cursor.listing.view)) this.#held.delete(cursor);
    }
    const [oldest] = this.#held;
    if (oldest !== undefined && !this.#ended.aborted)
      this.#timer ??= this.#clock.after(oldest.usedAt + HELD_MS - now, () => this.#due());
  }

  #due(): void {
    this.#timer = undefined;
    this.#expire();
  }
}
