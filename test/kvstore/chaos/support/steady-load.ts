import { until } from '../../../base/support/until.ts';

const wait = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** How long a load waits before it writes again, after a write and, besides, after one that failed. */
export interface SteadyLoadPauses {
  readonly pauseMs: number;
  readonly failurePauseMs: number;
}

/** Writes again and again from `start` until `pause`, one write at a time, through whatever happens to the server. */
export abstract class SteadyLoad {
  readonly #pauses: SteadyLoadPauses;
  #writes = 0;
  #lastFailure: unknown;
  #running: Promise<void> | undefined;
  #isPaused = true;

  constructor(pauses: SteadyLoadPauses) {
    this.#pauses = pauses;
  }

  /** Writes that were confirmed. */
  get writes(): number {
    return this.#writes;
  }

  start(): void {
    this.#isPaused = false;
    this.#running ??= this.#write();
  }

  /** Resolves when nothing is under way any more. */
  async pause(): Promise<void> {
    this.#isPaused = true;
    await this.#running;
    this.#running = undefined;
  }

  /** Waits until so many more writes have been confirmed. */
  async more(writes: number): Promise<void> {
    const enough = this.#writes + writes;
    await until(`${writes} more writes`, () => this.#writes >= enough).catch((cause: unknown) => {
      throw new Error(`the load stands still: ${String(this.#lastFailure)}`, { cause });
    });
  }

  /** Writes something, and calls `confirmed` for what the server has confirmed. Throws where that is not known. */
  protected abstract write(): Promise<void>;

  protected confirmed(writes = 1): void {
    this.#writes += writes;
  }

  async #write(): Promise<void> {
    while (!this.#isPaused) {
      try {
        await this.write();
      } catch (error) {
        this.#lastFailure = error;
        await wait(this.#pauses.failurePauseMs);
      }
      await wait(this.#pauses.pauseMs);
    }
  }
}
