import type { Clock } from '../base/clock.ts';
import { type Failure, failureOf } from '../base/failure.ts';
import { CallbackGuard } from '../base/guard.ts';
import { sleep } from '../base/sleep.ts';
import type { Runtime } from '../base/system-clock.ts';
import type { TurnGate } from '../base/turn-gate.ts';
import type { Action, DutyState, DutyStatus } from './duty.ts';

/** Thrown or reported if an input of a duty is incomplete. */
export class NotReadyError extends Error {
  override readonly name = 'NotReadyError';
  readonly code = 'not-ready';
}

/** Returns the reason why a duty waits for a kind that the API server does not serve. `kind`: `pods/v1`. */
export function notServedText(kind: string): string {
  const isBuiltIn = /^[^.]+\/|\.k8s\.io\//.test(kind);
  return `the server does not serve ${kind}: ${isBuiltIn ? 'it is too old' : 'its CRD is not installed'}`;
}

export interface DutyOptions {
  readonly clock: Clock;
  /** Receives failures with the name of the duty or of a part of it. All are retried. */
  readonly onFailure?: ((error: unknown, duty: string) => void) | undefined;
  /** Receives each write with its reason. A duty may omit frequent writes. */
  readonly onAction?: ((action: Action) => void) | undefined;
}

/** Options of a duty with random delays, or with long work. */
export interface DutyContext extends DutyOptions, Runtime {
  /** Splits long work into short turns of the event loop. Default: not split. */
  readonly gate?: TurnGate | undefined;
}

/** Time between two checks of the inputs. */
const POLL_MS = 500;
/** Maximum number of reports of one error code within {@link REPORT_PERIOD_MS}. Without a right, each write fails. */
const MAX_REPORTS = 10;
const REPORT_PERIOD_MS = 60_000;

/** The state of a duty, and the reports of its failures, waits and writes. */
export class DutyReport {
  /** The duty sets it. */
  state: DutyState = 'waiting';
  readonly #duty: string;
  readonly #options: DutyOptions;
  readonly #guard = new CallbackGuard();
  #failures = 0;
  #lastFailure: Failure | undefined;
  /** The current period of each error code: its start, by {@link Clock.now}, and its number of errors. */
  readonly #periods = new Map<string, { readonly since: number; errors: number }>();

  constructor(duty: string, options: DutyOptions) {
    this.#duty = duty;
    this.#options = options;
  }

  status(): Pick<DutyStatus, 'name' | 'state' | 'failures' | 'lastFailure'> {
    return {
      name: this.#duty,
      state: this.state,
      failures: this.#failures,
      lastFailure: this.#lastFailure,
    };
  }

  /**
   * Counts an error as a failure, unless it is a {@link NotReadyError}. Reports at most {@link MAX_REPORTS} errors of
   * one code in a period.
   */
  addError(error: unknown): void {
    const { clock, onFailure } = this.#options;
    if (!(error instanceof NotReadyError)) this.#failures++;
    this.#lastFailure = failureOf(error, clock);
    const { code } = this.#lastFailure;
    const now = clock.now();
    const known = this.#periods.get(code);
    const isOver = known === undefined || now - known.since >= REPORT_PERIOD_MS;
    const period = isOver ? { since: now, errors: 0 } : known;
    this.#periods.set(code, period);
    if (++period.errors <= MAX_REPORTS) this.#guard.call(onFailure, error, this.#duty);
  }

  addAction(action: Omit<Action, 'duty'>): void {
    this.#guard.call(this.#options.onAction, { duty: this.#duty, ...action });
  }

  /** Reports an incomplete input, unless it was the last report. */
  addNotReady(reason: string): void {
    if (this.#lastFailure?.message !== reason) this.addError(new NotReadyError(reason));
  }

  /** Removes an incomplete input from the status. */
  clearNotReady(): void {
    if (this.#lastFailure?.code === 'not-ready') this.#lastFailure = undefined;
  }

  /**
   * Waits until `notReadyReason` returns undefined or the signal fires. Reports the reason if the wait exceeds
   * `quietMs`.
   */
  async whenReady(
    notReadyReason: () => string | undefined,
    quietMs: number,
    signal: AbortSignal,
  ): Promise<void> {
    const { clock } = this.#options;
    const startedAt = clock.now();
    while (!signal.aborted) {
      const reason = notReadyReason();
      if (reason === undefined) return this.clearNotReady();
      if (clock.now() - startedAt >= quietMs) this.addNotReady(reason);
      await sleep(clock, POLL_MS, signal);
    }
  }
}
