import type { Clock } from '../base/clock.ts';
import { EitherSignal } from '../base/follow-signal.ts';
import { sleep } from '../base/sleep.ts';

/**
 * A sleep that ends early when {@link WakeableSleep.wake} is called. A call of `wake` before the sleep has no effect.
 */
export class WakeableSleep {
  readonly #clock: Clock;
  #woken: AbortController | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Resolves after `ms`, after `wake`, or when the signal fires. One call at a time. */
  async sleep(ms: number, signal: AbortSignal): Promise<void> {
    this.#woken = new AbortController();
    using either = new EitherSignal(signal, this.#woken.signal);
    await sleep(this.#clock, ms, either.signal);
    this.#woken = undefined;
  }

  wake(): void {
    this.#woken?.abort();
  }
}
