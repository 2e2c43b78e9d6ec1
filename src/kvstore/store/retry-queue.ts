import { backoffDelay } from '../../base/backoff.ts';
import type { Clock, Random, Timer } from '../../base/clock.ts';
import { type Failure, failureOf } from '../../base/failure.ts';
import { sleep } from '../../base/sleep.ts';
import { asKvstoreError, type KvstoreError, type KvstoreErrorCode } from '../errors.ts';
import { sharedSignal } from '../shared-signal.ts';

/** Options of {@link RetryQueue}. */
export interface RetryQueueOptions<J> {
  readonly clock: Clock;
  readonly random: Random;
  /** Attempts under way at a time. Default 8. */
  readonly concurrency?: number | undefined;
  /** Does the job, once; a rejection means that it has to be tried again. */
  attempt(job: J, signal: AbortSignal): Promise<void>;
  /** Receives a job that was done, and that has not been added again meanwhile. */
  onDone?(job: J): void;
}

/** A {@link RetryQueue} as data. */
export interface RetryQueueStatus {
  /** Jobs that are not done. */
  readonly pending: number;
  readonly failures: number;
  readonly lastFailure: Failure | undefined;
}

const CONCURRENCY = 8;
const BACKOFF = { baseMs: 100, capMs: 5000 };

/** Failures of the job, not of the kvstore: other jobs go on. */
const REFUSALS: ReadonlySet<KvstoreErrorCode> = new Set(['invalid-request', 'too-large']);
// What was refused will be refused again, unless the kvstore is set up anew: there is no hurry.
const REFUSED_MS = 60_000;

/**
 * Does jobs with a kvstore until each has succeeded: oldest first, several at a time, each job at most once at a time. A
 * job that is added again while it is under way is done once more afterwards.
 *
 * When the kvstore fails it is tried with one job at a time, with backoff, because every other would fail too; the
 * first success makes everything due at once. A job that the kvstore refuses holds back no other.
 */
export class RetryQueue<J> {
  readonly #options: RetryQueueOptions<J>;
  /** Jobs that are due, oldest first. */
  readonly #due = new Set<J>();
  readonly #busy = new Set<J>();
  /** Jobs that the kvstore has refused, and what tries them again. */
  readonly #refused = new Map<J, Timer>();
  /** Workers that have nothing to do. */
  readonly #idle = new Set<() => void>();
  /** Failures of the kvstore in a row. */
  #outage = 0;
  #failures = 0;
  #lastFailure: Failure | undefined;

  constructor(options: RetryQueueOptions<J>) {
    this.#options = options;
  }

  /** Jobs that are not done. A new collection: costs their number. */
  get pending(): ReadonlySet<J> {
    return new Set([...this.#due, ...this.#busy, ...this.#refused.keys()]);
  }

  status(): RetryQueueStatus {
    return { pending: this.pending.size, failures: this.#failures, lastFailure: this.#lastFailure };
  }

  /** Whether the job is not done. */
  has(job: J): boolean {
    return this.#due.has(job) || this.#busy.has(job) || this.#refused.has(job);
  }

  /** The job is due, also if the kvstore has refused it. */
  add(job: J): void {
    this.#refused.get(job)?.cancel();
    this.#refused.delete(job);
    this.#due.add(job);
    this.#wake();
  }

  /** Does jobs until the signal fires; what is under way ends before. Never rejects. Once at a time. */
  async run(signal: AbortSignal): Promise<void> {
    const stop = (): void => this.#wake();
    sharedSignal(signal).addEventListener('abort', stop);
    const { concurrency = CONCURRENCY } = this.#options;
    await Promise.all(Array.from({ length: concurrency }, () => this.#work(signal)));
    for (const job of [...this.#refused.keys()]) this.add(job);
    signal.removeEventListener('abort', stop);
  }

  /** Takes one job after the other; waits when there is none. Nothing is awaited between looking and waiting. */
  async #work(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const job = this.#take();
      if (job === undefined) await new Promise<void>((resolve) => this.#idle.add(resolve));
      else await this.#try(job.due, signal);
    }
  }

  #wake(): void {
    const idle = [...this.#idle];
    this.#idle.clear();
    for (const resume of idle) resume();
  }

  /** The next job; none while the kvstore fails and is being tried already. */
  #take(): { readonly due: J } | undefined {
    if (this.#outage > 0 && this.#busy.size > 0) return undefined;
    for (const due of this.#due) {
      if (this.#busy.has(due)) continue;
      this.#due.delete(due);
      this.#busy.add(due);
      return { due };
    }
    return undefined;
  }

  async #try(job: J, signal: AbortSignal): Promise<void> {
    const outage = this.#outage;
    const error = await this.#attempt(job, signal);
    if (error !== undefined && !signal.aborted) {
      this.#failures++;
      this.#lastFailure = failureOf(error, this.#options.clock);
    }
    const isRefused = error !== undefined && REFUSALS.has(error.code);
    if (error !== undefined && !isRefused) await this.#backOff(outage, signal);
    this.#busy.delete(job);
    if (error === undefined) this.#succeeded(job);
    else if (isRefused && !this.#due.has(job)) this.#rest(job);
    else this.#due.add(job);
    this.#wake();
  }

  async #attempt(job: J, signal: AbortSignal): Promise<KvstoreError | undefined> {
    try {
      await this.#options.attempt(job, signal);
      return undefined;
    } catch (thrown) {
      return asKvstoreError(thrown);
    }
  }

  #succeeded(job: J): void {
    this.#outage = 0;
    if (!this.#due.has(job)) this.#options.onDone?.(job);
  }

  /**
   * Waits before the kvstore is tried again. What has failed stays busy meanwhile, and so nothing else is tried.
   *
   * @param outage as it was when the attempt began: attempts that fail together are one failure
   */
  async #backOff(outage: number, signal: AbortSignal): Promise<void> {
    const { clock, random } = this.#options;
    this.#outage = Math.max(this.#outage, outage + 1);
    await sleep(clock, backoffDelay(this.#outage, BACKOFF, random), signal);
  }

  #rest(job: J): void {
    const { clock, random } = this.#options;
    const again = clock.after(REFUSED_MS * (0.5 + random()), () => this.add(job));
    this.#refused.set(job, again);
  }
}
