import { Buffer } from 'node:buffer';

/** Bytes that wait to be read before the connection is held up. */
const MOST_WAITING = 64 * 1024;

const NO_ROOM = Buffer.alloc(0);

/** The connection that a body comes from. */
export interface Flow {
  pause(): void;
  resume(): void;
  abort(reason: Error): void;
}

/**
 * The body of an answer while it arrives. What has come in one turn of the event loop is handed out as one piece: a
 * connection with TLS gives 16 KiB at a time. To be read once; a piece is the reader's until it asks for the next.
 */
export class AnswerBody implements AsyncIterable<Uint8Array> {
  readonly #flow: Flow;
  #waiting: Uint8Array[] = [];
  #size = 0;
  /** What is put together is put in here, each time anew: memory of its own for each would wait for the collector. */
  #room = NO_ROOM;
  /** Why there is no more: `null` where the answer is complete. */
  #end: Error | null | undefined;
  #wake: (() => void) | undefined;

  constructor(flow: Flow) {
    this.#flow = flow;
  }

  push(bytes: Uint8Array): void {
    if (bytes.length === 0) return; // nothing to hand out
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
    const bytes = this.#waiting.length === 1 ? first : this.#together();
    this.#waiting = [];
    this.#size = 0;
    if (isHeld) this.#flow.resume();
    return bytes;
  }

  #together(): Uint8Array {
    if (this.#size > this.#room.length) this.#room = Buffer.allocUnsafeSlow(this.#size);
    let size = 0;
    for (const bytes of this.#waiting) {
      this.#room.set(bytes, size);
      size += bytes.length;
    }
    return this.#room.subarray(0, size);
  }

  #tell(): void {
    if (this.#wake === undefined) return;
    setImmediate(this.#wake);
    this.#wake = undefined;
  }
}
