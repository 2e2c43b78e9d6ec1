import { crc32 } from 'node:zlib';
import type { HistoryStatusDocument } from '../api/status-document.ts';
import type { Timer } from '../base/clock.ts';
import type { Unsubscribe } from '../base/subscription.ts';
import { isoTime } from '../base/system-clock.ts';
import type { ClusterCondition } from '../client/cluster-text.ts';
import type { UncertainSpan } from '../history/change-log.ts';
import { History } from '../history/history.ts';
import type { KubernetesFeed } from '../k8s/feed/kubernetes-feed.ts';
import type { Step } from '../process/start-step.ts';
import type { AgentParts } from './agent.ts';
import type { ReportedClusters } from './cluster-report.ts';
import { recordDocuments } from './recorded-documents.ts';
import { StateFiles } from './state-files.ts';

/** Interval at which changes are written to the disk, and the wall time is compared with the monotonic time. */
const CHECK_MS = 1000;

/** Minimum time between two marks for failures of one handler, because a handler may fail for each node. */
const FAILURE_PAUSE_MS = 1000;
/** Maximum number of handlers whose last failure is remembered. An agent has fewer handlers. */
const MAX_HANDLERS = 64;
/** Maximum length of the reason in the mark of a failure. */
const MAX_DETAIL = 200;

/** Maximum time to read the segments of earlier processes. */
const READ_SEGMENTS_MS = 60_000;

/** The state of a cluster. Each change of it is marked. `joining`: incomplete, and connected or never complete. */
type RecordedState = 'complete' | 'unreachable' | 'joining' | 'left';

/** The kinds of Kubernetes objects followed by the agent; see `KubernetesFeed`. */
export type FollowedKinds = Pick<KubernetesFeed, 'names' | 'progressOf' | 'onChange'>;

export interface HistoryKeeperOptions extends Pick<AgentParts, 'clock' | 'gate' | 'log' | 'engines'> {
  /** Maximum memory in bytes. */
  readonly memory: number;
  /** Folder and maximum size of the segments on disk; default: none. */
  readonly disk?: { readonly path: string; readonly maxBytes: number } | undefined;
}

/**
 * Records the changes of the engines from the end of the initial sync on, and marks failures and states of clusters in
 * the history.
 */
export class HistoryKeeper {
  readonly history: History;
  readonly #options: HistoryKeeperOptions;
  #timer: Timer | undefined;
  readonly #subscriptions: Unsubscribe[];
  /** The last reported state of each cluster. */
  readonly #states = new Map<string, RecordedState>();
  /** The last logged failure of the disk; undefined after its end. */
  #failure: string | undefined;
  /** The monotonic time of the last mark of each handler. */
  readonly #failedAt = new Map<string, number>();
  /** The current periods of uncertain answers, by reason and name. */
  readonly #uncertain = new Map<string, UncertainSpan>();

  constructor(options: HistoryKeeperOptions) {
    this.#options = options;
    const { disk, engines, clock, gate, memory } = options;
    this.history = new History({
      ...engines,
      clock,
      gate,
      memory,
      disk: disk && { folder: new StateFiles(disk.path), maxBytes: disk.maxBytes, checksum: crc32 },
    });
    // Now, while the engines are empty: a later subscription replays all services and nodes in one turn.
    this.#subscriptions = [recordDocuments(this.history, engines)];
  }

  /**
   * Returns the step which reads the segments of earlier processes. Its stop writes the last segment of this process.
   */
  step(): Step {
    return {
      name: 'history',
      progressTimeoutMs: READ_SEGMENTS_MS,
      onTimeout: 'continue',
      waitsFor: () => [`reading ${this.#options.disk?.path}`],
      start: async () => {
        await this.history.open();
        this.#reportDisk();
      },
      stop: () => this.history.close(),
    };
  }

  /**
   * Starts to record the changes of the engines, and the states of the clusters and of the kinds of Kubernetes objects.
   */
  start(clusters: ReportedClusters | undefined, kinds: FollowedKinds | undefined): void {
    this.history.start();
    if (clusters !== undefined) {
      for (const name of clusters.names) this.#noteState(clusters, name);
      this.#subscriptions.push(clusters.onChange((name) => this.#noteState(clusters, name)));
    }
    if (kinds !== undefined) {
      const note = (name: string): void => {
        const progress = kinds.progressOf(name);
        const isComplete = progress === undefined || progress.synced || progress.settled;
        this.#setUncertain('cluster-incomplete', `Kubernetes ${name}`, !isComplete);
      };
      for (const name of kinds.names) note(name);
      this.#subscriptions.push(kinds.onChange(note));
    }
    this.#schedule();
  }

  stop(): void {
    this.#timer?.cancel();
    for (const unsubscribe of this.#subscriptions.splice(0)) unsubscribe();
    this.history.mark('stop', '');
    this.history.stop();
  }

  status(): HistoryStatusDocument {
    const { retainedFrom, recordsInMemory, bytes, records, lost, disk } = this.history.status();
    const from = isoTime(retainedFrom);
    return {
      ...(from !== undefined && { retainedFrom: from }),
      recordsInMemory,
      bytes,
      maxBytes: this.#options.memory,
      records,
      lost,
      ...(disk && {
        disk: {
          folder: this.#options.disk?.path ?? '',
          bytes: disk.bytes,
          maxBytes: disk.maxBytes,
          damaged: disk.damaged,
          ...(disk.failure && { failure: disk.failure.message }),
        },
      }),
    };
  }

  /** Logs a failure of the disk once, and its end once. */
  #reportDisk(): void {
    const { disk, log } = this.#options;
    const failure = this.history.status().disk?.failure?.message;
    if (failure === this.#failure) return;
    this.#failure = failure;
    if (failure === undefined) log.warn(`${disk?.path}: writing the history works again`);
    else log.warn(`${disk?.path}: cannot store the history: ${failure}; it is kept in memory only`);
  }

  #schedule(): void {
    this.#timer = this.#options.clock.after(CHECK_MS, () => {
      this.history.checkClock();
      void this.history.flush().then(() => this.#reportDisk());
      this.#schedule();
    });
  }

  /** Marks answers as uncertain for a reason, from the first call with true to the next call with false. */
  #setUncertain(reason: 'cluster-incomplete' | 'withdrawing', name: string, isUncertain: boolean): void {
    const key = `${reason} ${name}`;
    const span = this.#uncertain.get(key);
    if (isUncertain === (span !== undefined)) return;
    if (reason === 'withdrawing') this.history.mark(isUncertain ? 'withdrawing' : 'withdrawn', name);
    if (span !== undefined) {
      this.history.endUncertainty(span);
      this.#uncertain.delete(key);
      return;
    }
    const begun = this.history.beginUncertainty(reason, name);
    if (begun !== undefined) this.#uncertain.set(key, begun);
  }

  /** Marks the beginning and the end of the withdrawal of a cluster. Answers for the time between are not certain. */
  noteWithdrawal(cluster: string, isRunning: boolean): void {
    this.#setUncertain('withdrawing', cluster, isRunning);
  }

  /** Marks a failure of a handler, unless another one was marked within the last second. */
  noteFailure(handler: string, reason: string): void {
    const now = this.#options.clock.now();
    if (now - (this.#failedAt.get(handler) ?? Number.NEGATIVE_INFINITY) < FAILURE_PAUSE_MS) return;
    if (this.#failedAt.size >= MAX_HANDLERS) this.#failedAt.clear();
    this.#failedAt.set(handler, now);
    this.history.mark('handler-failed', handler, reason.slice(0, MAX_DETAIL));
  }

  /** Marks a change of the state of a cluster. */
  #noteState(clusters: ReportedClusters, name: string): void {
    const status = clusters.statusOf(name);
    this.#setUncertain('cluster-incomplete', name, status !== undefined && status.missing.length > 0);
    const before = this.#states.get(name);
    const state = stateOf(status, before);
    if (before === state) return;
    if (state === 'left') this.#states.delete(name);
    else this.#states.set(name, state);
    if (before === undefined && state !== 'complete') this.history.mark('joined', name);
    if (state === 'complete') this.history.mark(before === 'unreachable' ? 'reachable' : 'complete', name);
    else if (state !== 'joining') this.history.mark(state, name);
  }
}

/** Returns the state of a cluster. A joining cluster is unreachable only after it was complete once. */
function stateOf(status: ClusterCondition | undefined, before: RecordedState | undefined): RecordedState {
  if (status === undefined) return 'left';
  if (status.connected) return status.missing.length === 0 ? 'complete' : 'joining';
  return before === undefined || before === 'joining' ? 'joining' : 'unreachable';
}
