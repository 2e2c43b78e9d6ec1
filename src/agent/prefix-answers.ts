import type { EntryDocument, ExplanationDocument } from '../api/documents.ts';
import type { DecidingRule } from '../ipcache/types.ts';
import { comparePrefixes, Prefix } from '../net/prefix.ts';
import {
  ageText,
  type Column,
  find,
  hinted,
  identityCell,
  type ListFilters,
  listAll,
  listed,
  nothing,
  pathOf,
  portsCell,
  type Question,
} from './answer.ts';

const PREFIX_COLUMNS: readonly Column<EntryDocument>[] = [
  { title: 'PREFIX', cell: ({ prefix }) => prefix },
  { title: 'IDENTITY', cell: ({ identity, labels }) => identityCell(identity, labels) },
  { title: 'HOST', cell: ({ hostIP }) => hostIP ?? '-' },
  { title: 'KEY', cell: ({ encryptKey }) => String(encryptKey) },
  {
    title: 'SOURCE',
    cell: ({ source, owner, restored }) =>
      [owner === undefined ? source : `${source} (${owner})`, ageText(restored)].filter(Boolean).join(', '),
  },
  {
    title: 'POD',
    cell: ({ namespace, podName }) =>
      podName === undefined && namespace === undefined ? '-' : `${namespace ?? ''}/${podName ?? ''}`,
  },
  { title: 'PORTS', cell: ({ namedPorts = {} }) => portsCell(namedPorts), wide: true },
  { title: 'LABELS', cell: ({ labels = [] }) => labels.join(' ') || '-', wide: true },
];

const NO_PREFIX =
  'No prefix is known. What to follow is named with --load, --kvstore or --clustermesh-config; how far it is: dpcache status.';

function byPrefix(entries: readonly EntryDocument[]): readonly EntryDocument[] {
  const keyed = entries.flatMap((entry) => {
    const prefix = Prefix.parse(entry.prefix);
    return prefix === undefined ? [] : [{ prefix, entry }];
  });
  return keyed.sort((a, b) => comparePrefixes(a.prefix, b.prefix)).map(({ entry }) => entry);
}

/** Visible prefixes in the order of addresses. */
export function listPrefixes(filters: ListFilters): Question {
  return async (ask, view) => {
    const entries = byPrefix(await listAll<EntryDocument>(ask, '/v1/ipcache', filters));
    const some = Object.values(filters).some((value) => value !== undefined);
    return {
      json: entries,
      lines: hinted(listed(PREFIX_COLUMNS, entries, view), some ? 'No prefix is so.' : NO_PREFIX),
      found: true,
      names: entries.map(({ prefix }) => prefix),
    };
  };
}

/** What an IP belongs to (the longest prefix that holds it), or what exactly stands behind a CIDR. */
export function getPrefix(key: string): Question {
  return async (ask, view) => {
    const entry = key.includes('/')
      ? (await listAll<EntryDocument>(ask, '/v1/ipcache', { prefix: key }))[0]
      : await find<EntryDocument>(ask, `/v1/ipcache/lookup/${encodeURIComponent(key)}`);
    if (entry === undefined) return nothing(key);
    const lines = listed(PREFIX_COLUMNS, [entry], view);
    return { json: entry, lines, found: true, names: [entry.prefix] };
  };
}

const RULES: Readonly<Record<DecidingRule, string>> = {
  'only-claim': 'it is the only claim',
  'source-precedence': 'its source is stronger than that of the next',
  'owner-name': 'of equal sources, the owner whose name sorts first wins',
  'endpoint-over-cidr': 'an endpoint IP hides the CIDR of the same single address',
};

/** Every claim on the prefix that {@link getPrefix} finds, strongest first, and the rule that decided. */
export function explainPrefix(key: string): Question {
  return async (ask, view) => {
    const path = pathOf(key);
    const explanation = await find<ExplanationDocument>(ask, `/v1/ipcache/explain/${path}`);
    if (explanation === undefined) return nothing(key);
    const { prefix, decidedBy, claims } = explanation;
    const columns: readonly Column<(typeof claims)[number]>[] = [
      { title: '', cell: (claim) => (claim === claims[0] ? '*' : '') },
      { title: 'KEY', cell: ({ key }) => key },
      ...PREFIX_COLUMNS.slice(1).map((column) =>
        column.title === 'KEY' ? { ...column, title: 'ENCRYPT' } : column,
      ),
    ];
    return {
      json: explanation,
      lines: [
        `${prefix}: the first claim (*) is effective, because ${RULES[decidedBy]}.`,
        ...listed(columns, claims, view),
      ],
      found: true,
    };
  };
}
