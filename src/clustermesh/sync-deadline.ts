import {
  type Check,
  checkArgument,
  FUNCTION,
  NUMBER,
  objectWith,
  optional,
  SIGNAL,
} from '../base/arguments.ts';
import type { Clock, Timer } from '../base/clock.ts';
import { onAbort } from '../base/follow-signal.ts';
import type { Unsubscribe } from '../base/subscription.ts';
import { withRuntime } from '../base/system-clock.ts';

/** Progress of the first sync of a member: a cluster, or a kind of Kubernetes objects. */
export interface SyncProgress {
  readonly name: string;
  /** True if all resources have been complete once. */
  readonly synced: boolean;
  /** Time of the last progress, monotonic. Progress means more arrived items than ever before. */
  readonly progressAt: number;
  /** Number of failures so far. */
  readonly failures: number;
  /** True if the server has answered but has nothing to follow, so waiting longer would not help. */
  readonly settled: boolean;
}

/** Limits of the wait for a first sync. */
export interface SyncDeadline {
  /**
   * Maximum time without progress of a member before the wait for it ends. A fixed total time would be too short for
   * some meshes and too long for others.
   */
  readonly deadlineMs: number;
  /** Like `deadlineMs`, for a member with failures. Default: `deadlineMs`. */
  readonly failedDeadlineMs?: number | undefined;
  /** Number of failures of a member after which the wait for it ends. Default: no limit. */
  readonly failures?: number | undefined;
  /** Ends the wait. */
  readonly signal?: AbortSignal | undefined;
}

/** Checks that an argument is a {@link SyncDeadline}. */
export const SYNC_DEADLINE: Check = objectWith({
  deadlineMs: NUMBER,
  failedDeadlineMs: optional(NUMBER),
  failures: optional(NUMBER),
  signal: optional(SIGNAL),
});

/** The clusters of a mesh, or the kinds of a Kubernetes feed. Members may be added and removed. */
export interface SyncMembers {
  readonly names: readonly string[];
  /** Returns the progress of a member; undefined if it was removed. */
  progressOf(name: string): SyncProgress | undefined;
  /** Calls back when a member is added, is removed, fails or becomes complete. */
  onChange(callback: (name: string) => void): Unsubscribe;
}

/** Returns the monotonic time of the last progress of any member; 0 if there is none. */
export function lastProgressAt(members: Pick<SyncMembers, 'names' | 'progressOf'> | undefined): number {
  if (members === undefined) return 0;
  return Math.max(0, ...members.names.map((name) => members.progressOf(name)?.progressAt ?? 0));
}

/**
 * If the timer fires this much too late, the process was suspended. The time without progress then counts from that
 * moment.
 */
const SUSPENDED_MS = 1_000;

/**
 * Waits for each member until it is synced or its deadline has passed. Members may be added and removed during the
 * wait. If a member makes progress after its deadline, it is awaited again as long as others are. Resolves to the names
 * of the unsynced members. Never rejects; if the signal fires, it resolves as after the deadline.
 *
 * Costs one timer, and one check of a member per change.
 */
export function waitForSync(
  members: SyncMembers,
  deadline: SyncDeadline & { readonly clock?: Clock | undefined },
): Promise<readonly string[]> {
  checkArgument('waitForSync: members', members, objectWith({ progressOf: FUNCTION, onChange: FUNCTION }));
  checkArgument('waitForSync: deadline', deadline, SYNC_DEADLINE);
  return new Promise((resolve) => new SyncWait(members, withRuntime(deadline), resolve).start());
}

class SyncWait {
  readonly #members: SyncMembers;
  readonly #deadline: SyncDeadline & { readonly clock: Clock };
  readonly #resolve: (missing: readonly string[]) => void;
  readonly #awaited = new Set<string>();
  /**
   * Earliest start of each member's deadline: the first check of the member, or the end of a suspension of the
   * process.
   */
  #startTimes = new Map<string, number>();
  #timer: { readonly at: number; readonly timer: Timer } | undefined;
  #unsubscribe: Unsubscribe | undefined;
  #leaveSignal = (): void => {};

  constructor(
    members: SyncMembers,
    deadline: SyncDeadline & { readonly clock: Clock },
    resolve: (missing: readonly string[]) => void,
  ) {
    this.#members = members;
    this.#deadline = deadline;
    this.#resolve = resolve;
  }

  start(): void {
    const { signal } = this.#deadline;
    this.#unsubscribe = this.#members.onChange((name) => {
      this.#check(name);
      this.#proceed();
    });
    this.#leaveSignal = onAbort(signal, () => this.#end());
    if (signal?.aborted !== true) this.#checkAll();
  }

  #checkAll(): void {
    for (const name of this.#members.names) this.#check(name);
    this.#proceed();
  }

  #check(name: string): void {
    const { clock, failures = Number.POSITIVE_INFINITY } = this.#deadline;
    const progress = this.#members.progressOf(name);
    const now = clock.now();
    if (progress !== undefined && !this.#startTimes.has(name)) this.#startTimes.set(name, now);
    const isAwaited =
      progress !== undefined &&
      !progress.synced &&
      !progress.settled &&
      progress.failures < failures &&
      now < this.#endOf(progress);
    if (!isAwaited) {
      this.#awaited.delete(name);
      return;
    }
    this.#awaited.add(name);
    if (this.#timer !== undefined && this.#endOf(progress) < this.#timer.at) this.#cancelTimer();
  }

  /** Returns the time until which a member is awaited if it makes no progress. */
  #endOf({ name, progressAt, failures }: SyncProgress): number {
    const { deadlineMs, failedDeadlineMs = deadlineMs } = this.#deadline;
    const start = Math.max(progressAt, this.#startTimes.get(name) ?? 0);
    return start + (failures > 0 ? failedDeadlineMs : deadlineMs);
  }

  #cancelTimer(): void {
    this.#timer?.timer.cancel();
    this.#timer = undefined;
  }

  /** Ends the wait if no member is awaited. Otherwise sets the timer to the earliest deadline, unless it is set. */
  #proceed(): void {
    if (this.#awaited.size === 0) {
      this.#end();
      return;
    }
    const { clock } = this.#deadline;
    if (this.#timer !== undefined) return;
    const awaited = [...this.#awaited].flatMap((name) => this.#members.progressOf(name) ?? []);
    const at = Math.min(...awaited.map((progress) => this.#endOf(progress)));
    this.#timer = { at, timer: clock.after(at - clock.now(), () => this.#onTimer(at)) };
  }

  #onTimer(at: number): void {
    this.#timer = undefined;
    const now = this.#deadline.clock.now();
    if (now - at > SUSPENDED_MS)
      this.#startTimes = new Map([...this.#startTimes.keys()].map((name) => [name, now]));
    this.#checkAll();
  }

  #end(): void {
    this.#unsubscribe?.();
    this.#cancelTimer();
    this.#leaveSignal();
    const isMissing = (name: string): boolean => this.#members.progressOf(name)?.synced === false;
    this.#resolve(this.#members.names.filter(isMissing));
  }
}
