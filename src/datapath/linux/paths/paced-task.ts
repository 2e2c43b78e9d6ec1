import type { Clock, Timer } from '../../../base/clock.ts';

/**
 * Work that is asked for more often than it is worth doing: runs soon after the first request, not again within its pace
 * from its last start, and never twice at a time. What is asked for while it runs is done by the run after it.
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

  /** What `work` rejects with has to be seen to by itself. */
  constructor(clock: Pick<Clock, 'now' | 'after'>, paceMs: () => number, work: () => Promise<void>) {
    this.#clock = clock;
    this.#paceMs = paceMs;
    this.#work = work;
  }

  /** How long ago the last run began, in milliseconds. */
  get age(): number {
    return this.#clock.now() - this.#started;
  }

  /** Resolves when a run is over that began after this call; or when the task is disposed of, or has been. */
  request(): Promise<void> {
    if (this.#isDisposed) return Promise.resolve();
    return new Promise((resolve) => {
      this.#waiting.push(resolve);
      this.#set();
    });
  }

  /** No run begins any more; one that is under way goes on. */
  [Symbol.dispose](): void {
    this.#isDisposed = true;
    this.#timer?.cancel();
    this.#rest(this.#waiting.splice(0));
  }

  #set(): void {
    if (this.#isRunning) return;
    this.#timer ??= this.#clock.after(Math.max(0, this.#paceMs() - this.age), () => void this.#run());
  }

  async #run(): Promise<void> {
    this.#timer = undefined;
    this.#isRunning = true;
    this.#started = this.#clock.now();
    const waiting = this.#waiting;
    this.#waiting = [];
    await this.#work();
    this.#isRunning = false;
    this.#rest(waiting);
    if (this.#waiting.length > 0) this.#set();
  }

  #rest(waiting: readonly (() => void)[]): void {
    for (const resolve of waiting) resolve();
  }
}
