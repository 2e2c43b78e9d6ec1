import { Buffer } from 'node:buffer';

/** Bytes that wait to be read before the connection is held up. */
const MOST_WAITING = 64 * 1024;

/** The connection that a body comes from. */
export interface Flow {
  pause(): void;
  resume(): void;
  abort(reason: Error): void;
}

/**
 * The body of an answer while it arrives. What has come in one turn of the event loop is handed out as one piece: a
 * connection with TLS gives 16 KiB at a time. To be read once.
 */
export class AnswerBody implements AsyncIterable<Uint8Array> {
  readonly #flow: Flow;
  #waiting: Uint8Array[] = [];
  #size = 0;
  /** Why there is no more: `null` where the answer is complete. */
  #end: Error | null | undefined;
  #wake: (() => void) | undefined;

  constructor(flow: Flow) {
    this.#flow = flow;
  }

  push(bytes: Uint8Array): void {
    if (bytes.length === 0) return; // as undici gives it at the end of a connection: holds nothing up
    this.#waiting.push(bytes);
    this.#size += bytes.length;
    if (this.#size > MOST_WAITING) this.#flow.pause();
    this.#tell();
  }

  /** What has come before an error is read before it is thrown. */
  end(error: Error | null): void {
    if (this.#end === undefined) this.#end = error;
    this.#tell();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array, void, void> {
    try {
      for (;;) {
        const bytes = this.#take();
        if (bytes !== undefined) yield bytes;
        else if (this.#end === null) return;
        else if (this.#end !== undefined) throw this.#end;
        else
          await new Promise<void>((resolve) => {
            this.#wake = resolve;
          });
      }
    } finally {
      if (this.#end === undefined) this.#flow.abort(new Error('not read to its end'));
    }
  }

  #take(): Uint8Array | undefined {
    const [first] = this.#waiting;
    if (first === undefined) return undefined;
    const isHeld = this.#size > MOST_WAITING;
    const bytes = this.#waiting.length === 1 ? first : Buffer.concat(this.#waiting, this.#size);
    this.#waiting = [];
    this.#size = 0;
    if (isHeld) this.#flow.resume();
    return bytes;
  }

  #tell(): void {
    if (this.#wake === undefined) return;
    setImmediate(this.#wake);
    this.#wake = undefined;
  }
}
