import type { Clock } from '../base/clock.ts';
import { type Failure, failureOf } from '../base/failure.ts';
import { CallbackGuard } from '../base/guard.ts';
import { sleep } from '../base/sleep.ts';
import type { Action, DutyStatus } from './duty.ts';

/** An input of a duty is incomplete. */
export class NotReadyError extends Error {
  override readonly name = 'NotReadyError';
  readonly code = 'not-ready';
}

/** Options of every duty. */
export interface DutyOptions {
  readonly clock: Clock;
  readonly onFailure?: ((error: unknown, duty: string) => void) | undefined;
  /** Receives each write with its reason. A duty may omit frequent writes. */
  readonly onAction?: ((action: Action) => void) | undefined;
}

const POLL_MS = 500;

/** Reports the failures, waits and writes of a duty. */
export class DutyReport {
  readonly #duty: string;
  readonly #options: DutyOptions;
  readonly #guard = new CallbackGuard();
  #failures = 0;
  #last: Failure | undefined;

  constructor(duty: string, options: DutyOptions) {
    this.#duty = duty;
    this.#options = options;
  }

  status(): Pick<DutyStatus, 'failures' | 'lastFailure'> {
    return { failures: this.#failures, lastFailure: this.#last };
  }

  /** Reports an error. Counts it as a failure unless it is a {@link NotReadyError}. */
  add(error: unknown): void {
    const { clock, onFailure } = this.#options;
    if (!(error instanceof NotReadyError)) this.#failures++;
    this.#last = failureOf(error, clock);
    this.#guard.call(onFailure, error, this.#duty);
  }

  /** Reports a write. */
  action(action: Omit<Action, 'duty'>): void {
    this.#guard.call(this.#options.onAction, { duty: this.#duty, ...action });
  }

  /** Reports an incomplete input once. */
  notReady(reason: string): void {
    if (this.#last?.message !== reason) this.add(new NotReadyError(reason));
  }

  /** Forgets an incomplete input. */
  ready(): void {
    if (this.#last?.code === 'not-ready') this.#last = undefined;
  }

  /** Waits until `blocked` returns no reason or the signal fires. Reports the reason after `quietMs`. */
  async whenReady(blocked: () => string | undefined, quietMs: number, signal: AbortSignal): Promise<void> {
    const { clock } = this.#options;
    const begun = clock.now();
    while (!signal.aborted) {
      const reason = blocked();
      if (reason === undefined) return this.ready();
      if (clock.now() - begun >= quietMs) this.notReady(reason);
      await sleep(clock, POLL_MS, signal);
    }
  }
}
