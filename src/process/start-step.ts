import type { StepDocument } from '../api/status-document.ts';
import type { Clock, Timer } from '../base/clock.ts';
import { messageOf } from '../base/failure.ts';
import { EitherSignal, onAbort } from '../base/follow-signal.ts';
import { sleep } from '../base/sleep.ts';
import { InputError } from './input-error.ts';
import type { Logger } from './log.ts';
import { stalledText } from './step-text.ts';

export interface StepContext {
  /** Fires when the start is interrupted, the step has failed by its progress timeout, or the step should stop. */
  readonly signal: AbortSignal;
  /** Reports progress, which restarts the progress timeout of the step. Cheap. */
  readonly progress: () => void;
}

export interface Step {
  readonly name: string;
  /** Resolves when later steps may begin. If it throws, the start fails. */
  readonly start: (context: StepContext) => unknown;
  /**
   * Undoes the work of `start`, even if `start` has rejected or hangs. Called when `start` has settled, or after
   * `stopMs` if it has not.
   */
  readonly stop?: () => unknown;
  /** Returns a phrase for each reason why the step currently waits. */
  readonly waitsFor?: () => readonly string[];
  /** Returns the time of the last progress, monotonic, for a step without calls of `progress`. */
  readonly progressAt?: () => number;
  /** Maximum time without progress; default: unlimited. */
  readonly progressTimeoutMs?: number;
  /**
   * The result of a progress timeout. `fail` (the default): the start fails. `continue`: the start continues without
   * the step, which may still finish later.
   */
  readonly onTimeout?: 'fail' | 'continue';
  /** Maximum duration of stopping; default {@link STOP_MS}. */
  readonly stopMs?: number;
}

/** The parts of the process used by steps. */
export interface StepEnvironment {
  readonly log: Logger;
  readonly clock: Clock;
}

/**
 * Time without progress after which a step is logged, once. Cilium uses the same time for a slow status probe
 * (pkg/status).
 */
const SLOW_MS = 15_000;
/** If a timer fires late by more than this, the process was suspended. The time without progress then starts again. */
const SUSPENDED_MS = 1_000;
/** Maximum duration of stopping a step. All steps except a hanging one stop in milliseconds. */
export const STOP_MS = 5_000;
/** Maximum time from a signal to the end of the process. Kubernetes kills a container after 30 s. */
export const PROCESS_STOP_MS = 28_000;
/** Maximum time without progress while a step reads a file or a recording. */
export const READ_MS = 180_000;
/**
 * Time after which the start fails if the local kvstore does not answer. A supervisor is expected to restart the
 * process.
 */
export const REACH_MS = 30_000;

/** Runs one step: its times, its progress and its outcome. */
export class StartStep {
  readonly #step: Step;
  readonly #context: StepEnvironment;
  /** Fires when the start has failed because the step made no progress. */
  readonly #givenUp = new AbortController();
  #state: StepDocument['state'] = 'pending';
  #begunAt = 0;
  #progressAt = 0;
  #endedAt: number | undefined;
  #failure: string | undefined;
  /** True if the step was logged as slow or skipped. */
  #isReported = false;
  #timer: Timer | undefined;
  /** Resolves when the step's `start` has settled. */
  #settled: Promise<unknown> = Promise.resolve();

  constructor(step: Step, context: StepEnvironment) {
    this.#step = step;
    this.#context = context;
  }

  get name(): string {
    return this.#step.name;
  }

  get #lastProgressAt(): number {
    return Math.max(this.#progressAt, this.#step.progressAt?.() ?? 0);
  }

  status(): StepDocument {
    const now = this.#context.clock.now();
    const state = this.#state;
    const isOpen = state === 'running' || state === 'overdue';
    return {
      name: this.#step.name,
      state,
      ms: state === 'pending' ? undefined : Math.round((this.#endedAt ?? now) - this.#begunAt),
      idleMs: isOpen ? Math.round(now - this.#lastProgressAt) : undefined,
      waitsFor: isOpen ? [...(this.#step.waitsFor?.() ?? [])] : [],
      failure: this.#failure,
    };
  }

  /**
   * Starts the step. Resolves to true when the step is done or the start continues without it, to false if the step was
   * interrupted. Rejects if the start fails.
   */
  begin(interrupt: AbortSignal): Promise<boolean> {
    // Not disposed of, because the step may keep the signal.
    const { signal } = new EitherSignal(interrupt, this.#givenUp.signal);
    const { clock } = this.#context;
    this.#state = 'running';
    this.#begunAt = clock.now();
    this.#progressAt = this.#begunAt;
    return new Promise((resolve, reject) => {
      const leaveSignal = onAbort(signal, () => {
        this.#end('failed', 'interrupted');
        resolve(false);
      });
      this.#watch(() => resolve(true), reject);
      const progress = (): void => {
        this.#progressAt = clock.now();
      };
      this.#settled = (async () => this.#step.start({ signal, progress }))()
        .then(
          () => {
            this.#done();
            resolve(true);
          },
          (error: unknown) => {
            this.#failed(error);
            reject(error);
          },
        )
        .finally(leaveSignal);
    });
  }

  /**
   * Calls the step's `stop` after its `start` has settled. The caller must have interrupted `start`. Resolves to true
   * if both have ended in time. Never rejects.
   */
  async stop(): Promise<boolean> {
    if (this.#state === 'pending') return true;
    const { stop, stopMs = STOP_MS, name } = this.#step;
    const { clock, log } = this.#context;
    this.#end('stopping');
    const ended = new AbortController();
    const deadline = sleep(clock, stopMs, ended.signal);
    const stopping = (async () => {
      await Promise.race([this.#settled, deadline]);
      await stop?.();
      await this.#settled;
      this.#state = 'stopped';
    })().catch((error: unknown) => {
      this.#state = 'stopped';
      this.#failure = messageOf(error);
      log.error({ err: error, step: name }, `${name}: cannot stop`);
    });
    await Promise.race([stopping, deadline]);
    ended.abort();
    if (this.#state !== 'stopping') return true;
    this.#state = 'hanging';
    log.error({ step: name }, `${name} did not stop within ${stopMs / 1000} s: abandoned`);
    return false;
  }

  #end(state: StepDocument['state'], failure?: string): void {
    this.#timer?.cancel();
    this.#endedAt ??= this.#context.clock.now();
    this.#state = state;
    this.#failure ??= failure;
  }

  #isOpen(): boolean {
    return this.#state === 'running' || this.#state === 'overdue';
  }

  #done(): void {
    if (!this.#isOpen()) return;
    this.#end('done');
    const { name, ms } = this.status();
    // The end of a problem has the same log level as its beginning.
    this.#context.log[this.#isReported ? 'warn' : 'info']({ step: name }, `${name}: done after ${ms} ms`);
  }

  #failed(error: unknown): void {
    if (!this.#isOpen()) return;
    const wasOverdue = this.#state === 'overdue';
    this.#end('failed', messageOf(error));
    if (wasOverdue) this.#context.log.error({ err: error, step: this.name }, `${this.name} failed`);
  }

  /**
   * Schedules the next check, for the moment when the step would be slow or its time without progress would be over. If
   * the step has made progress by then, the check only schedules the next one.
   */
  #watch(resolve: () => void, reject: (error: unknown) => void): void {
    const { clock } = this.#context;
    const { progressTimeoutMs = Number.POSITIVE_INFINITY } = this.#step;
    const waitMs = this.#isReported ? progressTimeoutMs : Math.min(progressTimeoutMs, SLOW_MS);
    if (waitMs === Number.POSITIVE_INFINITY) return;
    const at = this.#lastProgressAt + waitMs;
    this.#timer = clock.after(at - clock.now(), () => {
      const now = clock.now();
      if (now - at > SUSPENDED_MS) this.#progressAt = now;
      const idleMs = now - this.#lastProgressAt;
      if (idleMs >= progressTimeoutMs) this.#giveUp(resolve, reject);
      else {
        if (idleMs >= SLOW_MS && !this.#isReported) this.#reportSlow();
        this.#watch(resolve, reject);
      }
    });
  }

  #reportSlow(): void {
    this.#isReported = true;
    this.#context.log.warn({ step: this.name }, stalledText(this.status()));
  }

  #giveUp(resolve: () => void, reject: (error: unknown) => void): void {
    const reason = stalledText(this.status());
    if (this.#step.onTimeout === 'continue') {
      this.#state = 'overdue';
      this.#isReported = true;
      this.#context.log.warn({ step: this.name }, `${reason}; the start continues without it`);
      resolve();
      return;
    }
    this.#end('failed', reason);
    reject(new InputError(reason));
    this.#givenUp.abort();
  }
}
