import type { Clock, Timer } from '../base/clock.ts';
import { type Failure, failureOf } from '../base/failure.ts';
import { CallbackGuard } from '../base/guard.ts';
import { type Section, writeCheckpoint } from './checkpoint-file.ts';
import type { StateFolder } from './state-folder.ts';

/** How often a checkpoint is written while something changes. */
const INTERVAL_MS = 60_000;

/** Options of {@link Checkpointer}. */
export interface CheckpointerOptions {
  readonly folder: StateFolder;
  readonly clock: Clock;
  /** The sections of a checkpoint of now; see `checkpointSections`. */
  readonly sections: () => Iterable<Section>;
  /** Says what is known in such a way that equal texts mean equal checkpoints. */
  readonly state: () => string;
  /** Default: a minute. */
  readonly intervalMs?: number | undefined;
  /** Called when a checkpoint could not be written, and when that has ended. */
  readonly onChange?: ((failure: Failure | undefined) => void) | undefined;
}

/** The checkpoints of an agent, as data. Times are wall time. */
export interface CheckpointerStatus {
  readonly written: number;
  readonly bytes: number | undefined;
  readonly writtenAt: number | undefined;
  /** Set while the last attempt has failed. */
  readonly failure: Failure | undefined;
}

/**
 * Writes a checkpoint now and then: a while after the last one if something has changed since, and when it is stopped. One
 * at a time. A failure leaves the last checkpoint as it is; the next attempt comes in its time.
 */
export class Checkpointer {
  readonly #options: CheckpointerOptions;
  readonly #guard = new CallbackGuard();
  #timer: Timer | undefined;
  #writing: Promise<void> = Promise.resolve();
  #state: string | undefined;
  #stopped = false;
  #status: CheckpointerStatus = {
    written: 0,
    bytes: undefined,
    writtenAt: undefined,
    failure: undefined,
  };

  constructor(options: CheckpointerOptions) {
    this.#options = options;
  }

  /** Begins; what is known now counts as written. Once only. */
  start(): void {
    this.#state = this.#options.state();
    this.#schedule();
  }

  status(): CheckpointerStatus {
    return this.#status;
  }

  /** Writes what has changed, and ends. */
  async stop(): Promise<void> {
    if (this.#stopped) return;
    this.#stopped = true;
    this.#timer?.cancel();
    await this.write();
  }

  /** Writes a checkpoint unless nothing has changed since the last one. Never rejects: see `status`. */
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
      const state = this.#options.state();
      if (state === this.#state) return;
      const bytes = await writeCheckpoint(folder, sections());
      this.#state = state;
      const { written } = this.#status;
      this.#now({ written: written + 1, bytes, writtenAt: clock.wallTime(), failure: undefined });
    } catch (error) {
      this.#now({ ...this.#status, failure: failureOf(error, clock) });
    }
  }

  #now(status: CheckpointerStatus): void {
    const had = this.#status.failure;
    this.#status = status;
    if (status.failure?.message !== had?.message) this.#guard.call(this.#options.onChange, status.failure);
  }
}
