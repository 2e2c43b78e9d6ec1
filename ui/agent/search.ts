import { useEffect, useRef, useState } from 'preact/hooks';
import type { SearchDocument, SearchResultDocument } from '../../src/api/search/search-document.ts';
import { addressOf, shortPrefix } from '../address.ts';
import { type Answered, useAnswer, withQuery } from './ask.ts';

/** A result of a search. */
export type Result = SearchResultDocument;

/** Time after the last key stroke until the agent is asked. */
const SETTLED_MS = 120;

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
      return addressOf(kind, key);
  }
}

/**
 * Returns the results for a text, as {@link useAnswer} does. Keeps the last results while the next ones are read; they
 * name the text that they are for.
 */
export function useResults(text: string): Answered<SearchDocument> {
  const query = text.trim();
  const [settled, setSettled] = useState(query);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(query), SETTLED_MS);
    return () => clearTimeout(timer);
  }, [query]);
  const answered = useAnswer<SearchDocument>(
    settled === '' ? undefined : withQuery('/v1/search', { q: settled }),
  );
  const last = useRef(answered);
  if (settled === '' || answered.document !== undefined || answered.problem !== undefined) {
    last.current = answered;
  }
  return last.current;
}
