import { type Answered, ask, NoAnswer, useRead, withQuery } from './ask.ts';

/** A list read in pages. */
export interface List<T> {
  readonly items: readonly T[];
  /** Number of all items, of which `items` may be only the first {@link MAX_ITEMS}. */
  readonly total: number;
}

/** Number of items after which no further page is read. */
export const MAX_ITEMS = 5_000;

interface Page<T> {
  readonly items: readonly T[];
  readonly continue?: string;
}

type Filters = Readonly<Record<string, string | undefined>>;

/** Returns a list and the number of all its items. Stops reading after {@link MAX_ITEMS} items. */
async function readAll<T>(path: string, filters: Filters, signal: AbortSignal): Promise<List<T>> {
  const items: T[] = [];
  let next: string | undefined = withQuery(path, { ...filters, limit: '1000' });
  while (next !== undefined && items.length < MAX_ITEMS) {
    const page: Page<T> = await ask<Page<T>>(next, signal).catch((error: Error) => {
      // If the agent does not hold the next page any more, the list is read again.
      throw items.length === 0 ? error : new NoAnswer(error.message);
    });
    items.push(...page.items);
    next = page.continue && withQuery(path, { continue: page.continue, limit: '1000' });
  }
  if (next === undefined) return { items, total: items.length };
  const { count } = await ask<{ count: number }>(withQuery(`${path}/count`, filters), signal);
  return { items, total: count };
}

/** Returns a list, as `useRead` does. Its items may be only the first ones. */
export function useList<T>(path: string, filters: Filters, version: string): Answered<List<T>> {
  return useRead(withQuery(path, filters), (signal) => readAll<T>(path, filters, signal), version);
}
