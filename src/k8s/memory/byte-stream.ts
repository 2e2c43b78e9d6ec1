const encoder = new TextEncoder();

/**
 * The body of an answer that goes on: what is written is read in order, then its end, or its break. A reader that goes
 * away is to be told by {@link ByteStream.break}: one that waits for more cannot say so itself.
 */
export class ByteStream implements AsyncIterable<Uint8Array> {
  #queue: string[] = [];
  #over: { readonly error: Error | undefined } | undefined;
  #wake: (() => void) | undefined;
  readonly #onClose: () => void;
  readonly #running: () => Promise<void>;

  /**
   * @param running resolves when the server runs: one that is stopped gives nothing
   * @param onClose called when it breaks, and when its end has been read
   */
  constructor(running: () => Promise<void>, onClose: () => void) {
    this.#running = running;
    this.#onClose = onClose;
  }

  /** Texts that have not been read yet. */
  get queued(): number {
    return this.#queue.length;
  }

  write(text: string): void {
    if (this.#over !== undefined) return;
    this.#queue.push(text);
    this.#wake?.();
  }

  /** An orderly end, after what is queued. */
  end(): void {
    this.#over ??= { error: undefined };
    this.#wake?.();
  }

  /** The connection breaks; what is queued is lost. */
  break(error: Error): void {
    if (this.#over?.error !== undefined) return;
    this.#queue = [];
    this.#over = { error };
    this.#onClose();
    this.#wake?.();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array, void, void> {
    try {
      for (;;) {
        await this.#running();
        if (this.#queue.length > 0) {
          const text = this.#queue.join('');
          this.#queue = [];
          yield encoder.encode(text);
        } else if (this.#over !== undefined) {
          if (this.#over.error !== undefined) throw this.#over.error;
          return;
        } else {
          await new Promise<void>((resolve) => {
            this.#wake = resolve;
          });
          this.#wake = undefined;
        }
      }
    } finally {
      this.#over ??= { error: undefined };
      this.#onClose();
    }
  }
}
