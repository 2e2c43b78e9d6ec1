import { useEffect, useState } from 'preact/hooks';
import type { SearchDocument, SearchResultDocument } from '../../src/api/search.ts';
import { addressOf, shortPrefix } from '../address.ts';
import { ask, withQuery } from './ask.ts';

/** A result of a search. */
export type Result = SearchResultDocument;

/** Time after the last key stroke until the agent is asked. */
const SETTLED_MS = 120;

/** The view of each kind of result. */
const VIEWS = {
  service: 'service',
  node: 'node',
  identity: 'identity',
  cluster: 'cluster',
} as const;

/** Returns the address of the card or the list of a result. */
export function addressOfResult({ kind, key }: Result): string {
  switch (kind) {
    case 'prefix':
      return addressOf('ip', shortPrefix(key));
    case 'pod':
      return addressOf('prefixes', '', { pod: key });
    case 'label':
      return addressOf('prefixes', '', { label: key });
    case 'namespace':
      return addressOf('services', '', { namespace: key });
    default:
      return addressOf(VIEWS[kind], key);
  }
}

/**
 * Returns the results for a text; undefined before the first answer. Keeps the last results while the next ones are
 * read.
 */
export function useResults(text: string): { readonly results?: SearchDocument; readonly problem?: string } {
  const [state, setState] = useState<{ readonly results?: SearchDocument; readonly problem?: string }>({});
  const query = text.trim();
  useEffect(() => {
    if (query === '') {
      setState({});
      return;
    }
    const ended = new AbortController();
    const timer = setTimeout(() => {
      ask<SearchDocument>(withQuery('/v1/search', { q: query }), ended.signal).then(
        (results) => setState({ results }),
        (error: Error) => ended.signal.aborted || setState({ problem: error.message }),
      );
    }, SETTLED_MS);
    return () => {
      clearTimeout(timer);
      ended.abort();
    };
  }, [query]);
  return state;
}
