import type { Clock, Timer } from '../../../base/clock.ts';

/**
 * Runs work that is requested more often than it should run. A run starts soon after the first request, but at least
 * `paceMs()` after the start of the last run. Runs never overlap. Requests during a run are served by the next one.
 */
export class PacedTask implements Disposable {
  readonly #clock: Pick<Clock, 'now' | 'after'>;
  readonly #paceMs: () => number;
  readonly #work: () => Promise<void>;
  #timer: Timer | undefined;
  #isRunning = false;
  #isDisposed = false;
  #started: number = Number.NEGATIVE_INFINITY;
  #waiting: (() => void)[] = [];

  /** `work` must handle its own failures. */
  constructor(clock: Pick<Clock, 'now' | 'after'>, paceMs: () => number, work: () => Promise<void>) {
    this.#clock = clock;
    this.#paceMs = paceMs;
    this.#work = work;
  }

  /** Milliseconds since the start of the last run. */
  get age(): number {
    return this.#clock.now() - this.#started;
  }

  /** True if no run is in progress or planned. */
  get isIdle(): boolean {
    return !this.#isRunning && this.#timer === undefined;
  }

  /** Resolves when a run that started after this call has ended, or when the task is disposed of. */
  request(): Promise<void> {
    if (this.#isDisposed) return Promise.resolve();
    return new Promise((resolve) => {
      this.#waiting.push(resolve);
      this.#schedule();
    });
  }

  /** Starts no more runs. A current run continues. */
  [Symbol.dispose](): void {
    this.#isDisposed = true;
    this.#timer?.cancel();
    this.#resolve(this.#waiting.splice(0));
  }

  #schedule(): void {
    if (this.#isRunning) return;
    this.#timer ??= this.#clock.after(Math.max(0, this.#paceMs() - this.age), () => void this.#run());
  }

  async #run(): Promise<void> {
    this.#timer = undefined;
    this.#isRunning = true;
    this.#started = this.#clock.now();
    const waiting = this.#waiting;
    this.#waiting = [];
    try {
      await this.#work();
    } finally {
      this.#isRunning = false;
      this.#resolve(waiting);
      if (this.#waiting.length > 0) this.#schedule();
    }
  }

  #resolve(waiting: readonly (() => void)[]): void {
    for (const resolve of waiting) resolve();
  }
}
