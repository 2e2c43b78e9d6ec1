import type { CallbackGuard } from './guard.ts';

/**
 * The deliveries of one engine, one after the other. A callback may do anything to the engine: what it causes is
 * delivered when the delivery under way has reached everybody, a replay with all its steps being one delivery. So every
 * listener receives everything in the order in which it happened. Holds only what callbacks of one delivery cause (I11).
 */
export class DeliveryQueue {
  /** Behind it every callback of the engine's user is called. */
  readonly guard: CallbackGuard;
  readonly #waiting: (() => void)[] = [];
  #running = false;

  constructor(guard: CallbackGuard) {
    this.guard = guard;
  }

  /** Whether a delivery is under way: the caller was called by a callback. */
  get running(): boolean {
    return this.#running;
  }

  /** Runs `deliver` now, or in its turn when another delivery is under way. */
  run(deliver: () => void): void {
    if (this.#running) this.#waiting.push(deliver);
    else this.hold(deliver);
  }

  /**
   * Runs `work` at once and whole: the deliveries that it asks for begin when it has returned. What it throws reaches
   * the caller after them.
   */
  hold<T>(work: () => T): T {
    if (this.#running) return work();
    this.#running = true;
    try {
      return work();
    } finally {
      this.#finish();
    }
  }

  /** Calls `call` with each of the `recipients` that is still active and `what`, now or in its turn. */
  deliver<L, W>(recipients: readonly Recipient<L>[], call: (listener: L, what: W) => unknown, what: W): void {
    if (this.#running) {
      this.#waiting.push(() => this.#call(recipients, call, what));
      return;
    }
    this.#running = true;
    this.#call(recipients, call, what);
    this.#finish();
  }

  #call<L, W>(recipients: readonly Recipient<L>[], call: (listener: L, what: W) => unknown, what: W): void {
    for (const recipient of recipients) if (recipient.active) this.guard.call(call, recipient.listener, what);
  }

  /** Deliveries may ask for more while this runs. */
  #finish(): void {
    for (let i = 0; i < this.#waiting.length; i++) this.guard.call(this.#waiting[i]);
    if (this.#waiting.length > 0) this.#waiting.length = 0;
    this.#running = false;
  }
}

/** A listener and whether it is to be called still. */
export interface Recipient<L> {
  readonly listener: L;
  readonly active: boolean;
}
