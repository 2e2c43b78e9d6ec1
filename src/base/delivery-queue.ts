import type { ListenerSet } from './listener-set.ts';

/**
 * Delivers to listeners, one delivery after the other: one that is asked for while another runs (a listener that
 * writes) waits until that one is through, so every listener is told everything in the order in which it happened.
 */
export class DeliveryQueue {
  readonly #waiting: (() => void)[] = [];
  #running = false;

  /** Whether a delivery is under way: somebody down the stack is a listener. */
  get running(): boolean {
    return this.#running;
  }

  /** Runs `deliver` now, or after those that are under way. `deliver` must not throw. */
  run(deliver: () => void): void {
    if (this.#running) {
      this.#waiting.push(deliver);
      return;
    }
    this.#running = true;
    deliver();
    if (this.#waiting.length > 0) this.#drain();
    this.#running = false;
  }

  /**
   * Tells `what` to those who are listeners now: at once, or after the deliveries under way. `call` is passed
   * `what` so that it needs to be no closure. Never throws.
   */
  deliver<L extends object, W>(set: ListenerSet<L>, call: (listener: L, what: W) => void, what: W): void {
    if (set.size === 0) return;
    if (this.#running) {
      const listeners = set.current;
      this.#waiting.push(() => set.tell(call, what, listeners));
      return;
    }
    this.#running = true;
    set.tell(call, what);
    if (this.#waiting.length > 0) this.#drain();
    this.#running = false;
  }

  /** Deliveries may ask for more while this runs. */
  #drain(): void {
    for (let i = 0; i < this.#waiting.length; i++) this.#waiting[i]?.();
    this.#waiting.length = 0;
  }
}
