import { assert } from './assert.ts';

/** A value under its key, as it leaves a {@link CoalescingQueue}. */
export interface Queued<V> {
  readonly key: string;
  readonly value: V;
}

/**
 * A queue between a producer that must not wait and one consumer that may be slow: of each key it holds only the
 * latest value, so it never holds more than there are keys (I11). Keys leave in the order in which they first
 * came in; a value that replaces another one keeps its place.
 */
export class CoalescingQueue<V> {
  readonly #waiting = new Map<string, V>();
  /** Wakes the consumer that found the queue empty. */
  #wake: (() => void) | undefined;
  #closed = false;

  /** How many keys wait. */
  get size(): number {
    return this.#waiting.size;
  }

  get closed(): boolean {
    return this.#closed;
  }

  /** What waits, in order. */
  waiting(): Iterable<readonly [key: string, value: V]> {
    return this.#waiting;
  }

  /** Puts a value in, or in place of the one that waits. Does nothing once the queue is closed. */
  push(key: string, value: V): void {
    if (this.#closed) return;
    this.#waiting.set(key, value);
    this.#wake?.();
  }

  /** The next value, waiting for one; `undefined` once the queue is closed. One caller at a time. */
  async take(): Promise<Queued<V> | undefined> {
    assert(this.#wake === undefined, 'a coalescing queue has one consumer');
    while (this.#waiting.size === 0 && !this.#closed) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
      this.#wake = undefined;
    }
    if (this.#closed) return undefined;
    return this.#shift();
  }

  /** Drops what waits and lets the consumer go. Idempotent. */
  close(): void {
    this.#closed = true;
    this.#waiting.clear();
    this.#wake?.();
  }

  #shift(): Queued<V> | undefined {
    for (const [key, value] of this.#waiting) {
      this.#waiting.delete(key);
      return { key, value };
    }
    return undefined;
  }
}
