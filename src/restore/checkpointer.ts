import { atLeast, checkArgument, FUNCTION, objectWith, optional, optionsWith } from '../base/arguments.ts';
import type { Clock, Timer } from '../base/clock.ts';
import { type Failure, failureOf } from '../base/failure.ts';
import type { StateFolder } from '../base/files/state-folder.ts';
import { CallbackGuard } from '../base/guard.ts';
import { type Runtime, withRuntime } from '../base/system-clock.ts';
import { type Section, writeCheckpoint } from './checkpoint-file.ts';

/** Interval of checkpoints while the state changes. */
const INTERVAL_MS = 60_000;

/** Options of {@link Checkpointer}. */
export interface CheckpointerOptions {
  /** The folder of the checkpoint, such as {@link StateFiles}. */
  readonly folder: StateFolder;
  /** Default: the system clock. */
  readonly clock?: Clock | undefined;
  /** Returns the sections of a checkpoint of the current state; see `checkpointSections`. */
  readonly sections: () => Iterable<Section>;
  /** Returns a text that differs whenever the state differs. While it is the same, no checkpoint is written. */
  readonly stateVersion: () => string;
  /** Default: 1 minute. */
  readonly intervalMs?: number | undefined;
  /** Called when writing fails for a new reason, and with undefined when it succeeds again. */
  readonly onChange?: ((failure: Failure | undefined) => void) | undefined;
}

/** Status of the checkpoints of an agent. Times are wall time. */
export interface CheckpointerStatus {
  /** Number of checkpoints written by this process. */
  readonly written: number;
  /** Size of the last checkpoint. */
  readonly bytes: number | undefined;
  readonly writtenAt: number | undefined;
  /** Failure of the last attempt, if it failed. */
  readonly failure: Failure | undefined;
}

/**
 * Writes a checkpoint periodically if the state has changed, and when it is stopped. Writes do not overlap. If a write
 * fails, the last checkpoint stays, and the next attempt follows after the interval.
 */
export class Checkpointer implements AsyncDisposable {
  readonly #options: CheckpointerOptions & Runtime;
  readonly #guard = new CallbackGuard();
  #timer: Timer | undefined;
  #writing: Promise<void> = Promise.resolve();
  #writtenVersion: string | undefined;
  #stopped = false;
  #status: CheckpointerStatus = {
    written: 0,
    bytes: undefined,
    writtenAt: undefined,
    failure: undefined,
  };

  constructor(options: CheckpointerOptions) {
    checkArgument('new Checkpointer: options', options, OPTIONS);
    this.#options = withRuntime(options);
  }

  /** Starts the timer. The current state counts as written. Must be called once. */
  start(): void {
    this.#writtenVersion = this.#options.stateVersion();
    this.#schedule();
  }

  status(): CheckpointerStatus {
    return this.#status;
  }

  /** Stops the timer and writes the last changes. Every call resolves after that write; never rejects. */
  stop(): Promise<void> {
    if (this.#stopped) return this.#writing;
    this.#stopped = true;
    this.#timer?.cancel();
    return this.write();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  /** Writes a checkpoint if the state has changed since the last one. Never rejects; `status` has the failure. */
  write(): Promise<void> {
    this.#writing = this.#writing.then(() => this.#write());
    return this.#writing;
  }

  #schedule(): void {
    const { clock, intervalMs = INTERVAL_MS } = this.#options;
    this.#timer = clock.after(intervalMs, () => {
      void this.write().then(() => {
        if (!this.#stopped) this.#schedule();
      });
    });
  }

  async #write(): Promise<void> {
    const { folder, sections, clock } = this.#options;
    try {
      const version = this.#options.stateVersion();
      if (version === this.#writtenVersion) return;
      const bytes = await writeCheckpoint(folder, sections());
      this.#writtenVersion = version;
      const { written } = this.#status;
      this.#setStatus({ written: written + 1, bytes, writtenAt: clock.wallTime(), failure: undefined });
    } catch (error) {
      this.#setStatus({ ...this.#status, failure: failureOf(error, clock) });
    }
  }

  #setStatus(status: CheckpointerStatus): void {
    const previous = this.#status.failure;
    this.#status = status;
    if (status.failure?.message !== previous?.message)
      this.#guard.call(this.#options.onChange, status.failure);
  }
}

const OPTIONS = optionsWith({
  folder: objectWith({ create: FUNCTION, rename: FUNCTION }),
  sections: FUNCTION,
  stateVersion: FUNCTION,
  intervalMs: optional(atLeast(0)),
  onChange: optional(FUNCTION),
});
