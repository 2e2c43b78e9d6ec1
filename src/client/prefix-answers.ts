import type { Ask } from '../api/api-client.ts';
import type { EntryDocument, ExplanationDocument } from '../api/documents.ts';
import { namePath } from '../api/name-path.ts';
import type { DecidingRule } from '../ipcache/types.ts';
import { ownerCluster } from '../model/source.ts';
import { comparePrefixes, Prefix } from '../net/prefix.ts';
import { localTimeText } from '../process/terminal.ts';
import {
  type Answer,
  ageText,
  type Column,
  findDocument,
  identityCell,
  notFoundAnswer,
  objectLines,
  podCell,
  portsCell,
  type Question,
  type View,
  withIncomplete,
} from './answer.ts';
import { incompleteTexts } from './cluster-text.ts';
import { pastLines, uncertaintyLines } from './history-answers.ts';
import { type ListFilters, type PrintedList, printedList, withQuery } from './list.ts';

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
  { title: 'POD', cell: podCell },
  { title: 'SERVICE ACCOUNT', cell: ({ serviceAccount }) => serviceAccount ?? '-', wide: true },
  { title: 'PORTS', cell: ({ namedPorts = {} }) => portsCell(namedPorts), wide: true },
  { title: 'LABELS', cell: ({ labels = [] }) => labels.join(' ') || '-', wide: true },
];

const NO_PREFIX =
  'No prefixes. Sources are set with --load, --kvstore or --clustermesh-config; dpcache status prints their progress.';

function byPrefix(entries: readonly EntryDocument[]): readonly EntryDocument[] {
  const keyed = entries.flatMap((entry) => {
    const prefix = Prefix.parseAnnotated(entry.prefix);
    return prefix === undefined ? [] : [{ prefix, entry }];
  });
  return keyed.sort((a, b) => comparePrefixes(a.prefix, b.prefix)).map(({ entry }) => entry);
}

/** Returns the listing of visible prefixes; with the filter `at`, of that moment. */
export function listPrefixes(filters: ListFilters): PrintedList {
  const isFiltered = Object.values(filters).some((value) => value !== undefined);
  return printedList<EntryDocument>({
    path: '/v1/ipcache',
    filters,
    columns: PREFIX_COLUMNS,
    nameOf: ({ prefix }) => prefix,
    hint: isFiltered ? 'No matching prefixes.' : NO_PREFIX,
    sort: byPrefix,
    footer: (past) => [`as of ${localTimeText(past.at)}`, ...uncertaintyLines(past)],
  });
}

/** Sources that read the kvstore of a cluster, or a checkpoint of it. */
const CLUSTER_SOURCES: ReadonlySet<string> = new Set(['kvstore', 'clustermesh', 'restored']);

/** Returns the question for one entry: by IP, the entry of the longest matching prefix; by CIDR, exactly its entry. */
export function getPrefix(key: string, at?: string): Question {
  return async (ask, view) => {
    if (at !== undefined) return pastAnswer(key, at, ask, view);
    const entry = await findEntry(ask, key);
    if (entry === undefined) return withIncomplete(ask, notFoundAnswer(key));
    const lines = objectLines(PREFIX_COLUMNS, [entry], view);
    const answer = { json: entry, lines, succeeded: true, names: [entry.prefix] };
    if (!CLUSTER_SOURCES.has(entry.source)) return answer;
    const cluster = ownerCluster(entry.owner ?? '');
    return withIncomplete(ask, answer, ({ name, local }) => (cluster === '' ? local : name === cluster));
  };
}

async function findEntry(ask: Ask, key: string): Promise<EntryDocument | undefined> {
  if (!key.includes('/')) return findDocument(ask, `/v1/ipcache/lookup/${encodeURIComponent(key)}`);
  const page = await ask(withQuery('/v1/ipcache', { prefix: key }));
  return (page as { readonly items: readonly EntryDocument[] }).items[0];
}

async function pastAnswer(key: string, at: string, ask: Ask, view: View): Promise<Answer> {
  const path = withQuery(`/v1/ipcache/explain/${namePath(key)}`, { at });
  const past = await findDocument<ExplanationDocument>(ask, path);
  const [entry] = past?.claims ?? [];
  if (entry === undefined || past?.past === undefined) return notFoundAnswer(`${key} at ${at}`);
  const lines = [...objectLines(PREFIX_COLUMNS, [entry], view), ...pastLines(past.past)];
  return { json: { ...entry, past: past.past }, lines, succeeded: true, names: [entry.prefix] };
}

const RULES: Readonly<Record<DecidingRule, string>> = {
  'only-claim': 'it is the only claim',
  'source-precedence': 'its source is stronger than the source of the next claim',
  'owner-name': 'the sources are equal and the name of its owner sorts first',
  'endpoint-over-cidr': 'the endpoint shadows the CIDR of the same address',
};

/** Returns the entry of the kernel as a line, and the difference from the cache. */
function kernelLines(entry: ExplanationDocument['kernel']): readonly string[] {
  if (entry === undefined) return [];
  const { kernel = 'no entry', cache = 'no entry', failure } = entry;
  if (failure !== undefined) return [`kernel: ${failure}`];
  return [kernel === cache ? `kernel: ${kernel}` : `kernel: ${kernel}; the cache has: ${cache}`];
}

/**
 * Returns the question for all claims on the prefix that {@link getPrefix} finds, the strongest first, and the deciding
 * rule.
 */
export function explainPrefix(key: string): Question {
  return async (ask, view) => {
    const path = namePath(key);
    const explanation = await findDocument<ExplanationDocument>(ask, `/v1/ipcache/explain/${path}`);
    if (explanation === undefined) return key.includes('/') ? notFoundAnswer(key) : unclaimedAnswer(key, ask);
    const { prefix, decidedBy, claims, roles = [] } = explanation;
    const columns: readonly Column<(typeof claims)[number]>[] = [
      { title: '', cell: (claim) => (claim === claims[0] ? '*' : '') },
      { title: 'KEY', cell: ({ key }) => key },
      ...PREFIX_COLUMNS.slice(1).map((column) =>
        column.title === 'KEY' ? { ...column, title: 'ENCRYPT' } : column,
      ),
      { title: 'ORIGIN', cell: ({ origin }) => origin?.text ?? '-' },
    ];
    return {
      json: explanation,
      lines: [
        ...roles.map(({ text }) => `${key}: ${text}`),
        ...(decidedBy === undefined
          ? [`${prefix}: no source claims it, and no prefix contains it`]
          : [
              `${prefix}: the first claim (*) is effective, because ${RULES[decidedBy]}.`,
              ...objectLines(columns, claims, view),
            ]),
        ...kernelLines(explanation.kernel),
        ...(claims.length === 0 ? await incompleteTexts(ask) : []),
      ],
      // An IP that is only in a pod CIDR is unknown.
      succeeded: claims.length > 0 || roles.some(({ as }) => as !== 'pod-cidr'),
    };
  };
}

async function unclaimedAnswer(ip: string, ask: Ask): Promise<Answer> {
  const text = 'no source claims it, and it is in no pod CIDR; dpcache status names incomplete sources';
  return { ...notFoundAnswer(ip), lines: [`${ip}: ${text}`, ...(await incompleteTexts(ask))] };
}
