import { AgentError, type Ask } from '../api/api-client.ts';
import { type ServiceDocument, serviceDocument } from '../api/documents.ts';
import type { HealthProblem, ProblemsDocument } from '../api/problems.ts';
import type { EngineViews } from '../api/read-model.ts';
import type {
  ClusterDocument,
  ClustermeshDocument,
  KindDocument,
  KubernetesDocument,
  StatusDocument,
} from '../api/status-document.ts';
import { counted, nounOf } from '../base/show-value.ts';
import { ascending } from '../base/sorted-map.ts';
import type { IPCache } from '../ipcache/ipcache.ts';
import type { KeyedEntry } from '../ipcache/types.ts';
import { MINIMAL_ALLOCATED_IDENTITY } from '../model/numeric-identity.ts';
import { ownerCluster } from '../model/source.ts';
import { prefixOfKey } from '../net/prefix.ts';
import { tunnelEndpoint } from '../nodemanager/address-claims.ts';
import { rejectedText } from '../process/rejection-report.ts';
import { openSteps } from '../process/step-text.ts';
import { alignColumns, printable, type Terminal } from '../process/terminal.ts';
import { checkedStatus, type Question } from './answer.ts';
import { entryText, type IdentityName, identityNames } from './change-text.ts';
import { clusterStateText } from './cluster-text.ts';
import { serviceLines } from './service-answers.ts';

interface Counts {
  readonly prefixes: number;
  readonly nodes: number;
  readonly services: number;
  readonly backends: number;
}

function countsText({ prefixes, nodes, services, backends }: Counts): string {
  const objects = [
    counted(prefixes, 'prefix', 'prefixes'),
    counted(nodes, 'node'),
    counted(services, 'service'),
  ];
  return `${objects.join(', ')} with ${counted(backends, 'backend')}`;
}

/** Returns the totals: `339 prefixes, 12 nodes, 5 services with 156 backends`. */
export function totalsText({ ipcache, nodes, services }: EngineViews): string {
  const { entries, shadowed } = ipcache.status();
  const { announced, backends } = services.status();
  return countsText({ prefixes: entries - shadowed, nodes: nodes.size, services: announced, backends });
}

function clusterRow(cluster: ClusterDocument): readonly string[] {
  const { name, local, id, state, ready, heartbeat, keys, rejected } = cluster;
  const entries = [keys.nodes, keys.services, keys.identities, keys.ip].map((count) => String(count ?? '-'));
  const word = ready && heartbeat === 'stale' ? 'stale heartbeat' : state;
  return [`${name}${local ? ' (local)' : ''}`, String(id), word, ...entries, String(rejected)];
}

const CLUSTER_HEADER = ['CLUSTER', 'ID', 'STATE', 'NODES', 'SERVICES', 'IDENTITIES', 'IPS', 'REJECTED'];

function clusterLines(clusters: readonly ClusterDocument[]): readonly string[] {
  return alignColumns([CLUSTER_HEADER, ...clusters.map(clusterRow)]);
}

function clusterDetail(cluster: ClusterDocument): string {
  const { name, failures, lastFailure, lastFailureAt, heartbeat } = cluster;
  const beat = heartbeat === 'stale' ? ', heartbeat has not changed for 2 min' : '';
  const failed = failures === 0 ? '' : `, ${counted(failures, 'failure')}`;
  const which = failures === 0 ? 'last failure' : 'the last';
  const last = lastFailure === undefined ? '' : `, ${which} at ${lastFailureAt}: ${lastFailure}`;
  return `${name}: ${clusterStateText(cluster)}${beat}${failed}${last}`;
}

/** Returns the status of each cluster and the open steps of the start, for `dpcache clustermesh status`. */
export const askClustermesh: Question = async (ask) => {
  const clustermesh = (await ask('/v1/clustermesh')) as ClustermeshDocument;
  const { clusters, configProblems, steps } = clustermesh;
  const lines = [
    ...openStepLines(steps),
    ...clusterLines(clusters),
    '',
    ...clusters.map(clusterDetail).map(printable),
    ...configProblems.map(printable),
  ];
  return { json: clustermesh, lines, succeeded: true, names: clusters.map(({ name }) => name) };
};

/** Returns the open steps of the start with their reasons, followed by an empty line; none if all steps are done. */
function openStepLines(steps: StatusDocument['steps']): readonly string[] {
  const open = openSteps(steps).flatMap(({ text, waitsFor }) => [
    `${text[0]?.toUpperCase()}${text.slice(1)}`,
    ...waitsFor.map((what) => `  ${what}`),
  ]);
  return open.length === 0 ? [] : [...open.map(printable), ''];
}

/**
 * Returns for how long changes of a kind have been missed, and when the next attempt is; empty if no changes are
 * missed.
 */
function behindText({ behindMs, retryInMs }: KindDocument): string {
  if (behindMs === undefined) return '';
  const next = retryInMs === undefined ? 'retrying now' : `retrying in ${Math.ceil(retryInMs / 1000)} s`;
  return `behind for ${Math.round(behindMs / 1000)} s, ${next}`;
}

/** Returns one line for each kind of Kubernetes object, with its problem if any. */
function kubernetesLines(kubernetes: KubernetesDocument | undefined): readonly string[] {
  if (kubernetes === undefined) return [];
  const rows = kubernetes.kinds.map((kind) => {
    const { name, state, complete, objects, rejected, lists, lagMs, lastFailure = '' } = kind;
    const isWhole = complete || state === 'resting' || state === 'missing';
    const hasFailed = state !== 'watching' && state !== 'resting' && state !== 'missing';
    const reason = hasFailed ? lastFailure : '';
    const ageText = lagMs === undefined || state === 'resting' ? '-' : `${Math.round(lagMs / 1000)} s ago`;
    const counts = [objects, rejected, Math.max(0, lists - 1)].map(String);
    return [
      name,
      state,
      ...counts,
      ageText,
      [isWhole ? '' : 'incomplete', behindText(kind), reason].filter(Boolean).join(': '),
    ];
  });
  const head = ['KIND', 'STATE', 'OBJECTS', 'REJECTED', 'RELISTS', 'LAST EVENT', ''];
  const table = alignColumns([head, ...rows]);
  return ['', `Kubernetes at ${printable(kubernetes.server)}:`, ...table];
}

/**
 * Returns a line for each problem with its remedy, the worst first, followed by an empty line; none if there are no
 * problems.
 */
export function problemLines(problems: readonly HealthProblem[]): readonly string[] {
  if (problems.length === 0) return [];
  const lines = problems.map(({ severity, subject, text, remedy }) =>
    printable(`  ${severity}: ${subject}: ${text}${remedy === undefined ? '' : ` (${remedy})`}`),
  );
  return ['problems:', ...lines, ''];
}

/** Returns the status of the agent, its problems first, for `dpcache status`. */
export const askStatus: Question = async (ask) => {
  const status = checkedStatus<StatusDocument>(await ask('/v1/status'), 'ipcache', 'an agent');
  const problems = (await ask('/v1/problems')) as ProblemsDocument;
  const { clusters, ipcache, nodes, services, rejected } = status;
  const failed = clusters.filter(({ ready, lastFailure }) => ready && lastFailure !== undefined);
  const counts = countsText({
    prefixes: ipcache.prefixes,
    nodes: nodes.nodes,
    services: services.announced,
    backends: services.backends,
  });
  const sentence = rejectedText(rejected);
  const last = rejected.lastAt === undefined ? '' : `; the last at ${rejected.lastAt}`;
  const lines = [
    ...problemLines(problems.items),
    ...clusterLines(clusters),
    ...failed
      .map(({ name, lastFailure }) => `${name}: last failure, resolved: ${lastFailure}`)
      .map(printable),
    ...kubernetesLines(status.kubernetes),
    '',
    `${counts}; ${counted(ipcache.overruled, 'overruled claim')}, ${counted(ipcache.shadowed, 'CIDR')} shadowed by an endpoint.`,
    `${sentence[0]?.toUpperCase()}${sentence.slice(1)}${last}.`,
    ...rejected.recent.map((message) => `  ${printable(message)}`),
  ];
  return { json: status, lines, succeeded: true };
};

/** Returns the readiness of the agent, for `dpcache status --ready`, and one sentence for each blocker. */
export const askReady: Question = async (ask) => {
  const { ready, blockers } = await readiness(ask);
  return { json: { ready, blockers }, lines: ready ? ['ready'] : blockers.map(printable), succeeded: ready };
};

interface Readiness {
  readonly ready: boolean;
  readonly blockers: readonly string[];
}

async function readiness(ask: Ask): Promise<Readiness> {
  try {
    return (await ask('/readyz')) as Readiness;
  } catch (error) {
    // If the agent is not ready, the response is 503 with the same document.
    const document: unknown = error instanceof AgentError ? error.problem : undefined;
    if (typeof document === 'object' && document !== null && 'blockers' in document)
      return document as Readiness;
    throw error;
  }
}

/**
 * Returns a text that is equal for similar entries: those with the same writer that agree in having a pod, being a CIDR
 * and having a reserved identity. One entry of each text is shown.
 */
function sampleKind({ key, source, owner, k8s, identity }: KeyedEntry): string {
  const writer = source === 'clustermesh' || source === 'kvstore' ? ownerCluster(owner) : owner;
  const isReserved = identity < MINIMAL_ALLOCATED_IDENTITY;
  return [source, writer, k8s !== undefined, key.includes('/'), isReserved].join(' ');
}

const MAX_SAMPLES = 8;

/**
 * Maximum number of entries searched for samples (about 5 ms). Without it, a large mesh of similar entries
 * would be searched completely.
 */
const MAX_SEARCHED = 10_000;

/** Returns a few entries of different kinds, as examples. */
export function sampleEntries({
  ipcache,
}: {
  readonly ipcache: Pick<IPCache, 'entries'>;
}): readonly KeyedEntry[] {
  const samples = new Map<string, KeyedEntry>();
  let searched = 0;
  for (const entry of ipcache.entries()) {
    const kind = sampleKind(entry);
    if (!samples.has(kind)) samples.set(kind, entry);
    if (samples.size === MAX_SAMPLES || ++searched === MAX_SEARCHED) break;
  }
  return [...samples.values()];
}

function sampleLines(views: EngineViews, nameOf: IdentityName): readonly string[] {
  const rows = sampleEntries(views).map((entry) => [prefixOfKey(entry.key), entryText(entry, nameOf)]);
  return alignColumns(rows);
}

/** Maximum length of a list in the summary. */
const MAX_LISTED = 12;

/** Returns the first lines of a table, and the number of the others with the command for them. */
function shortened(
  [header = '', ...rows]: readonly string[],
  noun: string,
  command: string,
): readonly string[] {
  const more = rows.length - MAX_LISTED;
  if (more <= 0) return [header, ...rows];
  return [header, ...rows.slice(0, MAX_LISTED), `… and ${more} more ${nounOf(more, noun)}: ${command}`];
}

function nodeLines({ nodes }: EngineViews): readonly string[] {
  const { underlay } = nodes.configuration;
  const rows = [...nodes.nodes()]
    .sort((a, b) => ascending(a.fullName, b.fullName))
    .map((node) => [
      node.fullName,
      tunnelEndpoint(node, underlay) ?? '-',
      [node.ipv4AllocCIDR, node.ipv6AllocCIDR].filter(Boolean).join(' ') || '-',
      node.encryptionKey === 0 ? '-' : String(node.encryptionKey),
    ]);
  return alignColumns([['NODE', 'ADDRESS', 'PODS', 'KEY'], ...rows]);
}

function sortedServices(views: EngineViews): readonly ServiceDocument[] {
  const entries = [...views.services.entries()].sort(([a], [b]) => ascending(a, b));
  return entries.map(([, announced]) => serviceDocument(announced, views));
}

/** Shows a summary of the state. Iterates over all nodes and services, but not over all prefixes. */
export function showState(views: EngineViews, status: StatusDocument, terminal: Terminal): void {
  const section = (title: string, lines: readonly string[]): void => {
    terminal.line(terminal.paint('strong', title));
    for (const line of lines) terminal.line(`  ${line}`);
    terminal.line();
  };
  const { cluster, clusters, kvstore, syncedMs = 0, rejected } = status;
  const complete = clusters.every(({ ready }) => ready) ? 'complete' : 'incomplete';
  const title = `State of the mesh, as seen by cluster ${printable(cluster)}`;
  section(title, [
    `${totalsText(views)}; ${rejected.total} rejected`,
    `kvstore ${kvstore}, ${complete} after ${syncedMs} ms`,
  ]);
  section('Clusters', clusterLines(clusters));
  section('Nodes', shortened(nodeLines(views), 'node', 'dpcache node list'));
  section(
    'Services',
    shortened(serviceLines(sortedServices(views), { wide: false }), 'service', 'dpcache service list'),
  );
  section('Some prefixes (all: dpcache ipcache list)', sampleLines(views, identityNames(views)));
}
