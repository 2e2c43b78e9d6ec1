const encoder = new TextEncoder();

/**
 * The body of a streaming response. The reader receives all written chunks in order, then the end or an error. If the
 * reader disconnects, the owner must call {@link ByteStream.break}, because a waiting reader cannot report it.
 */
export class ByteStream implements AsyncIterable<Uint8Array> {
  #queue: string[] = [];
  #end: { readonly error: Error | undefined } | undefined;
  #wake: (() => void) | undefined;
  readonly #onClose: () => void;
  readonly #running: () => Promise<void>;

  /**
   * @param running resolves when the server runs; a paused server sends nothing
   * @param onClose called when the stream breaks or its end was read
   */
  constructor(running: () => Promise<void>, onClose: () => void) {
    this.#running = running;
    this.#onClose = onClose;
  }

  /** Number of unread chunks. */
  get queued(): number {
    return this.#queue.length;
  }

  write(text: string): void {
    if (this.#end !== undefined) return;
    this.#queue.push(text);
    this.#wake?.();
  }

  /** Ends the stream after the queued chunks. */
  end(): void {
    this.#end ??= { error: undefined };
    this.#wake?.();
  }

  /** Breaks the stream. Queued chunks are lost. */
  break(error: Error): void {
    if (this.#end?.error !== undefined) return;
    this.#queue = [];
    this.#end = { error };
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
        } else if (this.#end !== undefined) {
          if (this.#end.error !== undefined) throw this.#end.error;
          return;
        } else {
          await new Promise<void>((resolve) => {
            this.#wake = resolve;
          });
          this.#wake = undefined;
        }
      }
    } finally {
      this.#end ??= { error: undefined };
      this.#onClose();
    }
  }
}
