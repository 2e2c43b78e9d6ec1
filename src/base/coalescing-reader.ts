/** What a {@link CoalescingReader} needs of its owner. */
export interface CoalescingReaderOptions<T> {
  /** Takes out of `waiting` what the consumer is given next; `undefined`: there is nothing new. */
  readonly take: () => T | undefined;
  /** The reader has ended; called once, but not for a reader that is made with a signal that has fired. */
  readonly onEnd: () => void;
  /** Ends the reader. */
  readonly signal?: AbortSignal | undefined;
}

/**
 * An asynchronous iterator between a producer that does not wait and a consumer that takes its time: of each key only
 * one value waits, so it holds no more than there are keys (I11). `return` (leaving a `for await` loop), the signal and
 * `close` end it, also while `next` waits; what waits is dropped then.
 */
export class CoalescingReader<V, T> implements AsyncIterableIterator<T, undefined> {
  /** What the consumer has not been given yet, by key, in the order in which the keys came first. */
  readonly waiting: Map<string, V> = new Map();
  readonly #options: CoalescingReaderOptions<T>;
  readonly #end = (): void => this.close();
  #wakes: (() => void)[] = [];
  #closed = false;

  constructor(options: CoalescingReaderOptions<T>) {
    this.#options = options;
    this.#closed = options.signal?.aborted === true;
    if (!this.#closed) options.signal?.addEventListener('abort', this.#end);
  }

  get closed(): boolean {
    return this.#closed;
  }

  /** Something may be there to be taken. */
  wake(): void {
    for (const wake of this.#wakes.splice(0)) wake();
  }

  async next(): Promise<IteratorResult<T, undefined>> {
    while (!this.#closed) {
      const value = this.#options.take();
      if (value !== undefined) return { done: false, value };
      await new Promise<void>((resolve) => this.#wakes.push(resolve));
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

  /** Idempotent. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#options.signal?.removeEventListener('abort', this.#end);
    this.waiting.clear();
    this.#options.onEnd();
    this.wake();
  }
}
