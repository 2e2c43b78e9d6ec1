import type { Clock } from '../base/clock.ts';
import type { Failure } from '../base/failure.ts';
import type { RejectionStatus } from '../base/rejection.ts';
import type { TaskStatus } from '../base/supervisor.ts';
import type { ClusterConfig } from '../kvstore/codec/cluster-config.ts';
import type { BackendStatus } from '../kvstore/session/backend.ts';
import type { KvstoreHealthStatus } from '../kvstore/session/health.ts';
import type { ClusterPhase, ClusterState, FailureReason } from './cluster-state.ts';
import type { ResourceStatuses } from './resource-stores.ts';

/**
 * Reported state of a cluster: its phase, except for
 *
 * - `ready`: followed, complete, and its kvstore answers;
 * - `unreachable`: followed, but its kvstore does not answer; the last known state is served;
 * - `no-configuration`: its kvstore has no configuration of it; the last known state is served. A cluster from before
 *   1.13 is in this state only if the kvstore has no keys of it.
 */
export type RemoteClusterState =
  | Exclude<ClusterPhase, 'idle' | 'leaving' | 'unconfigured'>
  | 'ready'
  | 'unreachable'
  | 'no-configuration';

/** Receives the name of a changed cluster. */
export type OnClusterChange = (cluster: string) => void;

/** Status of a cluster. Times are wall time, milliseconds since the epoch. */
export interface RemoteClusterStatus {
  readonly name: string;
  readonly state: RemoteClusterState;
  /** True if the state of the cluster is complete and its kvstore answers. */
  readonly ready: boolean;
  /** If the cluster is not ready: the last time it was. The state of this time is served. */
  readonly knownAt: number | undefined;
  /** True if the kvstore answers all current reads. */
  readonly connected: boolean;
  /** Time of the last change of `connected`. */
  readonly connectionChangedAt: number;
  /** Duration of the first sync, failed attempts included; undefined until all resources have been complete once. */
  readonly firstSyncMs: number | undefined;
  /** Like `firstSyncMs`, for the last sync. */
  readonly lastSyncMs: number | undefined;
  /** Status of the current client, whose counters start at 0; undefined if there is none. */
  readonly kvstore: BackendStatus | undefined;
  /** The last read configuration; undefined until it is read, and for clusters older than 1.13. */
  readonly config: ClusterConfig | undefined;
  /** The id in the configuration if the cluster was rejected because of its configuration; otherwise undefined. */
  readonly refusedID: number | undefined;
  /** For each resource: `synced`, counters, and the progress of its watch. */
  readonly resources: ResourceStatuses;
  readonly rejections: RejectionStatus;
  /** True if its services were withdrawn because the cluster was unreachable for the service TTL. */
  readonly servicesExpired: boolean;
  /** Heartbeat of the process that writes the kvstore, such as the operator; undefined if it could not be read. */
  readonly heartbeat: KvstoreHealthStatus['heartbeat'] | undefined;
  /** Number of failed attempts to follow the cluster. Failed watches are retried and not counted. */
  readonly failures: number;
  /** The last failure of an attempt or a watch, even if a later one succeeded. */
  readonly lastFailure: Failure | undefined;
  /** The running tasks. */
  readonly tasks: readonly TaskStatus[];
}

/** Facts which determine the reported state, in addition to {@link ClusterState}. */
export interface ClusterFacts {
  /** True if all lists are complete on the current connection. */
  readonly complete: boolean;
  /** True if the kvstore answers. */
  readonly connected: boolean;
  /** True if all resources have been complete once. */
  readonly isSynced: boolean;
  /** Number of keys with a value in the engines, of all resources. */
  readonly keys: number;
}

function reportedStateOf(state: ClusterState, facts: ClusterFacts): RemoteClusterState {
  const { phase, next } = state;
  if (phase === 'idle') return 'connecting';
  if (phase === 'watching') return reportedWhileWatching(state, facts);
  if (phase !== 'leaving') return phase === 'unconfigured' ? 'no-configuration' : phase;
  if (next === 'removed') return 'draining';
  if (next === undefined || next === 'watching') return 'handshake';
  return next === 'unconfigured' ? 'no-configuration' : next;
}

function reportedWhileWatching(state: ClusterState, facts: ClusterFacts): RemoteClusterState {
  const { found, unproven, failStatic } = state;
  const { complete, connected, isSynced, keys } = facts;
  if (found === 'gone' || found === 'others') return 'no-configuration';
  if (isSynced && !connected) return 'unreachable';
  if (!complete || !connected || unproven) return 'watching';
  return found === 'none' && keys === 0 && failStatic ? 'no-configuration' : 'ready';
}

/** The parts of a status whose changes are reported. */
interface Reported {
  readonly state: RemoteClusterState;
  readonly connected: boolean;
  /** The id in the configuration; undefined if there is none. */
  readonly id: number | undefined;
  readonly failures: number;
  /** Message of the last failure. */
  readonly reason: string | undefined;
}

/** Records the reported state of a cluster and the times of its changes. */
export class ReportedStatus {
  readonly #clock: Clock;
  /** The last recorded state. */
  #reported: Reported = {
    state: 'connecting',
    connected: false,
    id: undefined,
    failures: 0,
    reason: undefined,
  };
  #knownAt: number | undefined;
  #connectionChangedAt: number;
  /** Start of the current incomplete period, monotonic time. */
  #incompleteSince: number | undefined;
  #firstSyncMs: number | undefined;
  #lastSyncMs: number | undefined;
  #lastFailure: Failure | undefined;
  /** Maximum number of items that have arrived. */
  #maxArrived = 0;
  #progressAt: number;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#connectionChangedAt = clock.wallTime();
    this.#progressAt = clock.now();
  }

  /** Time of the last progress of the first sync, monotonic: of the last new maximum of arrived items. */
  get progressAt(): number {
    return this.#progressAt;
  }

  /** The last recorded `connected`. */
  get connected(): boolean {
    return this.#reported.connected;
  }

  status(): Pick<
    RemoteClusterStatus,
    | 'state'
    | 'ready'
    | 'knownAt'
    | 'connected'
    | 'connectionChangedAt'
    | 'firstSyncMs'
    | 'lastSyncMs'
    | 'lastFailure'
  > {
    const { state, connected } = this.#reported;
    return {
      state,
      ready: state === 'ready',
      knownAt: this.#knownAt,
      connected,
      connectionChangedAt: this.#connectionChangedAt,
      firstSyncMs: this.#firstSyncMs,
      lastSyncMs: this.#lastSyncMs,
      lastFailure: this.#lastFailure,
    };
  }

  recordFailure({ code, message }: FailureReason): void {
    this.#lastFailure = { code, message, at: this.#clock.wallTime() };
  }

  /** Records the number of items that have arrived. Only a new maximum is progress. */
  recordArrived(count: number): void {
    if (count <= this.#maxArrived) return;
    this.#maxArrived = count;
    this.#progressAt = this.#clock.now();
  }

  /** Records that the whole state of the cluster was withdrawn. */
  recordWithdrawal(): void {
    this.#knownAt = undefined;
  }

  /**
   * Records the state. Returns true if the reported state, `connected`, the id of the configuration, the number of
   * failures or the message of the last failure has changed.
   */
  update(state: ClusterState, facts: ClusterFacts): boolean {
    const last = this.#reported;
    const { connected, complete } = facts;
    const { failures } = state;
    const next = {
      state: reportedStateOf(state, facts),
      connected,
      id: state.config?.id,
      failures,
      reason: this.#lastFailure?.message,
    };
    this.#reported = next;
    if (connected !== last.connected) this.#connectionChangedAt = this.#clock.wallTime();
    if (next.state === 'ready') this.#knownAt = undefined;
    else if (last.state === 'ready') this.#knownAt = this.#clock.wallTime();
    this.#measureSync(complete);
    return (
      next.state !== last.state ||
      connected !== last.connected ||
      next.id !== last.id ||
      failures !== last.failures ||
      next.reason !== last.reason
    );
  }

  /** Measures the time from the beginning of an incomplete period to its end. */
  #measureSync(complete: boolean): void {
    const now = this.#clock.now();
    if (!complete) this.#incompleteSince ??= now;
    else if (this.#incompleteSince !== undefined) {
      this.#lastSyncMs = now - this.#incompleteSince;
      this.#firstSyncMs ??= this.#lastSyncMs;
      this.#incompleteSince = undefined;
    }
  }
}
