import type { CallbackGuard } from './guard.ts';

/**
 * Runs the deliveries of one engine one after the other, so that every listener receives all changes in order. A
 * callback may write to the engine: the resulting deliveries are queued until the current one has reached all
 * listeners. A replay with all its steps is one delivery. Between deliveries the queue is empty (I11).
 */
export class DeliveryQueue {
  /** Calls every callback of the engine's user. */
  readonly guard: CallbackGuard;
  readonly #waiting: (() => void)[] = [];
  #running = false;

  constructor(guard: CallbackGuard) {
    this.guard = guard;
  }

  /** True during a delivery. The caller then runs in a callback. */
  get running(): boolean {
    return this.#running;
  }

  /** Runs `deliver` now, or after the current delivery. */
  run(deliver: () => void): void {
    if (this.#running) this.#waiting.push(deliver);
    else this.deliverAfter(deliver);
  }

  /**
   * Runs `work` now. Deliveries that `work` requests start when `work` has returned. If `work` throws, these deliveries
   * run before the error is thrown to the caller.
   */
  deliverAfter<T>(work: () => T): T {
    if (this.#running) return work();
    this.#running = true;
    try {
      return work();
    } finally {
      this.#finish();
    }
  }

  /** Calls `call` with each active recipient and `event`, now or after the current delivery. */
  deliver<L, E>(
    recipients: readonly Recipient<L>[],
    call: (listener: L, event: E) => unknown,
    event: E,
  ): void {
    if (this.#running) {
      this.#waiting.push(() => this.#call(recipients, call, event));
      return;
    }
    this.#running = true;
    this.#call(recipients, call, event);
    this.#finish();
  }

  #call<L, E>(recipients: readonly Recipient<L>[], call: (listener: L, event: E) => unknown, event: E): void {
    for (const recipient of recipients)
      if (recipient.active) this.guard.call(call, recipient.listener, event);
  }

  /** Runs the queued deliveries, which may queue more. */
  #finish(): void {
    for (let i = 0; i < this.#waiting.length; i++) this.guard.call(this.#waiting[i]);
    if (this.#waiting.length > 0) this.#waiting.length = 0;
    this.#running = false;
  }
}

/** A listener; inactive after it has unsubscribed. */
export interface Recipient<L> {
  readonly listener: L;
  readonly active: boolean;
}
