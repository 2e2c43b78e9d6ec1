import { onAbort } from '../base/follow-signal.ts';
import { isBackedUp, type Output } from '../process/terminal.ts';
import { EXIT, type ExitStatus } from './io.ts';

/**
 * Time for writing pending output after a signal. A slow reader still receives it, and a stopped reader does not keep
 * the process alive.
 */
const DRAIN_MS = 1_000;

/** Reasons of failed writes by error code. */
const REASONS: ReadonlyMap<string, string> = new Map([
  ['ENOSPC', 'no space left on device'],
  ['EIO', 'input/output error'],
  ['EFBIG', 'the file is too large'],
]);

/** A stream of the process, such as `process.stdout`. */
type Stream = NodeJS.WriteStream;

/** Receives the failures of an output. */
export interface OutputFaults {
  /** Called if the reader has closed the pipe (`| head`). This is no failure, but no more output is needed. */
  readonly onClosed: () => void;
  /** Receives the reason of a failed write. Called once. */
  readonly onFailed: (reason: string) => void;
}

/** An {@link Output} to a stream of the process. Ignores writes after the stream has failed. */
export class ProcessOutput implements Output {
  readonly #stream: Stream;
  #hasFailed = false;

  constructor(stream: Stream, { onClosed, onFailed }: OutputFaults) {
    this.#stream = stream;
    stream.on('error', (error: NodeJS.ErrnoException) => {
      if (this.#hasFailed) return;
      this.#hasFailed = true;
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
    if (!this.#hasFailed) this.#stream.write(text);
  }

  /** Resolves when the reader has consumed nearly all output, the stream has failed, or `signal` has fired. */
  async drained(signal: AbortSignal): Promise<void> {
    if (this.#hasFailed || signal.aborted || !this.#stream.writableNeedDrain) return;
    await new Promise<void>((resolve) => {
      const done = (): void => {
        for (const event of ['drain', 'error'] as const) this.#stream.off(event, done);
        leaveSignal();
        resolve();
      };
      for (const event of ['drain', 'error'] as const) this.#stream.on(event, done);
      const leaveSignal = onAbort(signal, done);
    });
  }
}

/**
 * An {@link Output} for log lines. Drops lines while the reader is far behind, and then writes one line with their
 * number (I11).
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
      this.#output.write(
        `dpcache: dropped ${this.#dropped} log lines, because standard error is read too slowly\n`,
      );
    this.#dropped = 0;
    this.#output.write(line);
  }
}

/** Names of requests of the thread pool in `process.getActiveResourcesInfo`. */
const POOL_REQUEST = /^(FSReq|Get(Addr|Name)Info)/;

/**
 * Interval and maximum number of the checks whether requests of the thread pool have ended: one second in total.
 */
const POOL_CHECK = { everyMs: 50, count: 20 };

/**
 * Ends the process after one second (two, if a thread of the pool is busy), even if its log is not read or an open
 * handle keeps it alive. The status is `process.exitCode`, or `status` if it is not set.
 */
export function exitSoon(status: ExitStatus = EXIT.ok): void {
  setTimeout(() => exitWithPool(status, POOL_CHECK.count), DRAIN_MS).unref();
}

/**
 * Ends the process when no thread of the pool is busy, because a thread that is blocked in a system call, such as
 * `open(2)` on a lost disk, also blocks `process.exit()`. If a thread is busy at the last check, the process ends by
 * SIGTERM without its exit status.
 */
function exitWithPool(status: ExitStatus, checks: number): void {
  if (process.getActiveResourcesInfo().some((type) => POOL_REQUEST.test(type))) {
    if (checks > 0) {
      setTimeout(() => exitWithPool(status, checks - 1), POOL_CHECK.everyMs).unref();
      return;
    }
    process.removeAllListeners('SIGTERM');
    process.kill(process.pid, 'SIGTERM');
  }
  process.exit(process.exitCode ?? status);
}
