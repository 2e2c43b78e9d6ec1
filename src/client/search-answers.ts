import type { SearchDocument, SearchResultDocument } from '../api/search/search-document.ts';
import { type Column, documentTable, notFoundAnswer, type Question, withIncomplete } from './answer.ts';
import { withQuery } from './list.ts';

const RESULT_COLUMNS: readonly Column<SearchResultDocument>[] = [
  { title: 'KIND', cell: ({ kind }) => kind },
  { title: 'NAME', cell: ({ title }) => title },
  { title: 'DETAILS', cell: ({ detail }) => detail },
];

/**
 * Returns the question for all objects that match a text. The kind with the best match is first. `limit` is the maximum
 * number of results of a kind.
 */
export function askSearch(text: string, limit: number): Question {
  return async (ask, view) => {
    const document = (await ask(withQuery('/v1/search', { q: text, limit }))) as SearchDocument;
    const results = document.groups.flatMap(({ items }) => items);
    if (results.length === 0) return withIncomplete(ask, { ...notFoundAnswer(text), json: document });
    const cut = document.groups.filter(({ total, items }) => total > items.length).map(({ kind }) => kind);
    return withIncomplete(ask, {
      json: document,
      lines: [
        ...documentTable(RESULT_COLUMNS, results, view),
        ...(cut.length === 0 ? [] : [`There are more results (${cut.join(', ')}): see --limit.`]),
        ...(document.truncated
          ? ['Not all names were compared: use an exact name, such as NAMESPACE/NAME.']
          : []),
      ],
      succeeded: true,
      names: results.map(({ key }) => key),
    });
  };
}
