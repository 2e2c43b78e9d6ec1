import type { Clock } from '../../base/clock.ts';
import { type Failure, failureOf } from '../../base/failure.ts';
import { CallbackGuard } from '../../base/guard.ts';
import { sleep } from '../../base/sleep.ts';
import type { Duty, DutyState, DutyStatus } from '../duty.ts';
import type { Observed } from './observed-kind.ts';

/** A write that a collector made, or would have made: action, reason and outcome. */
export interface Action {
  readonly duty: string;
  /** `delete ciliumendpoints.cilium.io/v2 shop/web-0`. */
  readonly action: string;
  /** Reason without a final period, with the rounds that found the object. */
  readonly reason: string;
  /** `done`, `conflict`, `not-found`, `dry-run` … */
  readonly outcome: string;
}

/** Receives the results of a round. */
export interface RoundReport {
  /** Number of the round, from 1. */
  readonly round: number;
  /** Sets the number of marked objects. */
  marked(count: number): void;
  deleted(): void;
  conflict(): void;
  done(action: Omit<Action, 'duty'>): void;
}

/** The work of a collector, done in rounds. */
export interface Collector {
  readonly name: string;
  /** The kinds that must be complete before a round. */
  readonly needs: readonly Pick<Observed, 'blocked' | 'use'>[];
  /** Runs one round. Rejects if it could not be finished. Rounds never overlap. */
  round(report: RoundReport, signal: AbortSignal): Promise<void>;
}

/** Options of {@link RoundsDuty}. */
export interface RoundsOptions {
  readonly clock: Clock;
  /** Time between the starts of two rounds. */
  readonly intervalMs: number;
  readonly onFailure?: ((error: unknown, duty: string) => void) | undefined;
  readonly onAction?: ((action: Action) => void) | undefined;
}

/** Time between checks for a dependency that is not ready. */
const LOOK_MS = 5000;

/** The round cannot start because a dependency is incomplete. */
export class NotReadyError extends Error {
  override readonly name = 'NotReadyError';
  readonly code = 'not-ready';
}

/**
 * Runs the rounds of a collector one after the other. If a round fails, it is counted, and the next one starts as planned. If a
 * dependency is incomplete, the round does not start. Marks are deleted when the duty ends, so the next leader starts without
 * marks.
 */
export class RoundsDuty implements Duty {
  readonly name: string;
  readonly #collector: Collector;
  readonly #options: RoundsOptions;
  readonly #guard = new CallbackGuard();
  #state: DutyState = 'waiting';
  #rounds = 0;
  #marked = 0;
  #deleted = 0;
  #conflicts = 0;
  #failures = 0;
  #lastFailure: Failure | undefined;
  #lastRoundMs: number | undefined;
  #nextRoundMs: number | undefined;

  constructor(collector: Collector, options: RoundsOptions) {
    this.name = collector.name;
    this.#collector = collector;
    this.#options = options;
  }

  async run(signal: AbortSignal): Promise<void> {
    const { clock, intervalMs } = this.#options;
    for (const kind of this.#collector.needs) kind.use(signal);
    this.#state = 'waiting';
    while (!signal.aborted) {
      const begun = clock.now();
      const isReady = await this.#round(signal);
      const waitMs = isReady ? begun + intervalMs - clock.now() : Math.min(LOOK_MS, intervalMs);
      this.#nextRoundMs = clock.wallTime() + Math.max(0, waitMs);
      await sleep(clock, Math.max(0, waitMs), signal);
    }
    this.#state = 'ended';
    this.#nextRoundMs = undefined;
  }

  status(): DutyStatus {
    return {
      name: this.name,
      state: this.#state,
      failures: this.#failures,
      lastFailure: this.#lastFailure,
      rounds: {
        rounds: this.#rounds,
        marked: this.#marked,
        deleted: this.#deleted,
        conflicts: this.#conflicts,
        lastRoundMs: this.#lastRoundMs,
        nextRoundMs: this.#nextRoundMs,
      },
    };
  }

  /** Returns false if no round was run because a dependency is incomplete. */
  async #round(signal: AbortSignal): Promise<boolean> {
    const { clock } = this.#options;
    const why = this.#collector.needs.map((kind) => kind.blocked()).find((reason) => reason !== undefined);
    if (why !== undefined) {
      this.#state = 'waiting';
      if (this.#lastFailure?.message !== why) this.#failed(new NotReadyError(why));
      return false;
    }
    this.#state = 'running';
    if (this.#lastFailure?.code === 'not-ready') this.#lastFailure = undefined;
    this.#lastRoundMs = clock.wallTime();
    try {
      await this.#collector.round(this.#report(), signal);
      this.#rounds++;
    } catch (error) {
      if (!signal.aborted) this.#failed(error);
    }
    return true;
  }

  #failed(error: unknown): void {
    const { clock, onFailure } = this.#options;
    // A kind that is not listed yet is not a failure.
    if (!(error instanceof NotReadyError)) this.#failures++;
    this.#lastFailure = failureOf(error, clock);
    this.#guard.call(onFailure, error, this.name);
  }

  #report(): RoundReport {
    const { onAction } = this.#options;
    return {
      round: this.#rounds + 1,
      marked: (count) => {
        this.#marked = count;
      },
      deleted: () => {
        this.#deleted++;
      },
      conflict: () => {
        this.#conflicts++;
      },
      done: (action) => {
        this.#guard.call(onAction, { ...action, duty: this.name });
      },
    };
  }
}
