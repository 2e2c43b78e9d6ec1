import type { Clock } from '../base/clock.ts';
import { type Failure, failureOf } from '../base/failure.ts';
import { CallbackGuard } from '../base/guard.ts';
import type { DutyStatus } from './duty.ts';

/** An input of a duty is incomplete. */
export class NotReadyError extends Error {
  override readonly name = 'NotReadyError';
  readonly code = 'not-ready';
}

/** Options of {@link DutyFailures}. */
export interface DutyFailuresOptions {
  readonly clock: Pick<Clock, 'wallTime'>;
  readonly onFailure?: ((error: unknown, duty: string) => void) | undefined;
}

/** The failures of a duty: their number and the last one. */
export class DutyFailures {
  readonly #duty: string;
  readonly #options: DutyFailuresOptions;
  readonly #guard = new CallbackGuard();
  #count = 0;
  #last: Failure | undefined;

  constructor(duty: string, options: DutyFailuresOptions) {
    this.#duty = duty;
    this.#options = options;
  }

  status(): Pick<DutyStatus, 'failures' | 'lastFailure'> {
    return { failures: this.#count, lastFailure: this.#last };
  }

  /** Reports an error and counts it, unless it is a {@link NotReadyError}. */
  add(error: unknown): void {
    const { clock, onFailure } = this.#options;
    if (!(error instanceof NotReadyError)) this.#count++;
    this.#last = failureOf(error, clock);
    this.#guard.call(onFailure, error, this.#duty);
  }

  /** Reports an incomplete input once. */
  notReady(reason: string): void {
    if (this.#last?.message !== reason) this.add(new NotReadyError(reason));
  }

  /** Forgets an incomplete input. */
  ready(): void {
    if (this.#last?.code === 'not-ready') this.#last = undefined;
  }
}
