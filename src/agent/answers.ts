import { ApiError, type Ask } from '../api/api-client.ts';
import type {
  BackendDocument,
  EntryDocument,
  ExplanationDocument,
  IdentityDocument,
  NodeDocument,
  ServiceDocument,
} from '../api/documents.ts';
import type { RestoredDocument } from '../api/read-model.ts';
import type { ExplainedNodeDocument, ExplainedServiceDocument } from '../api/schemas.ts';
import { cutText } from '../base/show-value.ts';
import { reservedIdentityName } from '../identity/numeric-identity.ts';
import type { DecidingRule } from '../ipcache/types.ts';
import { comparePrefixes, Prefix } from '../net/prefix.ts';
import { backendsText, identityText } from './change-text.ts';
import { labelName } from './label-name.ts';
import { alignColumns, printable } from './terminal.ts';

/** An answer for machines and for people. */
export interface Answer {
  /** Plain data, fit for JSON. */
  readonly json: unknown;
  readonly lines: readonly string[];
  /** Whether there is what was asked for. */
  readonly found: boolean;
  /** The keys of what there is, of lists and of what is got by its key. */
  readonly names?: readonly string[];
}

/** How an answer is shown to people. */
export interface View {
  /** All columns, at their full width. */
  readonly wide: boolean;
  /** So many characters fit into a line; default: any. */
  readonly width?: number | undefined;
}

/** Something that can be asked of an agent: a running one, or one that ends with the answer. */
export type Question = (ask: Ask, view: View) => Promise<Answer>;

/** Filters of a list by the name of the parameter; what is undefined is left out. */
export type ListFilters = Readonly<Record<string, string | number | undefined>>;

/** A part of a list, as the API gives it. */
interface PageDocument<T> {
  readonly items: readonly T[];
  readonly continue?: string;
}

/** Rows as a table, safe for a terminal and, unless it is wide, no wider than that is. */
export function table(
  rows: readonly (readonly string[])[],
  { wide, width = Number.POSITIVE_INFINITY }: View,
): readonly string[] {
  const lines = alignColumns(rows.map((row) => row.map(printable)));
  return wide ? lines : lines.map((line) => cutText(line, width));
}

/** A table of documents with a column for each of `columns`; those that are wide only in a wide view. */
interface Column<T> {
  readonly title: string;
  readonly cell: (document: T) => string;
  readonly wide?: true;
}

function listed<T>(columns: readonly Column<T>[], documents: readonly T[], view: View): readonly string[] {
  const shown = columns.filter(({ wide }) => view.wide || wide === undefined);
  const rows = documents.map((document) => shown.map(({ cell }) => cell(document)));
  return table([shown.map(({ title }) => title), ...rows], view);
}

/** What to look at where a list is empty. */
function hinted(lines: readonly string[], hint: string): readonly string[] {
  return lines.length > 1 ? lines : [hint];
}

function query(filters: ListFilters): string {
  const given = new URLSearchParams();
  for (const [name, value] of Object.entries(filters)) {
    if (value !== undefined) given.set(name, String(value));
  }
  return given.toString();
}

/** All of a list, page by page. The shape is the API's promise, which its own tests hold it to. */
async function listAll<T>(ask: Ask, path: string, filters: ListFilters): Promise<readonly T[]> {
  const items: T[] = [];
  let page = (await ask(`${path}?${query({ ...filters, limit: 1000 })}`)) as PageDocument<T>;
  items.push(...page.items);
  while (page.continue !== undefined) {
    page = (await ask(`${path}?${query({ continue: page.continue, limit: 1000 })}`)) as PageDocument<T>;
    items.push(...page.items);
  }
  return items;
}

/** The document at a path; `undefined` when the API says that there is none. */
async function find<T>(ask: Ask, path: string): Promise<T | undefined> {
  try {
    return (await ask(path)) as T;
  } catch (error) {
    if (error instanceof ApiError && error.problem?.status === 404) return undefined;
    throw error;
  }
}

function nothing(what: string): Answer {
  return { json: null, lines: [`${printable(what)}: nothing is known of it`], found: false };
}

/** `66536 (app=checkout)`, `health`. */
export function identityCell(identity: number, labels: readonly string[] | undefined): string {
  return identityText(identity, () => labels && labelName(labels.map(labelOfText)));
}

function labelOfText(text: string): { source: string; key: string; value: string } {
  const [, source = '', key = '', value = ''] = /^([^:]*):([^=]*)=?(.*)$/s.exec(text) ?? [];
  return { source, key, value };
}

/** `5 min old`; `''` for what a source has said. */
function ageText(restored: RestoredDocument | undefined): string {
  if (restored === undefined) return '';
  const { ageSeconds } = restored;
  if (ageSeconds < 120) return `${ageSeconds} s old`;
  return ageSeconds < 7200
    ? `${Math.round(ageSeconds / 60)} min old`
    : `${Math.round(ageSeconds / 3600)} h old`;
}

/** `restored, 5 min old`. */
function restoredText(restored: RestoredDocument | undefined): string {
  return restored === undefined ? '' : `restored, ${ageText(restored)}`;
}

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
    const path = key.split('/').map(encodeURIComponent).join('/');
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

const NO_SERVICE =
  'No service is known. Services are read from --manifests; what remote clusters offer counts for those that are global.';

function portsCell(ports: Readonly<Record<string, string>>): string {
  const named = Object.entries(ports).map(([name, port]) => (name === '' ? port : `${name}:${port}`));
  return named.join(' ') || '-';
}

/** What services and nodes are called: `namespace/name`, `cluster/name`. */
function serviceName({ namespace, name }: ServiceDocument): string {
  return `${namespace}/${name}`;
}

const SERVICE_COLUMNS: readonly Column<ServiceDocument>[] = [
  { title: 'SERVICE', cell: serviceName },
  { title: 'TYPE', cell: ({ type }) => type, wide: true },
  { title: 'CLUSTER IP', cell: ({ clusterIPs }) => clusterIPs.join(' ') || '-' },
  { title: 'PORTS', cell: ({ ports }) => portsCell(ports) },
  {
    title: 'MESH',
    cell: ({ global, shared, restored }) =>
      [global ? 'global' : '', shared ? 'shared' : '', restoredText(restored)].filter(Boolean).join(' ') ||
      '-',
  },
  { title: 'AFFINITY', cell: ({ affinity }) => affinity || '-', wide: true },
  { title: 'BACKENDS', cell: ({ backends }) => backendsText(backends) },
  {
    title: 'ADDRESSES',
    cell: ({ backends }) => backends.map(({ address }) => address).join(' ') || '-',
    wide: true,
  },
];

/** Services for people. */
export function serviceLines(services: readonly ServiceDocument[], view: View): readonly string[] {
  return hinted(listed(SERVICE_COLUMNS, services, view), NO_SERVICE);
}

/** Announced services with their effective backends, by namespace and name. */
export function listServices(filters: ListFilters): Question {
  return async (ask, view) => {
    const services = await listAll<ServiceDocument>(ask, '/v1/services', filters);
    const lines = serviceLines(services, view);
    return { json: services, lines, found: true, names: services.map(serviceName) };
  };
}

function servicePath(name: string): string {
  return `/v1/services/${name.split('/').map(encodeURIComponent).join('/')}`;
}

const BACKEND_COLUMNS: readonly Column<BackendDocument>[] = [
  { title: 'BACKEND', cell: ({ address }) => address },
  { title: 'CLUSTER', cell: ({ cluster }) => cluster ?? 'local' },
  { title: 'NODE', cell: ({ nodeName }) => nodeName ?? '-' },
  { title: 'ZONE', cell: ({ zone }) => zone ?? '-', wide: true },
  { title: 'PORTS', cell: ({ ports }) => portsCell(ports) },
  { title: 'STATE', cell: ({ state }) => state },
];

/** A service with each of its backends. */
export function getService(name: string): Question {
  return async (ask, view) => {
    const service = await find<ExplainedServiceDocument>(ask, servicePath(name));
    if (service === undefined) return nothing(name);
    const { explain: _, ...document } = service;
    return {
      json: document,
      lines: [
        ...listed(SERVICE_COLUMNS, [service], view),
        '',
        ...listed(BACKEND_COLUMNS, service.backends, view),
      ],
      found: true,
      names: [serviceName(service)],
    };
  };
}

const VERDICTS: Readonly<Record<ExplainedServiceDocument['explain']['backends'][number]['verdict'], string>> =
  {
    effective: 'effective',
    overruled: 'overruled by a stronger claim on the address',
    'not-global': 'out: the service includes no other clusters',
    'not-ready': 'out: not ready',
    affinity: 'out: the service prefers backends of others',
  };

/** Who offers which backend to a service, and what became of each. */
export function explainService(name: string): Question {
  return async (ask, view) => {
    const service = await find<ExplainedServiceDocument>(ask, servicePath(name));
    if (service === undefined) return nothing(name);
    const { explain } = service;
    const rows = explain.backends.map((backend) => [
      backend.address,
      backend.cluster ?? 'local',
      backend.slice || '-',
      VERDICTS[backend.verdict],
    ]);
    return {
      json: explain,
      lines: [
        `${printable(name)}: ${backendsText(service.backends)} of ${explain.backends.length} that are offered are effective.`,
        ...table([['BACKEND', 'CLUSTER', 'SLICE', 'VERDICT'], ...rows], view),
      ],
      found: true,
    };
  };
}

const NO_NODE =
  'No node is known. What to follow is named with --load, --kvstore or --clustermesh-config; how far it is: dpcache status.';

function nodeName({ cluster, name }: NodeDocument): string {
  return `${cluster}/${name}`;
}

const NODE_COLUMNS: readonly Column<NodeDocument>[] = [
  { title: 'NODE', cell: nodeName },
  {
    title: 'SOURCE',
    cell: ({ source, restored }) => [source, ageText(restored)].filter(Boolean).join(', '),
  },
  {
    title: 'ADDRESSES',
    cell: ({ addresses }) => addresses.map(({ type, ip }) => `${type}=${ip}`).join(' ') || '-',
  },
  {
    title: 'PODS',
    cell: ({ ipv4AllocCIDR, ipv6AllocCIDR }) =>
      [ipv4AllocCIDR, ipv6AllocCIDR].filter(Boolean).join(' ') || '-',
  },
  { title: 'KEY', cell: ({ encryptionKey }) => String(encryptionKey) },
  {
    title: 'HEALTH',
    cell: ({ ipv4HealthIP, ipv6HealthIP }) => [ipv4HealthIP, ipv6HealthIP].filter(Boolean).join(' ') || '-',
    wide: true,
  },
  {
    title: 'LABELS',
    cell: ({ labels }) =>
      Object.entries(labels)
        .map(([key, value]) => `${key}=${value}`)
        .join(' ') || '-',
    wide: true,
  },
];

/** Nodes by cluster and name. */
export function listNodes(filters: ListFilters): Question {
  return async (ask, view) => {
    const nodes = await listAll<NodeDocument>(ask, '/v1/nodes', filters);
    const lines = hinted(listed(NODE_COLUMNS, nodes, view), NO_NODE);
    return { json: nodes, lines, found: true, names: nodes.map(nodeName) };
  };
}

/** A node, and what each source says of it. */
export function getNode(name: string): Question {
  return async (ask, view) => {
    const path = name.split('/').map(encodeURIComponent).join('/');
    const node = await find<ExplainedNodeDocument>(ask, `/v1/nodes/${path}`);
    if (node === undefined) return nothing(name);
    const { claims, heldBack, lostAddresses } = node.explain;
    const lost = lostAddresses.map(
      ({ ip, holder }) =>
        `${ip}: held by ${holder === undefined ? 'no writer: the IPCache has no room' : `${holder.source} ${holder.owner}`.trim()}`,
    );
    return {
      json: node,
      lines: [
        ...listed(NODE_COLUMNS, claims, view),
        ...(claims.length > 1 ? ['The first claim is effective; the others are overruled.'] : []),
        ...(heldBack ? ['Its last change is held back from handlers.'] : []),
        ...lost.map(printable),
      ],
      found: true,
      names: [name],
    };
  };
}
