import { counted, durationText } from '../base/show-value.ts';
import { isoTime } from '../base/system-clock.ts';
import type { DatapathDocument } from './datapath-document.ts';
import type {
  CheckpointDocument,
  ClusterDocument,
  KindDocument,
  StatusDocument,
  StepDocument,
} from './status-document.ts';

/**
 * Severities, the worst first. `error`: answers are missing or wrong. `warning`: answers are old, or may become wrong.
 */
export const SEVERITIES = ['error', 'warning'] as const;

/** A current problem of an agent. */
export interface HealthProblem {
  readonly severity: (typeof SEVERITIES)[number];
  /** The part with the problem: `cluster baltic`, `configuration`, a step of the start. */
  readonly subject: string;
  readonly text: string;
  readonly since?: string | undefined;
  /** The recommended action, one sentence. */
  readonly remedy?: string | undefined;
}

/** The current problems of an agent. */
export interface ProblemsDocument {
  /** The same as `ready` of `/readyz`. If it is false, `items` is not empty. */
  readonly ready: boolean;
  /** The worst first. */
  readonly items: readonly HealthProblem[];
}

/** The status of an agent, or the parts of it that another process has. */
export interface ProblemSource extends Pick<StatusDocument, 'steps'>, Partial<Omit<StatusDocument, 'steps'>> {
  /** Problems of parts that an agent does not have. */
  readonly problems?: readonly HealthProblem[] | undefined;
  /** The socket of the process, for the commands of remedies. Undefined: these ask the agent of this machine. */
  readonly socket?: string | undefined;
}

interface ReportedProblem extends HealthProblem {
  /** Prefixes of the blockers that report the same problem. These blockers are omitted. */
  readonly blockerPrefixes?: readonly string[];
}

/** Maximum number of conditions in the text of a step. */
const MAX_CONDITIONS = 3;

function isoBefore(now: number, ms: number | undefined): string | undefined {
  return ms === undefined ? undefined : isoTime(now - ms);
}

/** Returns an ISO 8601 time as text: `4 min ago`, or the time itself if the clock was set back since then. */
function pastText(now: number, iso: string): string {
  const ms = now - Date.parse(iso);
  return ms < 0 ? iso : `${durationText(ms)} ago`;
}

/** Returns the first conditions of a step that no other problem reports, and the number of its other conditions. */
function waitsText({ waitsFor }: StepDocument, others: readonly ReportedProblem[]): string {
  const reported = others.flatMap(({ blockerPrefixes = [] }) => blockerPrefixes);
  const listed = waitsFor
    .filter((condition) => !reported.some((prefix) => condition.startsWith(prefix)))
    .slice(0, MAX_CONDITIONS);
  const more = waitsFor.length - listed.length;
  if (more === 0) return listed.join('; ');
  if (listed.length === 0) return `waits for ${counted(more, 'source')}`;
  return [...listed, `${more} more`].join('; ');
}

/**
 * Yields the problem of a step; none if the step is pending, done or stopped. `label`: number and name of the step, as
 * in its blocker.
 */
function* stepProblem(
  step: StepDocument,
  label: string,
  others: readonly ReportedProblem[],
  now: number,
): Generator<ReportedProblem, void, void> {
  const { name, state, ms, idleMs = 0, waitsFor, failure } = step;
  if (state === 'pending' || state === 'done' || state === 'stopped') return;
  const idle = state === 'running' && idleMs > 1_000 ? `, no progress for ${durationText(idleMs)}` : '';
  yield {
    severity: state === 'running' || state === 'stopping' ? 'warning' : 'error',
    subject: name,
    text: [`${state}${idle}`, failure, waitsText(step, others)].filter(Boolean).join(': '),
    since: state === 'running' ? isoBefore(now, ms) : undefined,
    remedy: state === 'failed' || state === 'hanging' ? 'See the whole error in the log.' : undefined,
    blockerPrefixes: [`${label}: `, ...waitsFor],
  };
}

/** Returns true while the state of a cluster that was removed from the configuration is being withdrawn. */
export function isLeaving({ state, connected }: Pick<ClusterDocument, 'state' | 'connected'>): boolean {
  return state === 'draining' && !connected; // a refused cluster is drained while it is connected
}

/** Returns true if a cluster is being read. A refused cluster is drained, and is then in state `failed`. */
function isRead({ connected, state }: ClusterDocument): boolean {
  return connected && state !== 'failed' && state !== 'draining';
}

/** Returns the remedy that checks the etcds of a process. `cluster`: the only one to check. */
function troubleshootRemedy(socket: string | undefined, cluster?: string): string {
  const command = ['dpcache clustermesh troubleshoot', cluster, socket && `--socket ${socket}`];
  return `Run ${command.filter(Boolean).join(' ')}.`;
}

function* clusterProblem(
  cluster: ClusterDocument,
  socket: string | undefined,
  now: number,
): Generator<ReportedProblem, void, void> {
  if (isLeaving(cluster)) return;
  const { name, ready, knownAt, servicesExpired, heartbeat, rejected, keys } = cluster;
  const subject = `cluster ${name}`;
  if (ready) {
    if (rejected > 0 && Object.values(keys).every((count) => count === 0))
      yield {
        severity: 'error',
        subject,
        text: `It has no valid key; ${counted(rejected, 'value')} rejected.`,
        remedy: 'See the last rejected values in the status and in the log.',
      };
    if (heartbeat !== 'stale') return;
    const text = 'The heartbeat in its kvstore has not changed for 2 min. Its state may be old.';
    const remedy = 'Check that its operator, clustermesh-apiserver or kvstoremesh runs.';
    yield { severity: 'warning', subject, text, remedy };
    return;
  }
  const { text, since, remedy } = incompleteProblem(cluster, socket, now);
  const isServed = servicesExpired !== true && (isRead(cluster) || knownAt !== undefined);
  const without = servicesExpired === true ? ', without services, whose TTL has ended' : '';
  const served = knownAt === undefined ? '' : ` The state of ${pastText(now, knownAt)} is served${without}.`;
  yield {
    severity: isServed ? 'warning' : 'error',
    subject,
    text: `${text}${served}`,
    since,
    remedy,
    blockerPrefixes: [`cluster ${name} is incomplete: `],
  };
}

/** Returns why a cluster is not ready. */
function incompleteProblem(
  cluster: ClusterDocument,
  socket: string | undefined,
  now: number,
): Pick<HealthProblem, 'text' | 'since' | 'remedy'> {
  const { name, local, state, connected, connectionChangedAt, knownAt, missing, lastFailure } = cluster;
  const reason = lastFailure === undefined ? '' : `: ${lastFailure}`;
  const troubleshoot = troubleshootRemedy(socket, local ? undefined : name);
  // In state `watching`, the kvstore answers some readers, but for example refuses another one the right to read.
  const unreachableMs = now - Date.parse(connectionChangedAt);
  const unreachable = unreachableMs < 0 ? '' : ` for ${durationText(unreachableMs)}`;
  if (!connected && state !== 'watching')
    return {
      text: `Kvstore unreachable${unreachable}${reason}.`,
      since: connectionChangedAt,
      remedy: troubleshoot,
    };
  if (state === 'no-configuration')
    return {
      // The last failure of a remote cluster names the other configurations in its kvstore.
      text: `${local || reason === '' ? 'Its kvstore contains no configuration of the cluster' : `Not followed${reason}`}.`,
      since: knownAt,
      remedy: `Check that the cluster is named ${name}, and that its operator or clustermesh-apiserver runs.`,
    };
  const lacks = missing.length === 0 ? '' : `: ${missing.join(', ')} missing`;
  // A cluster that is being read may have a failure that is resolved.
  if (isRead(cluster)) return { text: `Not complete${lacks}.`, since: knownAt };
  // If the kvstore answers, the reason contains the remedy.
  const remedy = connected ? undefined : troubleshoot;
  return { text: `Not complete${lacks}${reason}.`, since: knownAt, remedy };
}

function* checkpointProblems(
  { folder, restored, failure, writtenAt }: CheckpointDocument,
  { cluster: localCluster = '', clusters = [], kubernetes }: Partial<StatusDocument>,
  now: number,
): Generator<ReportedProblem, void, void> {
  const isKubernetesComplete = kubernetes === undefined || kubernetes.kinds.every(({ complete }) => complete);
  const confirmed = new Set(
    clusters.flatMap(({ name, local, ready }) => (ready && (!local || isKubernetesComplete) ? [name] : [])),
  );
  // The restored state of a complete cluster is withdrawn when all sources are complete.
  for (const { cluster, knownAt } of restored)
    if (!confirmed.has(cluster || localCluster))
      yield {
        severity: 'warning',
        subject: `cluster ${cluster || localCluster}`,
        text: `Restored state of ${pastText(now, knownAt)} that no source has confirmed.`,
        since: knownAt,
      };
  if (failure === undefined) return;
  const last = writtenAt === undefined ? '' : `; the last one was written ${pastText(now, writtenAt)}`;
  yield {
    severity: 'warning',
    subject: 'checkpoint',
    text: `${failure}${last}`,
    remedy: `Check the free space and the permissions of ${folder}.`,
  };
}

/** Returns one problem for each kind, or one for all kinds that fail for the same reason, such as an outage. */
function* kindProblems(kinds: readonly KindDocument[], now: number): Generator<ReportedProblem, void, void> {
  const groups = new Map<string, [KindDocument, ...KindDocument[]]>();
  for (const kind of kinds) {
    const { name, state, behindMs, lastFailure } = kind;
    if (state !== 'forbidden' && state !== 'stopped' && behindMs === undefined) continue;
    // Another kind needs another right, and its CRD may be served.
    const key = state === 'waiting' && lastFailure !== undefined ? lastFailure : `${state} ${name}`;
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [kind]);
    else group.push(kind);
  }
  for (const group of groups.values()) yield kindProblem(group, now);
}

/** Returns the problem of kinds with equal states and failures. */
function kindProblem(kinds: readonly [KindDocument, ...KindDocument[]], now: number): ReportedProblem {
  const { state, lastFailure } = kinds[0];
  const names = kinds.map(({ name }) => name).join(', ');
  const delays = kinds.flatMap(({ behindMs = [] }) => behindMs);
  const behindMs = delays.length === 0 ? undefined : Math.max(...delays);
  const behind = behindMs === undefined ? '' : `, behind for ${durationText(behindMs)}`;
  // The last failure of a missing kind is from an earlier outage.
  const reason = state === 'missing' ? 'the server does not serve it any more' : lastFailure;
  return {
    severity: 'error',
    subject: `Kubernetes ${names}`,
    text: `${state}${behind}${reason === undefined ? '' : `: ${reason}`}`,
    since: isoBefore(now, behindMs),
    remedy: state === 'forbidden' ? `Allow the service account to list and watch ${names}.` : undefined,
    blockerPrefixes: kinds.map(({ name }) => `Kubernetes: ${name} are not complete `),
  };
}

function* datapathProblems({
  failures,
  parts,
  tables,
}: DatapathDocument): Generator<ReportedProblem, void, void> {
  const severity = 'error';
  for (const text of failures) yield { severity, subject: 'datapath', text };
  for (const { name, state, failing, noRoom } of tables)
    if (state === 'degraded')
      yield {
        severity,
        subject: `table ${name}`,
        text: `${counted(failing + noRoom, 'key')} cannot be written: ${failing} failed, ${noRoom} without room.`,
        remedy: 'Run dpcache datapath status: it prints the reason for each key.',
      };
  for (const { name, state, missing } of parts)
    if (state === 'unavailable') yield { severity, subject: `datapath ${name}`, text: missing.join('; ') };
}

/** Yields the problems of a process, except those of its steps. */
function* agentProblems(status: Partial<ProblemSource>, now: number): Generator<ReportedProblem, void, void> {
  const { clusters = [], checkpoint, configProblems = [], kubernetes, datapath, socket } = status;
  for (const cluster of clusters) yield* clusterProblem(cluster, socket, now);
  if (checkpoint !== undefined) yield* checkpointProblems(checkpoint, status, now);
  for (const text of configProblems)
    yield {
      severity: 'error',
      subject: 'configuration',
      text,
      remedy: `Correct it. ${troubleshootRemedy(socket)}`,
      blockerPrefixes: [text],
    };
  yield* kindProblems(kubernetes?.kinds ?? [], now);
  if (datapath !== undefined) yield* datapathProblems(datapath);
  yield* diskProblems(status);
  const faults = (status.ipcache?.listenerFaults ?? 0) + (status.services?.listenerFaults ?? 0);
  if (faults > 0)
    yield {
      severity: 'warning',
      subject: 'listeners',
      text: `${counted(faults, 'call')} failed since the start.`,
      remedy: 'See the error of each call in the log.',
    };
  const contested = status.services?.contested ?? 0;
  if (contested > 0)
    yield {
      severity: 'warning',
      subject: 'services',
      text: `${counted(contested, 'backend address', 'backend addresses')} with more than one claim.`,
      remedy: 'Run dpcache service explain NAME: it prints which claim is used.',
    };
}

/** Yields the failures to write the history and the tape. */
function* diskProblems({ history, tape }: Partial<StatusDocument>): Generator<ReportedProblem, void, void> {
  if (history?.disk?.failure !== undefined)
    yield {
      severity: 'warning',
      subject: 'history',
      text: `${history.disk.failure}; changes are kept in memory only`,
      remedy: `Check the free space and the permissions of ${history.disk.folder}.`,
    };
  if (tape?.failure !== undefined)
    yield {
      severity: 'warning',
      subject: 'tape',
      text: `${tape.failure}; ${counted(tape.lost, 'line')} lost`,
      remedy: `Check the free space and the permissions of ${tape.folder}, and --tape-size.`,
    };
}

/**
 * Returns the current problems, the worst first. Each blocker is a problem, unless another problem reports it already.
 *
 * @param blockers - The blockers of `/readyz`.
 * @param now - Wall-clock time in milliseconds.
 */
export function healthProblems(
  status: ProblemSource,
  blockers: readonly string[],
  now: number,
): readonly HealthProblem[] {
  const own = (status.problems ?? []).map((problem) => ({ ...problem, blockerPrefixes: [problem.text] }));
  const others = [...own, ...agentProblems(status, now)];
  const steps = status.steps.flatMap((step, index) => [
    ...stepProblem(step, `step ${index + 1} of ${status.steps.length}, ${step.name}`, others, now),
  ]);
  const known = [...steps, ...others];
  const prefixes = known.flatMap((problem) => problem.blockerPrefixes ?? []);
  const unknown = blockers
    .filter((text) => !prefixes.some((prefix) => text.startsWith(prefix)))
    .map((text): ReportedProblem => ({ severity: 'error', subject: 'not ready', text }));
  const all = [...unknown, ...known].map(({ blockerPrefixes: _, ...problem }): HealthProblem => problem);
  return SEVERITIES.flatMap((severity) => all.filter((problem) => problem.severity === severity));
}
