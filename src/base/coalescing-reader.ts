import { onAbort } from './follow-signal.ts';
import { KeyedQueue } from './keyed-queue.ts';

/** Callbacks and signal of a {@link CoalescingReader}. */
export interface CoalescingReaderOptions<T> {
  /** Removes one or more values from `waiting`, and returns what `next` yields for them; undefined if there is none. */
  readonly shift: () => T | undefined;
  /** Called once when the reader ends, unless the signal had fired before the reader was created. */
  readonly onEnd: () => void;
  /** Ends the reader. */
  readonly signal?: AbortSignal | undefined;
}

/**
 * An asynchronous iterator between a producer that does not wait and a slow consumer. It keeps one value per key, so
 * that its size is limited by the number of keys (I11). `return` (leaving a `for await` loop), the signal and `close`
 * end it, even while `next` waits; waiting values are dropped. `V` is a value of a key, `T` what the consumer receives.
 */
export class CoalescingReader<V, T> implements AsyncIterableIterator<T> {
  /** Pending values by key. A value that replaces another keeps its place in the order. */
  readonly waiting: KeyedQueue<string, V> = new KeyedQueue();
  readonly #options: CoalescingReaderOptions<T>;
  readonly #leaveSignal: () => void;
  /** Functions that end the wait of one pending call of `next` each. */
  readonly #pendingCalls: (() => void)[] = [];
  #closed = false;

  constructor(options: CoalescingReaderOptions<T>) {
    this.#options = options;
    const { signal } = options;
    this.#closed = signal?.aborted === true;
    this.#leaveSignal = this.#closed ? () => {} : onAbort(signal, () => this.close());
  }

  get closed(): boolean {
    return this.#closed;
  }

  /** Must be called after each addition to `waiting`: lets pending calls of `next` call `shift` again. */
  wake(): void {
    for (const resolve of this.#pendingCalls.splice(0)) resolve();
  }

  async next(): Promise<IteratorResult<T, undefined>> {
    while (!this.#closed) {
      const value = this.#options.shift();
      if (value !== undefined) return { done: false, value };
      await new Promise<void>((resolve) => this.#pendingCalls.push(resolve));
    }
    return { done: true, value: undefined };
  }

  return(): Promise<IteratorResult<T, undefined>> {
    this.close();
    return Promise.resolve({ done: true, value: undefined });
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  /** Ends the reader. Idempotent. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#leaveSignal();
    this.waiting.clear();
    this.#options.onEnd();
    this.wake();
  }
}
