import type { Clock } from '../base/clock.ts';
import type { RejectionStatus } from '../base/rejection.ts';
import type { TaskStatus } from '../base/supervisor.ts';
import type { BackendStatus } from '../kvstore/backend.ts';
import type { ClusterConfig } from '../kvstore/codec/cluster-config.ts';
import type { ClusterPhase, ClusterState } from './cluster-state.ts';
import type { ResourceStatuses } from './resource-stores.ts';

/**
 * How a cluster appears: as its phase, but
 *
 * - `ready`: watched, complete, and its kvstore answers;
 * - `unreachable`: watched, but its kvstore does not answer; what was known is served;
 * - `no-configuration`: its kvstore has no configuration of it. What was known is served; of a cluster from before 1.13
 *   it is said only while the kvstore holds nothing of it at all.
 */
export type RemoteClusterState =
  | Exclude<ClusterPhase, 'idle' | 'leaving' | 'unconfigured'>
  | 'ready'
  | 'unreachable'
  | 'no-configuration';

/** A cluster as plain data. Times are wall time, milliseconds since the epoch. */
export interface RemoteClusterStatus {
  readonly name: string;
  readonly state: RemoteClusterState;
  /** Whether what is known of it is complete and follows its kvstore now. */
  readonly ready: boolean;
  /** Set while it is not ready, but was before: stale state is served, as it was known then. */
  readonly knownAt: number | undefined;
  /** Whether its kvstore answers now, to everything that is read. */
  readonly connected: boolean;
  /** Since when `connected` is what it is. */
  readonly connectedSince: number;
  /**
   * How many milliseconds it took, failed attempts included, until everything of it was complete: from when it was first
   * connected to, and from when it last began to be followed anew. Undefined before it was complete.
   */
  readonly firstSyncMs: number | undefined;
  readonly lastSyncMs: number | undefined;
  /** Of its present client, whose counts begin at 0; undefined while it has none. */
  readonly kvstore: BackendStatus | undefined;
  /** As read last; undefined while it has not been read, and in clusters older than 1.13. */
  readonly config: ClusterConfig | undefined;
  /** Per resource: whether it is `synced`, counts, and how far its watch has come. */
  readonly resources: ResourceStatuses;
  readonly rejections: RejectionStatus;
  /** Whether its services were withdrawn because it could not be reached for too long. */
  readonly servicesExpired: boolean;
  /** Attempts to follow it that failed. What its watches retry by themselves is not counted. */
  readonly failures: number;
  /** Of an attempt or a watch; it may have been overcome since. */
  readonly lastFailure: string | undefined;
  readonly lastFailureAt: number | undefined;
  /** What is under way for it. */
  readonly tasks: readonly TaskStatus[];
}

/** What is known of a cluster beside the state of its machine. */
export interface ClusterStanding {
  /** Its lists are complete, on the present connection. */
  readonly complete: boolean;
  /** Its kvstore answers. */
  readonly connected: boolean;
  /** It has been complete once. */
  readonly known: boolean;
  readonly keys: number;
}

/** How a cluster appears. */
function shownState(state: ClusterState, standing: ClusterStanding): RemoteClusterState {
  const { phase, next } = state;
  if (phase === 'idle') return 'connecting';
  if (phase === 'watching') return shownWatching(state, standing);
  if (phase !== 'leaving') return phase === 'unconfigured' ? 'no-configuration' : phase;
  if (next === 'removed') return 'draining';
  if (next === undefined || next === 'watching') return 'handshake';
  return next === 'unconfigured' ? 'no-configuration' : next;
}

function shownWatching(state: ClusterState, standing: ClusterStanding): RemoteClusterState {
  const { found, unproven, failStatic } = state;
  const { complete, connected, known, keys } = standing;
  if (found === 'gone' || found === 'others') return 'no-configuration';
  if (known && !connected) return 'unreachable';
  if (!complete || !connected || unproven) return 'watching';
  return found === 'none' && keys === 0 && failStatic ? 'no-configuration' : 'ready';
}

/** How a cluster has appeared so far, with the times of that. */
export class ClusterView {
  readonly #clock: Clock;
  #shown: RemoteClusterState = 'connecting';
  #knownAt: number | undefined;
  #connected = false;
  #connectedSince: number;
  /** Since when it is not complete, on the clock's monotonic time. */
  #incompleteSince: number | undefined;
  #firstSyncMs: number | undefined;
  #lastSyncMs: number | undefined;
  #failures = 0;
  #lastFailure: { readonly message: string; readonly at: number } | undefined;
  #arrived = 0;
  #progressAt: number;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#connectedSince = clock.wallTime();
    this.#progressAt = clock.now();
  }

  /** When more of it than ever before had arrived, on the clock's monotonic time. */
  get progressAt(): number {
    return this.#progressAt;
  }

  status(): Pick<
    RemoteClusterStatus,
    | 'state'
    | 'ready'
    | 'knownAt'
    | 'connected'
    | 'connectedSince'
    | 'firstSyncMs'
    | 'lastSyncMs'
    | 'lastFailure'
    | 'lastFailureAt'
  > {
    return {
      state: this.#shown,
      ready: this.#shown === 'ready',
      knownAt: this.#knownAt,
      connected: this.#connected,
      connectedSince: this.#connectedSince,
      firstSyncMs: this.#firstSyncMs,
      lastSyncMs: this.#lastSyncMs,
      lastFailure: this.#lastFailure?.message,
      lastFailureAt: this.#lastFailure?.at,
    };
  }

  /** Something of it has failed. */
  failed(message: string): void {
    this.#lastFailure = { message, at: this.#clock.wallTime() };
  }

  /** So much of it has arrived. */
  arrived(count: number): void {
    if (count > this.#arrived) this.#progressAt = this.#clock.now();
    this.#arrived = Math.max(count, this.#arrived);
  }

  /** Everything of it has been withdrawn. */
  forget(): void {
    this.#knownAt = undefined;
  }

  /** Whether its state, or whether it is connected, has changed, or it has failed once more. */
  update(state: ClusterState, standing: ClusterStanding): boolean {
    const shown = shownState(state, standing);
    const { connected, complete } = standing;
    const { failures } = state;
    const isChanged = shown !== this.#shown || connected !== this.#connected || failures !== this.#failures;
    if (connected !== this.#connected) this.#connectedSince = this.#clock.wallTime();
    if (shown === 'ready') this.#knownAt = undefined;
    else if (this.#shown === 'ready') this.#knownAt = this.#clock.wallTime();
    this.#failures = failures;
    this.#connected = connected;
    this.#shown = shown;
    this.#measure(complete);
    return isChanged;
  }

  #measure(complete: boolean): void {
    const now = this.#clock.now();
    if (!complete) this.#incompleteSince ??= now;
    else if (this.#incompleteSince !== undefined) {
      this.#lastSyncMs = now - this.#incompleteSince;
      this.#firstSyncMs ??= this.#lastSyncMs;
      this.#incompleteSince = undefined;
    }
  }
}
