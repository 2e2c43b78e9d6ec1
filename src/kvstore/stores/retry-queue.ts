import { backoffDelay } from '../../base/backoff.ts';
import { type Failure, failureOf } from '../../base/failure.ts';
import { onAbort } from '../../base/follow-signal.ts';
import { CallbackGuard } from '../../base/guard.ts';
import { sleep } from '../../base/sleep.ts';
import type { Runtime } from '../../base/system-clock.ts';
import { type EntryTable, WorkQueue } from '../../base/work-queue.ts';
import { asKvstoreError, type KvstoreError, type KvstoreErrorCode } from '../session/errors.ts';

/** Jobs that are attempted together. */
export type Jobs<J> = readonly [J, ...J[]];

/** Limits of the jobs of a {@link RetryQueue} that are attempted together. */
export interface BatchLimits<J> {
  readonly maxJobs: number;
  /** Maximum sum of the weights. */
  readonly maxWeight: number;
  /** Returns the weight of a job; infinity if the job must be attempted separately. */
  weightOf(job: J): number;
}

export interface RetryQueueOptions<J> extends Runtime {
  /** Maximum number of concurrent attempts. Default 8. */
  readonly concurrency?: number | undefined;
  /**
   * Makes one attempt of jobs, which all succeed or all fail. If it rejects, they are retried. If the kvstore rejects
   * several jobs, each is attempted separately, because a single job may be the cause.
   */
  attempt(jobs: Jobs<J>, signal: AbortSignal): Promise<void>;
  /** Default: each job has its own attempt. */
  readonly batches?: BatchLimits<J> | undefined;
  /** See {@link WorkQueue}. */
  readonly newTable?: (() => EntryTable<J>) | undefined;
  /** Receives a failure of the kvstore or of a job; each code only once, until all failed jobs have succeeded. */
  onFailure?(error: KvstoreError): void;
  /** Receives the jobs that have succeeded together and were not added again during their attempt. */
  onDone?(jobs: readonly J[]): void;
}

/** Status of jobs that are retried until they succeed. */
export interface RetryQueueStatus {
  /** Number of unfinished jobs. */
  readonly pending: number;
  readonly failures: number;
  readonly lastFailure: Failure | undefined;
  /** True if the kvstore fails, or if it has rejected unfinished jobs. */
  readonly isFailing: boolean;
}

const CONCURRENCY = 8;
const BACKOFF = { baseMs: 100, capMs: 5000 };

/** Errors which the job causes, not the kvstore, so other jobs continue. */
const REJECTIONS: ReadonlySet<KvstoreErrorCode> = new Set(['invalid-request', 'too-large']);
/** Errors which a single job of a batch may have caused. No job of the batch has taken effect. */
const BATCH_REJECTIONS: ReadonlySet<KvstoreErrorCode> = new Set([
  ...REJECTIONS,
  'forbidden',
  'lease-not-found',
]);
// A rejected job fails again until the configuration of the kvstore changes, so it is rarely retried.
const REJECTED_MS = 60_000;

/**
 * Runs jobs against a kvstore until each has succeeded. The oldest jobs are first. Several jobs run at a time, but no
 * job runs twice at a time: a job that is added again during its attempt is attempted once more after it.
 *
 * While the kvstore fails, one job at a time is tried, with backoff and without a batch, because other jobs would fail,
 * too. The first success ends the backoff. If the kvstore rejects a job, other jobs are not delayed.
 */
export class RetryQueue<J> {
  readonly #options: RetryQueueOptions<J>;
  /** The unfinished jobs. */
  readonly #jobs: WorkQueue<J>;
  /** The unfinished jobs that the kvstore has rejected. Their next attempt is delayed. */
  readonly #rejected = new Set<J>();
  readonly #guard = new CallbackGuard();
  /** The codes of the failures that were reported since nothing failed. */
  readonly #reported = new Set<KvstoreErrorCode>();
  /** Functions that resume the workers which wait for a job. */
  readonly #idle = new Set<() => void>();
  #failuresInRow = 0;
  #failures = 0;
  #lastFailure: Failure | undefined;

  constructor(options: RetryQueueOptions<J>) {
    this.#options = options;
    const { clock, random, newTable } = options;
    this.#jobs = new WorkQueue({ clock, random, onDue: () => this.#wake() }, newTable);
  }

  /** Number of unfinished jobs. */
  get size(): number {
    return this.#jobs.size;
  }

  status(): RetryQueueStatus {
    return {
      pending: this.#jobs.size,
      failures: this.#failures,
      lastFailure: this.#lastFailure,
      isFailing: this.#isFailing,
    };
  }

  get #isFailing(): boolean {
    return this.#failuresInRow > 0 || this.#rejected.size > 0;
  }

  /** Returns true if the job is unfinished. */
  has(job: J): boolean {
    return this.#jobs.has(job);
  }

  /** Makes a job due, even if the kvstore has rejected it. */
  add(job: J): void {
    this.#jobs.add(job);
    this.#wake();
  }

  /** Runs jobs until the signal fires, and resolves when all attempts have ended. Never rejects. One run at a time. */
  async run(signal: AbortSignal): Promise<void> {
    onAbort(signal, () => this.#wake());
    const { concurrency = CONCURRENCY } = this.#options;
    await Promise.all(Array.from({ length: concurrency }, () => this.#work(signal)));
    this.#jobs.endDelays();
  }

  /**
   * Runs jobs one after the other, and waits if none is due. No `await` may be between `#takeNext` and the wait,
   * because `#wake` would then miss this worker.
   */
  async #work(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const jobs = this.#takeNext();
      if (jobs === undefined) await new Promise<void>((resolve) => this.#idle.add(resolve));
      else await this.#try(jobs, signal);
    }
  }

  #wake(): void {
    if (this.#idle.size === 0) return;
    const idle = [...this.#idle];
    this.#idle.clear();
    for (const resume of idle) resume();
  }

  /**
   * Removes the next jobs to try together from the queue. Returns undefined if no job is due, or if the kvstore fails
   * and another job is being tried.
   */
  #takeNext(): Jobs<J> | undefined {
    const { batches } = this.#options;
    const isKvstoreFailing = this.#failuresInRow > 0;
    const first = isKvstoreFailing && this.#jobs.working > 0 ? undefined : this.#jobs.get();
    if (first === undefined) return undefined;
    const jobs: [J, ...J[]] = [first];
    if (batches === undefined || isKvstoreFailing) return jobs;
    let weight = batches.weightOf(first);
    while (jobs.length < batches.maxJobs && weight < batches.maxWeight) {
      const { next } = this.#jobs;
      if (next === undefined) break;
      weight += batches.weightOf(next);
      if (weight > batches.maxWeight) break;
      this.#jobs.get();
      jobs.push(next);
    }
    return jobs;
  }

  async #try(jobs: Jobs<J>, signal: AbortSignal): Promise<void> {
    const failuresBefore = this.#failuresInRow;
    const error = await this.#options.attempt(jobs, signal).then(() => undefined, asKvstoreError);
    if (error === undefined) this.#handleSuccess(jobs);
    else if (signal.aborted) this.#requeue(jobs);
    else if (jobs.length > 1 && BATCH_REJECTIONS.has(error.code))
      await Promise.all(jobs.map((job) => this.#try([job], signal)));
    else {
      this.#failures++;
      this.#lastFailure = failureOf(error, this.#options.clock);
      this.#report(error);
      // A rejected batch was split above, so this is the only job.
      if (REJECTIONS.has(error.code)) this.#delayRejected(jobs[0]);
      else await this.#handleFailure(jobs, failuresBefore, signal);
    }
    this.#wake();
  }

  #report(error: KvstoreError): void {
    if (this.#reported.has(error.code)) return;
    this.#reported.add(error.code);
    this.#guard.call((failure: KvstoreError) => this.#options.onFailure?.(failure), error);
  }

  #handleSuccess(jobs: readonly J[]): void {
    this.#failuresInRow = 0;
    if (this.#rejected.size > 0) for (const job of jobs) this.#rejected.delete(job);
    if (!this.#isFailing) this.#reported.clear();
    const done = jobs.filter((job) => this.#jobs.done(job));
    if (done.length > 0) this.#options.onDone?.(done);
  }

  /**
   * Waits before the kvstore is retried. During the wait the failed jobs count as running, so no other job is tried.
   *
   * @param failuresBefore value of `#failuresInRow` at the start of the attempt; concurrent failures count as one
   */
  async #handleFailure(jobs: readonly J[], failuresBefore: number, signal: AbortSignal): Promise<void> {
    const { clock, random } = this.#options;
    this.#failuresInRow = Math.max(this.#failuresInRow, failuresBefore + 1);
    await sleep(clock, backoffDelay(this.#failuresInRow, BACKOFF, random), signal);
    this.#requeue(jobs);
  }

  /** Makes jobs due again after their attempt. */
  #requeue(jobs: readonly J[]): void {
    for (const job of jobs) {
      this.#jobs.add(job);
      this.#jobs.done(job);
    }
  }

  /** Delays the next attempt of a job that the kvstore has rejected. */
  #delayRejected(job: J): void {
    this.#rejected.add(job);
    this.#jobs.addAfter(job, REJECTED_MS * (0.5 + this.#options.random()));
    this.#jobs.done(job);
  }
}
