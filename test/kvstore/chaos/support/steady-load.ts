import { until } from '../../../base/support/until.ts';

const wait = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** Pauses of a load after each write, and additionally after a failed one. */
export interface SteadyLoadPauses {
  readonly pauseMs: number;
  readonly failurePauseMs: number;
}

/** Writes continuously from `start` until `pause`, one write at a time, during any fault of the server. */
export abstract class SteadyLoad {
  readonly #pauses: SteadyLoadPauses;
  #writes = 0;
  #lastFailure: unknown;
  #running: Promise<void> | undefined;
  #isPaused = true;

  constructor(pauses: SteadyLoadPauses) {
    this.#pauses = pauses;
  }

  /** Number of confirmed writes. */
  get writes(): number {
    return this.#writes;
  }

  start(): void {
    this.#isPaused = false;
    this.#running ??= this.#write();
  }

  /** Stops. Resolves when no write is in progress. */
  async pause(): Promise<void> {
    this.#isPaused = true;
    await this.#running;
    this.#running = undefined;
  }

  /** Waits for this number of further confirmed writes. */
  async more(writes: number): Promise<void> {
    const enough = this.#writes + writes;
    await until(`${writes} more writes`, () => this.#writes >= enough).catch((cause: unknown) => {
      throw new Error(`the load stands still: ${String(this.#lastFailure)}`, { cause });
    });
  }

  /**
   * Writes something, and calls `confirmed` if the server has confirmed it. Throws if the result is unknown.
   */
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
