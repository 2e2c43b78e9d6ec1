import type { Ask } from '../api/api-client.ts';
import type { PastDocument } from '../api/past-document.ts';
import type { Clock } from '../base/clock.ts';
import { sleep } from '../base/sleep.ts';
import { systemClock } from '../base/system-clock.ts';
import { InputError } from '../process/input-error.ts';
import { type Column, documentTable, type View } from './answer.ts';

/** Filters of a list by parameter name. Undefined ones are omitted. */
export type ListFilters = Readonly<Record<string, string | number | undefined>>;

/** A list of the API and its presentation. */
export interface List<T> {
  readonly path: string;
  readonly filters: ListFilters;
  readonly columns: readonly Column<T>[];
  readonly nameOf: (item: T) => string;
  /** Text shown if the list is empty. */
  readonly hint: string;
  /**
   * Sorts a list of at most {@link MAX_SORTED} items. Larger lists keep the order of the API, and so do all lists if
   * this is undefined.
   */
  readonly sort?: (items: readonly T[]) => readonly T[];
  /** Returns the lines below a list of an earlier moment, even if it is empty. */
  readonly footer?: (past: PastDocument) => readonly string[];
}

/** Output format of a list; `name`: one key per line. */
export type ListFormat = 'text' | 'wide' | 'json' | 'yaml' | 'name';

export interface PrintOptions {
  readonly format: ListFormat;
  readonly view: View;
  /** Maximum number of items. Default: unlimited. */
  readonly limit?: number | undefined;
  readonly clock?: Clock | undefined;
}

/** A list printed page by page. */
export interface PrintedList {
  /**
   * Writes the list in parts. Each part is written after `write` has resolved for the previous one. Holds at most two
   * pages. Throws {@link InputError} if a list of an earlier moment is empty, its emptiness is not certain, and the
   * format cannot state that.
   */
  print(ask: Ask, options: PrintOptions, write: (text: string) => Promise<void>): Promise<void>;
  /** Returns the number of items. The agent counts them. */
  count(ask: Ask): Promise<number>;
}

/** Maximum size of a list sorted by the client. */
const MAX_SORTED = 10_000;

/** Maximum number of items in a page of the API. */
export const MAX_PAGE_ITEMS = 1_000;

/** Interval of requests for the next page. The agent releases a list one minute after the last request for it. */
const KEEP_ALIVE_MS = 20_000;

interface PageDocument<T> {
  readonly items: readonly T[];
  readonly continue?: string;
  /** Present for a list of an earlier moment. */
  readonly past?: PastDocument;
}

export function printedList<T>(list: List<T>): PrintedList {
  return {
    print: (ask, options, write) => printList(list, ask, options, write),
    count: async (ask) => {
      const { count } = (await ask(withQuery(`${list.path}/count`, list.filters))) as {
        readonly count: unknown;
      };
      if (typeof count !== 'number') throw new TypeError('no count');
      return count;
    },
  };
}

/** Returns a path with parameters. Undefined ones are omitted. */
export function withQuery(path: string, filters: ListFilters): string {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(filters)) {
    if (value !== undefined) parameters.set(name, String(value));
  }
  return parameters.size === 0 ? path : `${path}?${parameters}`;
}

async function printList<T>(
  list: List<T>,
  ask: Ask,
  options: PrintOptions,
  write: (text: string) => Promise<void>,
): Promise<void> {
  const writer = await listWriter(list, options);
  let isEmpty = true;
  let past: PastDocument | undefined;
  const askAndNotePast: Ask = async (path) => {
    const page = await ask(path);
    past ??= (page as PageDocument<T>).past;
    return page;
  };
  for await (const items of parts(list, askAndNotePast, options)) {
    await write(writer.items(items, isEmpty));
    isEmpty = false;
  }
  const end = writer.end(isEmpty, past);
  if (end !== '') await write(end);
  // Other formats than text state the certainty in each item.
  const isText = options.format === 'text' || options.format === 'wide';
  if (isEmpty && past?.certain === false && !isText)
    throw new InputError([list.hint, ...(list.footer?.(past) ?? [])].join(' '));
}

/** Yields the list in parts of at least one item. */
async function* parts<T>(
  list: List<T>,
  ask: Ask,
  options: PrintOptions,
): AsyncGenerator<readonly T[], void, void> {
  const { sort } = list;
  /** The items to sort; undefined if the list is not sorted, or is too large. */
  let toSort: T[] | undefined = sort && [];
  for await (const page of pages(list, ask, options)) {
    if (toSort === undefined) {
      yield page;
      continue;
    }
    toSort.push(...page); // a page has at most 1,000
    if (toSort.length <= MAX_SORTED) continue;
    yield toSort;
    toSort = undefined;
  }
  if (sort !== undefined && toSort !== undefined && toSort.length > 0) yield sort(toSort);
}

/** Yields the pages of a list, all of one revision. Requests the next page while the current one is in use. */
async function* pages<T>(
  { path, filters }: List<T>,
  ask: Ask,
  { limit = Number.POSITIVE_INFINITY, clock = systemClock }: PrintOptions,
): AsyncGenerator<readonly T[], void, void> {
  let remaining = limit;
  /** Returns a function that requests a page. It may be called repeatedly. */
  const reader = (parameters: ListFilters): (() => Promise<PageDocument<T>>) => {
    const request = withQuery(path, { ...parameters, limit: Math.min(MAX_PAGE_ITEMS, remaining) });
    return async () => (await ask(request)) as PageDocument<T>;
  };
  let next: Promise<PageDocument<T>> | undefined = reader(filters)();
  while (next !== undefined) {
    const page: PageDocument<T> = await next;
    remaining -= page.items.length;
    const isLast = page.continue === undefined || remaining <= 0;
    const readNext = isLast ? undefined : reader({ continue: page.continue });
    next = readNext?.();
    next?.catch(() => {}); // the rejection is handled where the page is awaited
    using _keptAlive = readNext && keepAlive(readNext, clock);
    if (page.items.length > 0) yield page.items;
  }
}

/** Requests a page periodically, so that the agent does not release the list, until it is disposed of. */
function keepAlive(read: () => Promise<unknown>, clock: Clock): Disposable {
  const ended = new AbortController();
  void (async () => {
    for (;;) {
      await sleep(clock, KEEP_ALIVE_MS, ended.signal);
      if (ended.signal.aborted) return;
      await read().catch(() => {});
    }
  })();
  return { [Symbol.dispose]: () => ended.abort() };
}

/** Formats the parts of a list. */
interface ListWriter<T> {
  readonly items: (items: readonly T[], isFirst: boolean) => string;
  /** `past`: the moment of the list, if it is an earlier one. */
  readonly end: (isEmpty: boolean, past: PastDocument | undefined) => string;
}

async function listWriter<T>(
  { columns, nameOf, hint, footer }: List<T>,
  { format, view }: PrintOptions,
): Promise<ListWriter<T>> {
  const lines = (all: readonly string[]): string => all.map((line) => `${line}\n`).join('');
  switch (format) {
    case 'name':
      return { items: (items) => lines(items.map(nameOf)), end: () => '' };
    case 'json':
      return {
        // The brackets of each part are cut, because the parts form one array.
        items: (items, isFirst) => `${isFirst ? '[' : ','}${JSON.stringify(items, null, 1).slice(1, -2)}`,
        end: (isEmpty) => (isEmpty ? '[]\n' : '\n]\n'),
      };
    case 'yaml': {
      const { stringify } = await import('yaml');
      return {
        items: (items) => stringify(items, { aliasDuplicateObjects: false }),
        end: (isEmpty) => (isEmpty ? '[]\n' : ''),
      };
    }
    case 'text':
    case 'wide': {
      const widths: number[] = [];
      return {
        items: (items, isFirst) => lines(documentTable(columns, items, view, widths).slice(isFirst ? 0 : 1)),
        end: (isEmpty, past) => lines([...(isEmpty ? [hint] : []), ...((past && footer?.(past)) ?? [])]),
      };
    }
  }
}
