import { isBackedUp, type Output } from '../agent/terminal.ts';

/** After a signal, pending output is waited for so long: who reads a pipe slowly gets its end, who does not read it holds up nothing. */
const DRAIN_MS = 1_000;

const REASONS: ReadonlyMap<string, string> = new Map([
  ['ENOSPC', 'no space left on device'],
  ['EIO', 'input/output error'],
  ['EFBIG', 'the file is too large'],
]);

/** A stream of the process, such as `process.stdout`. */
type Stream = NodeJS.WriteStream;

/** What the output of this process runs into. */
export interface OutputFaults {
  /** The reader has closed the pipe (`| head`): no failure, and there is nothing more to do. */
  readonly onClosed: () => void;
  /** Writing has failed for `why`; called once. */
  readonly onFailed: (why: string) => void;
}

/**
 * An {@link Output} over a stream of the process. Nothing is written after the stream has failed.
 */
export class ProcessOutput implements Output {
  readonly #stream: Stream;
  #failed = false;

  constructor(stream: Stream, { onClosed, onFailed }: OutputFaults) {
    this.#stream = stream;
    stream.on('error', (error: NodeJS.ErrnoException) => {
      if (this.#failed) return;
      this.#failed = true;
      if (error.code === 'EPIPE') onClosed();
      else onFailed(REASONS.get(error.code ?? '') ?? error.message);
    });
  }

  get isTTY(): boolean {
    return this.#stream.isTTY === true;
  }

  get columns(): number | undefined {
    return this.isTTY ? this.#stream.columns : undefined;
  }

  get writableLength(): number {
    return this.#stream.writableLength;
  }

  write(text: string): void {
    if (!this.#failed) this.#stream.write(text);
  }

  /** Resolves once the reader has taken nearly everything, or the stream has failed or `signal` has fired. */
  async drained(signal: AbortSignal): Promise<void> {
    if (this.#failed || signal.aborted || !this.#stream.writableNeedDrain) return;
    await new Promise<void>((resolve) => {
      const done = (): void => {
        for (const event of ['drain', 'error'] as const) this.#stream.off(event, done);
        signal.removeEventListener('abort', done);
        resolve();
      };
      for (const event of ['drain', 'error'] as const) this.#stream.on(event, done);
      signal.addEventListener('abort', done);
    });
  }
}

/**
 * An {@link Output} for log lines: while their reader is far behind they are dropped, and a line then says how many (I11).
 */
export class LogOutput implements Output {
  readonly #output: Output;
  #dropped = 0;

  constructor(output: Output) {
    this.#output = output;
  }

  write(line: string): void {
    if (isBackedUp(this.#output)) {
      this.#dropped++;
      return;
    }
    if (this.#dropped > 0)
      this.#output.write(`dpcache: ${this.#dropped} log lines were dropped: they are read too slowly\n`);
    this.#dropped = 0;
    this.#output.write(line);
  }
}

/** Ends the process soon, even if its log is not being read or something that was left behind would keep it. */
export function exitSoon(): void {
  setTimeout(() => process.exit(), DRAIN_MS).unref();
}
