/**
 * Runs deliveries one after the other: one that is asked for while another runs (a listener that writes) waits
 * until that one is through, so every listener is told everything in the order in which it happened.
 */
export class DeliveryQueue {
  readonly #waiting: (() => void)[] = [];
  #running = false;

  /** Whether a delivery is running: somebody down the stack is a listener. */
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
    try {
      deliver();
      // Deliveries may add more while this runs; the array is walked by index and emptied at the end.
      for (let i = 0; i < this.#waiting.length; i++) this.#waiting[i]?.();
    } finally {
      if (this.#waiting.length > 0) this.#waiting.length = 0; // setting it is slow, and it is almost always 0
      this.#running = false;
    }
  }
}
