import type { KeyedEntry } from '../ipcache/types.ts';
import { tunnelEndpoint } from '../nodemanager/address-claims.ts';
import { type AgentStatus, type ClusterStatus, standingText } from './agent-status.ts';
import { type Answer, identityNames, type Knowledge, listServices } from './answers.ts';
import { entryText, type IdentityName } from './change-text.ts';
import { rejectedText } from './rejection-report.ts';
import { ascending, prefixOfKey } from './state-document.ts';
import { alignColumns, printable, type Terminal } from './terminal.ts';

/** `339 prefixes, 12 nodes, 5 services with 156 backends`. */
export function totalsText({ ipcache, nodes, services }: Knowledge): string {
  const { entries, shadowed } = ipcache.status();
  const { announced, backends } = services.status();
  return `${entries - shadowed} prefixes, ${nodes.size} nodes, ${announced} services with ${backends} backends`;
}

function clusterRow({ name, own, id, state, keys, rejected }: ClusterStatus): readonly string[] {
  const held = [keys.nodes, keys.services, keys.identities, keys.ip].map((count) => String(count ?? '-'));
  return [`${name}${own ? ' (own)' : ''}`, String(id), state, ...held, String(rejected)];
}

const CLUSTER_HEADER = ['CLUSTER', 'ID', 'STATE', 'NODES', 'SERVICES', 'IDENTITIES', 'IPS', 'REJECTED'];

function clusterLines(clusters: readonly ClusterStatus[]): readonly string[] {
  return alignColumns([CLUSTER_HEADER, ...clusters.map((cluster) => clusterRow(cluster).map(printable))]);
}

function clusterDetail(cluster: ClusterStatus): string {
  const { name, failures, lastFailure, lastFailureAt } = cluster;
  const failed = failures === 0 ? '' : `, ${failures} failures`;
  const last = lastFailure === undefined ? '' : `, the last at ${lastFailureAt}: ${lastFailure}`;
  return `${name}: ${standingText(cluster)}${failed}${last}`;
}

/** How the clusters of the mesh stand, for `dpcache clustermesh status`. */
export function clustermeshAnswer(_knowledge: Knowledge, status: AgentStatus): Answer {
  const { cluster, clusterID, clusters, configProblems } = status;
  const lines = [
    ...clusterLines(clusters),
    '',
    ...clusters.map(clusterDetail).map(printable),
    ...configProblems.map(printable),
  ];
  return { json: { cluster, clusterID, clusters, configProblems }, lines, found: true };
}

/** How the agent stands, for `dpcache status`. */
export function statusAnswer(knowledge: Knowledge, status: AgentStatus): Answer {
  const { overruled, shadowed } = status.ipcache;
  const rejected = rejectedText(status.rejected);
  const failed = status.clusters.filter(({ lastFailure }) => lastFailure !== undefined);
  const lines = [
    ...clusterLines(status.clusters),
    ...failed.map(({ name, lastFailure }) => `${name}: ${lastFailure}`).map(printable),
    ...status.configProblems.map(printable),
    '',
    `${totalsText(knowledge)}; ${overruled} claims overruled, ${shadowed} CIDRs hidden by an IP.`,
    `${rejected[0]?.toUpperCase()}${rejected.slice(1)}.`,
    ...status.rejected.recent.map((message) => `  ${printable(message)}`),
  ];
  return { json: status, lines, found: true };
}

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

/** Shows a person what is known, without going through all of it. */
export function showState(knowledge: Knowledge, status: AgentStatus, terminal: Terminal): void {
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
  section('Services', cut(listServices(knowledge).lines, 'services', 'dpcache service list'));
  section(
    'Some prefixes (all of them: dpcache ipcache list)',
    sampleLines(knowledge, identityNames(knowledge)),
  );
}
