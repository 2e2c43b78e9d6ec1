import { ApiError, type Ask } from '../api/api-client.ts';
import type {
  BackendDocument,
  EntryDocument,
  ExplanationDocument,
  IdentityDocument,
  NodeDocument,
  ServiceDocument,
} from '../api/documents.ts';
import type { ExplainedNodeDocument, ExplainedServiceDocument } from '../api/schemas.ts';
import { reservedIdentityName } from '../identity/numeric-identity.ts';
import type { DecidingRule } from '../ipcache/types.ts';
import { comparePrefixes, Prefix } from '../net/prefix.ts';
import { labelName } from './label-name.ts';
import { alignColumns, printable } from './terminal.ts';

/** An answer for machines and for people. */
export interface Answer {
  /** Plain data, fit for JSON. */
  readonly json: unknown;
  readonly lines: readonly string[];
  /** Whether there is what was asked for. */
  readonly found: boolean;
}

/** Something that can be asked of an agent: a running one, or one that ends with the answer. */
export type Question = (ask: Ask) => Promise<Answer>;

/** Filters of a list by the name of the parameter; what is undefined is left out. */
export type ListFilters = Readonly<Record<string, string | number | undefined>>;

/** A part of a list, as the API gives it. */
interface PageDocument<T> {
  readonly items: readonly T[];
  readonly continue?: string;
}

/** Rows as a table, safe for a terminal. */
export function table(rows: readonly (readonly string[])[]): readonly string[] {
  return alignColumns(rows.map((row) => row.map(printable)));
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
  const reserved = reservedIdentityName(identity);
  if (reserved !== undefined) return reserved;
  const name = labels && labelName(labels.map(labelOfText));
  return name === undefined ? String(identity) : `${identity} (${name})`;
}

function labelOfText(text: string): { source: string; key: string; value: string } {
  const [, source = '', key = '', value = ''] = /^([^:]*):([^=]*)=?(.*)$/s.exec(text) ?? [];
  return { source, key, value };
}

const PREFIX_HEADER = ['PREFIX', 'IDENTITY', 'HOST', 'KEY', 'SOURCE', 'POD'];

function prefixRow(entry: EntryDocument): readonly string[] {
  const { prefix, identity, labels, hostIP, encryptKey, source, owner, namespace, podName } = entry;
  return [
    prefix,
    identityCell(identity, labels),
    hostIP ?? '-',
    String(encryptKey),
    owner === undefined ? source : `${source} (${owner})`,
    podName === undefined && namespace === undefined ? '-' : `${namespace ?? ''}/${podName ?? ''}`,
  ];
}

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
  return async (ask) => {
    const entries = byPrefix(await listAll<EntryDocument>(ask, '/v1/ipcache', filters));
    const some = Object.values(filters).some((value) => value !== undefined);
    return {
      json: entries,
      lines: hinted(table([PREFIX_HEADER, ...entries.map(prefixRow)]), some ? 'No prefix is so.' : NO_PREFIX),
      found: true,
    };
  };
}

/** What an IP belongs to (the longest prefix that holds it), or what exactly stands behind a CIDR. */
export function getPrefix(key: string): Question {
  return async (ask) => {
    const entry = key.includes('/')
      ? (await listAll<EntryDocument>(ask, '/v1/ipcache', { prefix: key }))[0]
      : await find<EntryDocument>(ask, `/v1/ipcache/lookup/${encodeURIComponent(key)}`);
    if (entry === undefined) return nothing(key);
    return { json: entry, lines: table([PREFIX_HEADER, prefixRow(entry)]), found: true };
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
  return async (ask) => {
    const path = key.split('/').map(encodeURIComponent).join('/');
    const explanation = await find<ExplanationDocument>(ask, `/v1/ipcache/explain/${path}`);
    if (explanation === undefined) return nothing(key);
    const { prefix, decidedBy, claims } = explanation;
    const rows = claims.map((claim, index) => [
      index === 0 ? '*' : '',
      ...prefixRow({ ...claim, prefix: claim.key }),
    ]);
    return {
      json: explanation,
      lines: [
        `${prefix}: the first claim (*) is effective, because ${RULES[decidedBy]}.`,
        ...table([['', 'KEY', 'IDENTITY', 'HOST', 'ENCRYPT', 'SOURCE', 'POD'], ...rows]),
      ],
      found: true,
    };
  };
}

const IDENTITY_HEADER = ['IDENTITY', 'CLUSTER', 'PREFIXES', 'LABELS'];

function identityRow({ identity, cluster, prefixes, labels }: IdentityDocument): readonly string[] {
  const reserved = reservedIdentityName(identity);
  return [reserved ?? String(identity), cluster ?? '-', String(prefixes), labels.join(' ') || '-'];
}

/** Identities by number. */
export function listIdentities(filters: ListFilters): Question {
  return async (ask) => {
    const all = await listAll<IdentityDocument>(ask, '/v1/identities', filters);
    const identities = [...all].sort((a, b) => a.identity - b.identity);
    return {
      json: identities,
      lines: hinted(table([IDENTITY_HEADER, ...identities.map(identityRow)]), 'No identity is known.'),
      found: true,
    };
  };
}

/** The labels of an identity. */
export function getIdentity(identity: number): Question {
  return async (ask) => {
    const known = await find<IdentityDocument>(ask, `/v1/identities/${identity}`);
    if (known === undefined) return nothing(String(identity));
    return { json: known, lines: table([IDENTITY_HEADER, identityRow(known)]), found: true };
  };
}

const NO_SERVICE =
  'No service is known. Services are read from --manifests; what remote clusters offer counts for those that are global.';

/** `24 backends (12 baltic, 12 caspian)`. */
export function backendsCell(backends: readonly BackendDocument[]): string {
  const byCluster = new Map<string, number>();
  for (const { cluster = '' } of backends) byCluster.set(cluster, (byCluster.get(cluster) ?? 0) + 1);
  const parts = [...byCluster].sort().map(([cluster, count]) => `${count} ${cluster || 'local'}`);
  const counted = `${backends.length} backend${backends.length === 1 ? '' : 's'}`;
  return parts.length === 0 ? counted : `${counted} (${parts.join(', ')})`;
}

function portsCell(ports: Readonly<Record<string, string>>): string {
  const named = Object.entries(ports).map(([name, port]) => (name === '' ? port : `${name}:${port}`));
  return named.join(' ') || '-';
}

const SERVICE_HEADER = ['SERVICE', 'CLUSTER IP', 'PORTS', 'MESH', 'BACKENDS'];

function serviceRow({
  namespace,
  name,
  clusterIPs,
  ports,
  backends,
  ...service
}: ServiceDocument): readonly string[] {
  const flags = [service.global ? 'global' : '', service.shared ? 'shared' : ''].filter(Boolean).join(' ');
  return [
    `${namespace}/${name}`,
    clusterIPs.join(' ') || '-',
    portsCell(ports),
    flags || '-',
    backendsCell(backends),
  ];
}

/** Services for people. */
export function serviceLines(services: readonly ServiceDocument[]): readonly string[] {
  return hinted(table([SERVICE_HEADER, ...services.map(serviceRow)]), NO_SERVICE);
}

/** Announced services with their effective backends, by namespace and name. */
export function listServices(filters: ListFilters): Question {
  return async (ask) => {
    const services = await listAll<ServiceDocument>(ask, '/v1/services', filters);
    return { json: services, lines: serviceLines(services), found: true };
  };
}

function servicePath(name: string): string {
  return `/v1/services/${name.split('/').map(encodeURIComponent).join('/')}`;
}

function backendRow({ address, cluster, nodeName, ports, state }: BackendDocument): readonly string[] {
  return [address, cluster ?? 'local', nodeName ?? '-', portsCell(ports), state];
}

/** A service with each of its backends. */
export function getService(name: string): Question {
  return async (ask) => {
    const service = await find<ExplainedServiceDocument>(ask, servicePath(name));
    if (service === undefined) return nothing(name);
    const { explain: _, ...document } = service;
    return {
      json: document,
      lines: [
        ...table([SERVICE_HEADER, serviceRow(service)]),
        '',
        ...table([['BACKEND', 'CLUSTER', 'NODE', 'PORTS', 'STATE'], ...service.backends.map(backendRow)]),
      ],
      found: true,
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
  return async (ask) => {
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
        `${printable(name)}: ${backendsCell(service.backends)} of ${explain.backends.length} that are offered are effective.`,
        ...table([['BACKEND', 'CLUSTER', 'SLICE', 'VERDICT'], ...rows]),
      ],
      found: true,
    };
  };
}

const NO_NODE =
  'No node is known. What to follow is named with --load, --kvstore or --clustermesh-config; how far it is: dpcache status.';

const NODE_HEADER = ['NODE', 'SOURCE', 'ADDRESSES', 'PODS', 'KEY'];

function nodeRow(node: NodeDocument): readonly string[] {
  return [
    `${node.cluster}/${node.name}`,
    node.source,
    node.addresses.map(({ type, ip }) => `${type}=${ip}`).join(' ') || '-',
    [node.ipv4AllocCIDR, node.ipv6AllocCIDR].filter(Boolean).join(' ') || '-',
    String(node.encryptionKey),
  ];
}

/** Nodes by cluster and name. */
export function listNodes(filters: ListFilters): Question {
  return async (ask) => {
    const nodes = await listAll<NodeDocument>(ask, '/v1/nodes', filters);
    return { json: nodes, lines: hinted(table([NODE_HEADER, ...nodes.map(nodeRow)]), NO_NODE), found: true };
  };
}

/** A node, and what each source says of it. */
export function getNode(name: string): Question {
  return async (ask) => {
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
        ...table([NODE_HEADER, ...claims.map(nodeRow)]),
        ...(claims.length > 1 ? ['The first claim is effective; the others are overruled.'] : []),
        ...(heldBack ? ['Its last change is held back from handlers.'] : []),
        ...lost.map(printable),
      ],
      found: true,
    };
  };
}
