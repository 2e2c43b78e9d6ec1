import type { StepDocument } from '../api/status-document.ts';
import type { Clock, Timer } from '../base/clock.ts';
import { messageOf } from '../base/failure.ts';
import { sleep } from '../base/sleep.ts';
import { InputError } from './input-error.ts';
import type { Logger } from './log.ts';
import { standsStill } from './step-text.ts';

/** What a step works with. */
export interface StepContext {
  /** Fires when the start is interrupted, the step is given up, or it is to stop. */
  readonly signal: AbortSignal;
  /** Says that it has come further: its time counts anew. Cheap. */
  readonly progress: () => void;
}

/** One step of a start. */
export interface Step {
  readonly name: string;
  /** Resolves when what later steps need is there. What it throws ends the start. */
  readonly start: (context: StepContext) => unknown;
  /** Takes back what `start` did, or has done so far: called once `start` has settled, or its time is over. */
  readonly stop?: () => unknown;
  /** What it waits for now, a sentence each. */
  readonly waitsFor?: () => readonly string[];
  /** It may stand still for so long; default: for ever. */
  readonly patienceMs?: number;
  /** What follows when it has: the start ends (the default), or goes on without it, and it may still be done later. */
  readonly otherwise?: 'end' | 'go on';
  /** Stopping may take so long; default {@link STOP_MS}. */
  readonly stopMs?: number;
}

/** What steps take from their process. */
export interface StepsContext {
  readonly log: Logger;
  readonly clock: Clock;
}

/** A step that has not come further for so long is reported, once. Upstream: a slow status probe (pkg/status). */
const SLOW_MS = 15_000;
/** A time that is noticed so much later than it was over is not held against a step: the process stood still. */
const STALL_MS = 1_000;
/** All steps but one that hangs stop in milliseconds; Kubernetes waits for 30 s until it kills. */
export const STOP_MS = 5_000;

/** A step on its way: when it began, when it came further, and what became of it. */
export class StartStep {
  readonly #step: Step;
  readonly #context: StepsContext;
  readonly #givenUp = new AbortController();
  #state: StepDocument['state'] = 'pending';
  #begunAt = 0;
  #progressAt = 0;
  #endedAt: number | undefined;
  #failure: string | undefined;
  #reported = false;
  #timer: Timer | undefined;
  #settled: Promise<unknown> = Promise.resolve();

  constructor(step: Step, context: StepsContext) {
    this.#step = step;
    this.#context = context;
  }

  get name(): string {
    return this.#step.name;
  }

  get state(): StepDocument['state'] {
    return this.#state;
  }

  status(): StepDocument {
    const now = this.#context.clock.now();
    const state = this.#state;
    const lasts = state === 'running' || state === 'overdue';
    return {
      name: this.#step.name,
      state,
      ms: state === 'pending' ? undefined : Math.round((this.#endedAt ?? now) - this.#begunAt),
      idleMs: lasts ? Math.round(now - this.#progressAt) : undefined,
      waitsFor: lasts ? [...(this.#step.waitsFor?.() ?? [])] : [],
      failure: this.#failure,
    };
  }

  /**
   * Resolves when the step is done or not waited for any longer, to false when it was interrupted. Rejects when the start
   * is to end.
   */
  begin(interrupt: AbortSignal): Promise<boolean> {
    const signal = AbortSignal.any([interrupt, this.#givenUp.signal]);
    const { clock } = this.#context;
    this.#state = 'running';
    this.#begunAt = clock.now();
    this.#progressAt = this.#begunAt;
    return new Promise((resolve, reject) => {
      const interrupted = (): void => {
        this.#end('failed', 'interrupted');
        resolve(false);
      };
      signal.addEventListener('abort', interrupted, { once: true });
      this.#watch(() => resolve(true), reject);
      const progress = (): void => {
        this.#progressAt = clock.now();
      };
      this.#settled = (async () => this.#step.start({ signal, progress }))()
        .then(
          () => this.#done(),
          (error: unknown) => {
            this.#failed(error);
            reject(error);
          },
        )
        .finally(() => {
          signal.removeEventListener('abort', interrupted);
          resolve(true);
        });
    });
  }

  /**
   * Takes back what it has done, once `start` has settled; whoever calls has interrupted that. Resolves to whether all of it has
   * ended in time; never rejects.
   */
  async stop(): Promise<boolean> {
    if (this.#state === 'pending') return true;
    const { stop, stopMs = STOP_MS, name } = this.#step;
    const { clock, log } = this.#context;
    this.#end('stopping');
    const over = new AbortController();
    const deadline = sleep(clock, stopMs, over.signal);
    const stopping = (async () => {
      await Promise.race([this.#settled, deadline]);
      await stop?.();
      await this.#settled;
      this.#state = 'stopped';
    })().catch((error: unknown) => {
      this.#state = 'stopped';
      this.#failure = messageOf(error);
      log.error({ err: error, step: name }, `${name} has failed to stop`);
    });
    await Promise.race([stopping, deadline]);
    over.abort();
    if (this.#state !== 'stopping') return true;
    this.#state = 'hanging';
    log.error({ step: name }, `${name} does not stop: left behind after ${stopMs / 1000} s`);
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
    // The end of trouble has the level of its beginning.
    this.#context.log[this.#reported ? 'warn' : 'info']({ step: name }, `${name}: done after ${ms} ms`);
  }

  #failed(error: unknown): void {
    if (!this.#isOpen()) return;
    const late = this.#state === 'overdue';
    this.#end('failed', messageOf(error));
    if (late) this.#context.log.error({ err: error, step: this.name }, `${this.name} has failed`);
  }

  /** Looks again when the step would be slow, or has stood still for too long. */
  #watch(resolve: () => void, reject: (error: unknown) => void): void {
    const { clock } = this.#context;
    const { patienceMs = Number.POSITIVE_INFINITY } = this.#step;
    const waitMs = this.#reported ? patienceMs : Math.min(patienceMs, SLOW_MS);
    if (waitMs === Number.POSITIVE_INFINITY) return;
    const at = this.#progressAt + waitMs;
    this.#timer = clock.after(at - clock.now(), () => {
      const now = clock.now();
      if (now - at > STALL_MS) this.#progressAt = now;
      const idleMs = now - this.#progressAt;
      if (idleMs >= patienceMs) this.#giveUp(resolve, reject);
      else {
        if (idleMs >= SLOW_MS && !this.#reported) this.#reportSlow();
        this.#watch(resolve, reject);
      }
    });
  }

  #reportSlow(): void {
    this.#reported = true;
    this.#context.log.warn({ step: this.name }, standsStill(this.status()));
  }

  #giveUp(resolve: () => void, reject: (error: unknown) => void): void {
    const why = standsStill(this.status());
    if (this.#step.otherwise === 'go on') {
      this.#state = 'overdue';
      this.#reported = true;
      this.#context.log.warn({ step: this.name }, `${why}; the start goes on without it`);
      resolve();
      return;
    }
    this.#end('failed', why);
    reject(new InputError(why));
    this.#givenUp.abort();
  }
}
