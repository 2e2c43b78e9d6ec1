import type { Labels } from '../identity/labels.ts';
import type { IPCache } from '../ipcache/ipcache.ts';
import type { DecidingRule, ExplainedClaim, KeyedEntry } from '../ipcache/types.ts';
import { type PortProtocol, protocolName } from '../net/port.ts';
import { comparePrefixes, Prefix } from '../net/prefix.ts';
import type { Node } from '../nodemanager/node.ts';
import type { NodeManager } from '../nodemanager/node-manager.ts';
import type { AnnouncedService } from '../servicecache/announcement.ts';
import type { Endpoints } from '../servicecache/backend.ts';
import type { ServiceCache } from '../servicecache/service-cache.ts';
import { backendsText, type IdentityName, identityText, podText } from './change-text.ts';
import { labelName } from './label-name.ts';
import { ascending, nodeDocument, prefixDocument, prefixOfKey, sortedRecord } from './state-document.ts';
import { alignColumns, printable } from './terminal.ts';

/** What questions are put to. */
export interface Knowledge {
  readonly ipcache: IPCache;
  readonly services: ServiceCache;
  readonly nodes: NodeManager;
  /** The labels of an identity, where they are known. */
  readonly labelsOf: (identity: number) => Labels | undefined;
}

/** What the labels of an identity call it. */
export function identityNames({ labelsOf }: Knowledge): IdentityName {
  return (identity) => {
    const labels = labelsOf(identity);
    return labels && labelName(labels);
  };
}

/** An answer for machines and for people. */
export interface Answer {
  /** Plain data, fit for JSON. */
  readonly json: unknown;
  readonly lines: readonly string[];
  /** Whether there is what was asked for. */
  readonly found: boolean;
}

function table(rows: readonly (readonly string[])[]): readonly string[] {
  return alignColumns(rows.map((row) => row.map(printable)));
}

function byPrefix(entries: readonly KeyedEntry[]): readonly KeyedEntry[] {
  const keyed = entries.flatMap((entry) => {
    const prefix = Prefix.parse(entry.key);
    return prefix === undefined ? [] : [{ prefix, entry }];
  });
  return keyed.sort((a, b) => comparePrefixes(a.prefix, b.prefix)).map(({ entry }) => entry);
}

function prefixRow(entry: KeyedEntry, nameOf: IdentityName): readonly string[] {
  return [
    prefixOfKey(entry.key),
    identityText(entry.identity, nameOf),
    entry.hostIP ?? '-',
    String(entry.encryptKey),
    entry.owner === '' ? entry.source : `${entry.source} (${entry.owner})`,
    podText(entry) ?? '-',
  ];
}

const PREFIX_HEADER = ['PREFIX', 'IDENTITY', 'HOST', 'KEY', 'SOURCE', 'POD'];

function prefixJson(entry: KeyedEntry, { labelsOf }: Knowledge): Readonly<Record<string, unknown>> {
  const { source, owner, k8s } = entry;
  const labels = labelsOf(entry.identity);
  return {
    prefix: prefixOfKey(entry.key),
    ...prefixDocument(entry),
    ...(k8s?.namedPorts?.size && { namedPorts: sortedRecord(k8s.namedPorts, portText) }),
    ...(labels && { labels: labels.map(({ source, key, value }) => `${source}:${key}=${value}`) }),
    source,
    ...(owner && { owner }),
  };
}

/** What to look at where a list is empty. */
function hinted(lines: readonly string[], hint: string): readonly string[] {
  return lines.length > 1 ? lines : [hint];
}

const NO_PREFIX =
  'No prefix is known. What to follow is named with --load, --kvstore or --clustermesh-config; how far it is: dpcache status.';

/** Every visible prefix in the order of addresses; with `identity`, those of that identity only. */
export function listPrefixes(knowledge: Knowledge, identity?: number): Answer {
  const { ipcache } = knowledge;
  const names = identityNames(knowledge);
  const all = [...ipcache.entries()].filter((entry) => identity === undefined || entry.identity === identity);
  const entries = byPrefix(all);
  return {
    json: entries.map((entry) => prefixJson(entry, knowledge)),
    lines: hinted(
      table([PREFIX_HEADER, ...entries.map((entry) => prefixRow(entry, names))]),
      identity === undefined ? NO_PREFIX : `No prefix has identity ${identity}.`,
    ),
    found: true,
  };
}

/** What an IP belongs to (the longest prefix that holds it), or what exactly stands behind a CIDR. */
function find({ ipcache }: Knowledge, key: string): KeyedEntry | undefined {
  return key.includes('/') ? ipcache.lookupByPrefix(key) : ipcache.lookup(key);
}

function nothing(key: string): Answer {
  return { json: null, lines: [`${printable(key)}: nothing is known of it`], found: false };
}

/** See {@link find}. */
export function getPrefix(knowledge: Knowledge, key: string): Answer {
  const entry = find(knowledge, key);
  if (entry === undefined) return nothing(key);
  return {
    json: prefixJson(entry, knowledge),
    lines: table([PREFIX_HEADER, prefixRow(entry, identityNames(knowledge))]),
    found: true,
  };
}

const RULES: Readonly<Record<DecidingRule, string>> = {
  'only-claim': 'it is the only claim',
  'source-precedence': 'its source is stronger than that of the next',
  'owner-name': 'of equal sources, the owner whose name sorts first wins',
  'endpoint-over-cidr': 'an endpoint IP hides the CIDR of the same single address',
};

function claimJson(claim: ExplainedClaim, knowledge: Knowledge): Readonly<Record<string, unknown>> {
  const { key, effective, shadowed } = claim;
  // Of the prefix: the effective claim of a shadowed CIDR is not what anybody is shown.
  return { ...prefixJson(claim, knowledge), key, effective: effective && !shadowed, shadowed };
}

/** Every claim on the prefix that {@link getPrefix} finds, strongest first, and the rule that decided. */
export function explainPrefix(knowledge: Knowledge, key: string): Answer {
  const entry = find(knowledge, key);
  const explanation = entry && knowledge.ipcache.explain(entry.key);
  if (explanation?.decidedBy === undefined) return nothing(key);
  const { prefix, claims, decidedBy } = explanation;
  const rows = claims.map((claim, index) => [
    index === 0 ? '*' : '',
    ...prefixRow(claim, identityNames(knowledge)).with(0, claim.key),
  ]);
  return {
    json: { prefix, decidedBy, claims: claims.map((claim) => claimJson(claim, knowledge)) },
    lines: [
      `${prefix}: the first claim (*) is effective, because ${RULES[decidedBy]}.`,
      ...table([
        ['', 'KEY', ...PREFIX_HEADER.slice(1).map((name) => (name === 'KEY' ? 'ENCRYPT' : name))],
        ...rows,
      ]),
    ],
    found: true,
  };
}

/** `8080/TCP`. */
function portText({ port, protocol }: PortProtocol): string {
  return `${port}/${protocolName(protocol)}`;
}

/** Effective backends by address, each with its cluster (the own one: its name is '') and ports by name. */
function backendsJson({ backends }: Endpoints): unknown {
  return sortedRecord(backends, ({ cluster, ports }) => ({ cluster, ports: sortedRecord(ports, portText) }));
}

const NO_SERVICE =
  'No service is known. Services are read from --manifests; what remote clusters offer counts for those that are global.';

function serviceRow([name, { service, endpoints }]: readonly [string, AnnouncedService]): readonly string[] {
  const ports = service.ports
    .entrySeq()
    .map(([name, port]) => (name ? `${name}:${portText(port)}` : portText(port)));
  const flags = [service.global ? 'global' : '', service.shared ? 'shared' : ''].filter(Boolean).join(' ');
  return [
    name,
    service.clusterIPs.join(' ') || (service.addressing === 'headless' ? 'headless' : '-'),
    ports.join(' ') || '-',
    flags || '-',
    backendsText(endpoints.backends),
  ];
}

/** Every announced service with its effective backends. */
export function listServices({ services }: Knowledge): Answer {
  const sorted = [...services.snapshot()].sort(([a], [b]) => ascending(a, b));
  return {
    json: sortedRecord(sorted, ({ service, endpoints }) => ({
      clusterIPs: service.clusterIPs.toArray(),
      ports: sortedRecord(service.ports, portText),
      global: service.global,
      shared: service.shared,
      backends: backendsJson(endpoints),
    })),
    lines: hinted(
      table([['SERVICE', 'CLUSTER IP', 'PORTS', 'MESH', 'BACKENDS'], ...sorted.map(serviceRow)]),
      NO_SERVICE,
    ),
    found: true,
  };
}

const NO_NODE =
  'No node is known. What to follow is named with --load, --kvstore or --clustermesh-config; how far it is: dpcache status.';

function nodeRow(node: Node): readonly string[] {
  return [
    node.fullName,
    node.source,
    node.addresses.map(({ type, ip }) => `${type}=${ip}`).join(' ') || '-',
    [node.ipv4AllocCIDR, node.ipv6AllocCIDR].filter(Boolean).join(' ') || '-',
    String(node.encryptionKey),
  ];
}

/** Every node of the mesh. */
export function listNodes({ nodes }: Knowledge): Answer {
  const sorted = [...nodes.nodes()].sort((a, b) => ascending(a.fullName, b.fullName));
  return {
    json: sorted.map((node) => ({ ...nodeDocument(node), source: node.source })),
    lines: hinted(table([['NODE', 'SOURCE', 'ADDRESSES', 'PODS', 'KEY'], ...sorted.map(nodeRow)]), NO_NODE),
    found: true,
  };
}
