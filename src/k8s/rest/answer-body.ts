import { Buffer } from 'node:buffer';

/** Maximum number of unread bytes before the connection is paused. */
const MAX_UNREAD_BYTES = 64 * 1024;

const NO_BYTES = Buffer.alloc(0);

/** Controls the connection from which a body arrives. */
export interface Flow {
  pause(): void;
  resume(): void;
  abort(reason: Error): void;
}

/**
 * The body of a response while it arrives. It can be read once. All bytes that arrive in one turn of the event loop are
 * returned as one chunk, because TLS delivers only 16 KiB at a time. A chunk is valid until the next chunk is
 * requested.
 */
export class AnswerBody implements AsyncIterable<Uint8Array> {
  readonly #flow: Flow;
  #unread: Uint8Array[] = [];
  /** Number of unread bytes. */
  #size = 0;
  /** Buffer that joins chunks. It is reused, so that no memory waits for the garbage collector. */
  #joined = NO_BYTES;
  /** The end of the body: `null` if the response is complete, undefined before the end. */
  #end: Error | null | undefined;
  /** Resumes a waiting reader. */
  #wake: (() => void) | undefined;

  constructor(flow: Flow) {
    this.#flow = flow;
  }

  /** Adds received bytes. */
  push(bytes: Uint8Array): void {
    if (bytes.length === 0) return;
    this.#unread.push(bytes);
    this.#size += bytes.length;
    if (this.#size > MAX_UNREAD_BYTES) this.#flow.pause();
    this.#wakeReader();
  }

  /** Ends the body. Bytes that arrived before an error are returned before the error is thrown. */
  end(error: Error | null): void {
    if (this.#end === undefined) this.#end = error;
    this.#wakeReader();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array, void, void> {
    try {
      for (;;) {
        const bytes = this.#nextBytes();
        if (bytes !== undefined) yield bytes;
        else if (this.#end === null) return;
        else if (this.#end !== undefined) throw this.#end;
        else
          await new Promise<void>((resolve) => {
            this.#wake = resolve;
          });
      }
    } finally {
      if (this.#end === undefined) this.#flow.abort(new Error('the body was not read completely'));
    }
  }

  #nextBytes(): Uint8Array | undefined {
    const [first] = this.#unread;
    if (first === undefined) return undefined;
    const wasPaused = this.#size > MAX_UNREAD_BYTES;
    const bytes = this.#unread.length === 1 ? first : this.#concatenate();
    this.#unread = [];
    this.#size = 0;
    if (wasPaused) this.#flow.resume();
    return bytes;
  }

  #concatenate(): Uint8Array {
    if (this.#size > this.#joined.length) this.#joined = Buffer.allocUnsafeSlow(this.#size);
    let size = 0;
    for (const bytes of this.#unread) {
      this.#joined.set(bytes, size);
      size += bytes.length;
    }
    return this.#joined.subarray(0, size);
  }

  #wakeReader(): void {
    if (this.#wake === undefined) return;
    setImmediate(this.#wake);
    this.#wake = undefined;
  }
}
