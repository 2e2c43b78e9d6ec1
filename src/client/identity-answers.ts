import type { IdentityDocument } from '../api/documents.ts';
import { reservedIdentityName } from '../model/numeric-identity.ts';
import {
  type Column,
  findDocument,
  notFoundAnswer,
  objectLines,
  type Question,
  restoredText,
} from './answer.ts';
import { type ListFilters, type PrintedList, printedList } from './list.ts';

const IDENTITY_COLUMNS: readonly Column<IdentityDocument>[] = [
  { title: 'IDENTITY', cell: ({ identity }) => reservedIdentityName(identity) ?? String(identity) },
  {
    title: 'CLUSTER',
    cell: ({ cluster, restored }) => [cluster ?? '-', restoredText(restored)].filter(Boolean).join(', '),
  },
  { title: 'PREFIXES', cell: ({ prefixes }) => String(prefixes) },
  { title: 'LABELS', cell: ({ labels }) => labels.join(' ') || '-' },
];

/** Returns the listing of identities with their labels. */
export function listIdentities(filters: ListFilters): PrintedList {
  return printedList<IdentityDocument>({
    path: '/v1/identities',
    filters,
    columns: IDENTITY_COLUMNS,
    nameOf: ({ identity }) => String(identity),
    hint: 'No identities.',
    sort: (identities) => [...identities].sort((a, b) => a.identity - b.identity),
  });
}

export function getIdentity(identity: number): Question {
  return async (ask, view) => {
    const known = await findDocument<IdentityDocument>(ask, `/v1/identities/${identity}`);
    if (known === undefined) return notFoundAnswer(String(identity));
    const lines = objectLines(IDENTITY_COLUMNS, [known], view);
    return { json: known, lines, succeeded: true, names: [String(known.identity)] };
  };
}
