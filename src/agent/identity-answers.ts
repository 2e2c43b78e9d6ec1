import type { IdentityDocument } from '../api/documents.ts';
import { reservedIdentityName } from '../identity/numeric-identity.ts';
import {
  type Column,
  find,
  hinted,
  type ListFilters,
  listAll,
  listed,
  nothing,
  type Question,
  restoredText,
} from './answer.ts';

const IDENTITY_COLUMNS: readonly Column<IdentityDocument>[] = [
  { title: 'IDENTITY', cell: ({ identity }) => reservedIdentityName(identity) ?? String(identity) },
  {
    title: 'CLUSTER',
    cell: ({ cluster, restored }) => [cluster ?? '-', restoredText(restored)].filter(Boolean).join(', '),
  },
  { title: 'PREFIXES', cell: ({ prefixes }) => String(prefixes) },
  { title: 'LABELS', cell: ({ labels }) => labels.join(' ') || '-' },
];

/** Identities by number. */
export function listIdentities(filters: ListFilters): Question {
  return async (ask, view) => {
    const all = await listAll<IdentityDocument>(ask, '/v1/identities', filters);
    const identities = [...all].sort((a, b) => a.identity - b.identity);
    return {
      json: identities,
      lines: hinted(listed(IDENTITY_COLUMNS, identities, view), 'No identity is known.'),
      found: true,
      names: identities.map((known) => String(known.identity)),
    };
  };
}

/** The labels of an identity. */
export function getIdentity(identity: number): Question {
  return async (ask, view) => {
    const known = await find<IdentityDocument>(ask, `/v1/identities/${identity}`);
    if (known === undefined) return nothing(String(identity));
    const lines = listed(IDENTITY_COLUMNS, [known], view);
    return { json: known, lines, found: true, names: [String(known.identity)] };
  };
}
