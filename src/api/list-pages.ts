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
  readonly revision: number;
  readonly items: Iterator<T | undefined>;
}

interface HeldList<T> {
  readonly listing: Listing<T>;
  /** The number of the page that comes next. */
  page: number;
  /** The page before, for a client that did not receive it. */
  last: Page<T> | undefined;
  usedAt: number;
}

/** A list whose next page is not asked for is let go after this time. */
const HELD_MS = 60_000;

/** So many lists are held; the one that waited longest goes. */
const HELD_LISTS = 32;

/** A page looks at so many items at most, or at fewer that weigh as much: some milliseconds. */
const LOOKED_AT = 10_000;

/**
 * Lists in pages, each list one consistent view of its engine: it is held between its pages, for a minute, and let go
 * then whether or not anybody asks, since it costs what has changed since. Asking for the
 * same page again gives the same page; an older one, and a list that is not held any more, is the problem `expired`.
 */
export class ListPages<T> {
  readonly #clock: Clock;
  readonly #held = new Map<string, HeldList<T>>();
  readonly #ended: AbortSignal;
  readonly #weigh: (item: T) => number;
  #next = 1;
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

  /** Lists that are held. */
  get size(): number {
    return this.#held.size;
  }

  /** The first page. */
  begin(listing: Listing<T>, limit: number): Page<T> {
    const held: HeldList<T> = { listing, page: 0, last: undefined, usedAt: this.#clock.now() };
    return this.#read(`${this.#next++}`, held, limit);
  }

  /** The page that a `continue` asks for. */
  next(token: string, limit: number): Page<T> {
    this.#expire();
    const [, name = '', page = ''] = /^(\d{1,15})\.(\d{1,15})$/.exec(token) ?? [];
    const held = this.#held.get(name);
    const number = Number(page);
    if (held?.page === number) return this.#read(name, held, limit);
    if (held?.last !== undefined && held.page === number + 1) return held.last;
    throw new ProblemError('expired', 'The list is not held any more: ask for it from its beginning.', {
      field: 'continue',
      value: token.slice(0, 40),
    });
  }

  #read(name: string, held: HeldList<T>, limit: number): Page<T> {
    const items: T[] = [];
    let done = false;
    this.#held.delete(name); // also if it fails: the rest of a list that has failed would look like its end
    for (let looked = 0; looked < LOOKED_AT && items.length < limit && !done; ) {
      const { done: over, value } = held.listing.items.next();
      done = over === true;
      if (over !== true && value !== undefined) items.push(value);
      looked += over === true || value === undefined ? 1 : this.#weigh(value);
    }
    const { revision } = held.listing;
    held.page++;
    held.last = { items, revision, ...(!done && { continue: `${name}.${held.page}` }) };
    if (done && held.page === 1) return held.last;
    held.usedAt = this.#clock.now();
    this.#held.set(name, held);
    this.#expire();
    return held.last;
  }

  /** Oldest first: the map is in the order of their last use. */
  #expire(): void {
    const now = this.#clock.now();
    for (const [name, { usedAt }] of this.#held) {
      if (this.#held.size <= HELD_LISTS && now - usedAt < HELD_MS) {
        if (!this.#ended.aborted)
          this.#timer ??= this.#clock.after(usedAt + HELD_MS - now, () => this.#due());
        return;
      }
      this.#held.delete(name);
    }
  }

  #due(): void {
    this.#timer = undefined;
    this.#expire();
  }
}
