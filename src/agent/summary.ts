import { ascending, prefixOfKey, type ServiceDocument, serviceDocument } from '../api/documents.ts';
import type { Knowledge } from '../api/read-model.ts';
import type { ClustermeshDocument } from '../api/schemas.ts';
import type { ClusterDocument, KubernetesDocument, StatusDocument } from '../api/status-document.ts';
import type { KeyedEntry } from '../ipcache/types.ts';
import { tunnelEndpoint } from '../nodemanager/address-claims.ts';
import { standingText } from './agent-status.ts';
import type { Question } from './answer.ts';
import { entryText, type IdentityName, identityNames } from './change-text.ts';
import { rejectedText } from './rejection-report.ts';
import { serviceLines } from './service-answers.ts';
import { openSteps } from './step-text.ts';
import { alignColumns, printable, type Terminal } from './terminal.ts';

/** `339 prefixes, 12 nodes, 5 services with 156 backends`. */
export function totalsText({ ipcache, nodes, services }: Knowledge): string {
  const { entries, shadowed } = ipcache.status();
  const { announced, backends } = services.status();
  return `${entries - shadowed} prefixes, ${nodes.size} nodes, ${announced} services with ${backends} backends`;
}

function clusterRow({ name, own, id, state, keys, rejected }: ClusterDocument): readonly string[] {
  const held = [keys.nodes, keys.services, keys.identities, keys.ip].map((count) => String(count ?? '-'));
  return [`${name}${own ? ' (own)' : ''}`, String(id), state, ...held, String(rejected)];
}

const CLUSTER_HEADER = ['CLUSTER', 'ID', 'STATE', 'NODES', 'SERVICES', 'IDENTITIES', 'IPS', 'REJECTED'];

function clusterLines(clusters: readonly ClusterDocument[]): readonly string[] {
  return alignColumns([CLUSTER_HEADER, ...clusters.map((cluster) => clusterRow(cluster).map(printable))]);
}

function clusterDetail(cluster: ClusterDocument): string {
  const { name, failures, lastFailure, lastFailureAt } = cluster;
  const failed = failures === 0 ? '' : `, ${failures} failures`;
  const last = lastFailure === undefined ? '' : `, the last at ${lastFailureAt}: ${lastFailure}`;
  return `${name}: ${standingText(cluster)}${failed}${last}`;
}

/** How the clusters of the mesh stand, for `dpcache clustermesh status`. */
export const askClustermesh: Question = async (ask) => {
  const clustermesh = (await ask('/v1/clustermesh')) as ClustermeshDocument;
  const { clusters, configProblems } = clustermesh;
  const lines = [
    ...clusterLines(clusters),
    '',
    ...clusters.map(clusterDetail).map(printable),
    ...configProblems.map(printable),
  ];
  return { json: clustermesh, lines, found: true };
};

/** A line for each kind of Kubernetes object, and what is wrong with it. */
function kubernetesLines(kubernetes: KubernetesDocument | undefined): readonly string[] {
  if (kubernetes === undefined) return [];
  const rows = kubernetes.kinds.map((kind) => {
    const { name, state, complete, objects, rejected, lists, lagMs, lastFailure = '' } = kind;
    const isWhole = complete || state === 'resting' || state === 'missing';
    const why = state === 'watching' || state === 'resting' ? '' : lastFailure;
    const said = lagMs === undefined || state === 'resting' ? '-' : `${Math.round(lagMs / 1000)} s ago`;
    const counts = [objects, rejected, Math.max(0, lists - 1)].map(String);
    return [name, state, ...counts, said, [isWhole ? '' : 'not complete', why].filter(Boolean).join(': ')];
  });
  const head = ['KIND', 'STATE', 'OBJECTS', 'REJECTED', 'RELISTS', 'HEARD', ''];
  const table = alignColumns([head, ...rows.map((row) => row.map(printable))]);
  return ['', `Kubernetes at ${printable(kubernetes.server)}:`, ...table];
}

/** How the agent stands, for `dpcache status`. */
export const askStatus: Question = async (ask) => {
  const status = (await ask('/v1/status')) as StatusDocument;
  const { clusters, ipcache, nodes, services, rejected, configProblems, steps } = status;
  const failed = clusters.filter(({ lastFailure }) => lastFailure !== undefined);
  const counts = `${ipcache.prefixes} prefixes, ${nodes.nodes} nodes, ${services.announced} services with ${services.backends} backends`;
  const sentence = rejectedText(rejected);
  const restored = status.checkpoint?.restored ?? [];
  const open = openSteps(steps).flatMap(({ text, waitsFor }) => [
    `${text[0]?.toUpperCase()}${text.slice(1)}`,
    ...waitsFor.map((what) => `  ${what}`),
  ]);
  const lines = [
    ...open.map(printable),
    ...(open.length === 0 ? [] : ['']),
    ...clusterLines(clusters),
    ...failed.map(({ name, lastFailure }) => `${name}: ${lastFailure}`).map(printable),
    ...configProblems.map(printable),
    ...restored.map(({ cluster, knownAt }) =>
      printable(`${cluster}: restored, what was known at ${knownAt}`),
    ),
    ...kubernetesLines(status.kubernetes),
    '',
    `${counts}; ${ipcache.overruled} claims overruled, ${ipcache.shadowed} CIDRs hidden by an IP.`,
    `${sentence[0]?.toUpperCase()}${sentence.slice(1)}.`,
    ...rejected.recent.map((message) => `  ${printable(message)}`),
  ];
  return { json: status, lines, found: true };
};

/** What makes two entries alike enough to show one of them: who says it, and whether there is a pod. */
function sampleKind({ key, source, owner, k8s, identity }: KeyedEntry): string {
  const writer = source === 'clustermesh' || source === 'kvstore' ? owner.split('/', 1)[0] : owner;
  return [source, writer, k8s !== undefined, key.includes('/'), identity < 256].join(' ');
}

const SAMPLES = 8;

/** A few entries that differ in kind, for whoever sees the agent for the first time. */
function sampleEntries({ ipcache }: Knowledge): readonly KeyedEntry[] {
  const samples = new Map<string, KeyedEntry>();
  for (const entry of ipcache.entries()) {
    const kind = sampleKind(entry);
    if (!samples.has(kind)) samples.set(kind, entry);
    if (samples.size === SAMPLES) break;
  }
  return [...samples.values()];
}

function sampleLines(knowledge: Knowledge, nameOf: IdentityName): readonly string[] {
  const rows = sampleEntries(knowledge).map((entry) => [prefixOfKey(entry.key), entryText(entry, nameOf)]);
  return alignColumns(rows.map((row) => row.map(printable)));
}

/** Lists longer than this are cut where a person reads them. */
const LISTED = 12;

function cut(lines: readonly string[], what: string, command: string): readonly string[] {
  if (lines.length <= LISTED + 1) return lines;
  return [...lines.slice(0, LISTED + 1), `… and ${lines.length - LISTED - 1} more ${what}: ${command}`];
}

function nodeLines({ nodes }: Knowledge): readonly string[] {
  const { underlay } = nodes.configuration;
  const rows = [...nodes.nodes()]
    .sort((a, b) => ascending(a.fullName, b.fullName))
    .map((node) => [
      node.fullName,
      tunnelEndpoint(node, underlay) ?? '-',
      [node.ipv4AllocCIDR, node.ipv6AllocCIDR].filter(Boolean).join(' ') || '-',
      node.encryptionKey === 0 ? '-' : String(node.encryptionKey),
    ]);
  return alignColumns([['NODE', 'REACHED AT', 'PODS', 'KEY'], ...rows].map((row) => row.map(printable)));
}

function sortedServices(knowledge: Knowledge): readonly ServiceDocument[] {
  const held = [...knowledge.services.snapshot()].sort(([a], [b]) => ascending(a, b));
  return held.map(([, announced]) => serviceDocument(announced, knowledge));
}

/** Shows a person what is known, without going through all of it. */
export function showState(knowledge: Knowledge, status: StatusDocument, terminal: Terminal): void {
  const section = (title: string, lines: readonly string[]): void => {
    terminal.line(terminal.paint('strong', title));
    for (const line of lines) terminal.line(`  ${line}`);
    terminal.line();
  };
  const { cluster, clusters, kvstore, syncedMs = 0, rejected } = status;
  const complete = clusters.every(({ ready }) => ready) ? 'complete' : 'incomplete';
  const title = `What is where, as seen from cluster ${printable(cluster)}`;
  section(title, [
    `${totalsText(knowledge)}; ${rejected.total} rejected`,
    `kvstore ${kvstore}, ${complete} after ${syncedMs} ms`,
  ]);
  section('Clusters', clusterLines(clusters));
  section('Nodes', cut(nodeLines(knowledge), 'nodes', 'dpcache node list'));
  section(
    'Services',
    cut(serviceLines(sortedServices(knowledge), { wide: false }), 'services', 'dpcache service list'),
  );
  section(
    'Some prefixes (all of them: dpcache ipcache list)',
    sampleLines(knowledge, identityNames(knowledge)),
  );
}
