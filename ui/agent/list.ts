import { useEffect, useState } from 'preact/hooks';
import { ask, withQuery } from './ask.ts';

/** A list that was read in pages. */
export interface List<T> {
  readonly items: readonly T[];
  /** True if the agent has more items than {@link MOST_ITEMS}. */
  readonly isCut: boolean;
}

/** Maximum number of items of a list that is read completely. */
export const MOST_ITEMS = 5_000;

async function readAll<T>(
  path: string,
  filters: Readonly<Record<string, string | undefined>>,
  signal: AbortSignal,
): Promise<List<T>> {
  const items: T[] = [];
  let next: string | undefined = withQuery(path, { ...filters, limit: '1000' });
  while (next !== undefined && items.length < MOST_ITEMS) {
    const page: { items: readonly T[]; continue?: string } = await ask(next, signal);
    items.push(...page.items);
    next = page.continue && withQuery(path, { continue: page.continue, limit: '1000' });
  }
  return { items, isCut: next !== undefined };
}

/** Returns a complete list. If `version` changes, reads it again after the current read, and keeps the last list until then. */
export function useList<T>(
  path: string,
  filters: Readonly<Record<string, string | undefined>>,
  version: string,
): { readonly list?: List<T>; readonly problem?: string } {
  const name = withQuery(path, filters);
  const [state, setState] = useState<{
    readonly name: string;
    readonly list?: List<T>;
    readonly problem?: string;
  }>({
    name,
  });
  useEffect(() => {
    const ended = new AbortController();
    readAll<T>(path, filters, ended.signal).then(
      (list) => setState({ name, list }),
      (error: Error) =>
        ended.signal.aborted ||
        setState((before) => ({ ...(before.name === name ? before : { name }), problem: error.message })),
    );
    return () => ended.abort();
  }, [name, version]);
  return state.name === name ? state : {};
}
