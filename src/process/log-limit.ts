import type { Clock, Timer } from '../base/clock.ts';

const PERIOD_MS = 60_000;

/** The current period of a key. */
interface Period<T> {
  readonly timer: Timer;
  count: number;
  last: T;
}

export interface LogLimitOptions<T> {
  readonly clock: Pick<Clock, 'after'>;
  /** Maximum number of logged events of a key in a period. */
  readonly maxLines: number;
  /** Called at the end of a period with the number of events that were not logged, if any, and the last of them. */
  onEnd(key: string, count: number, last: T): void;
}

/**
 * Limits the log lines of each key to a number in a minute, which begins with its first event. The number of keys must
 * be limited by the caller.
 */
export class LogLimit<T> {
  readonly #options: LogLimitOptions<T>;
  readonly #periods = new Map<string, Period<T>>();

  constructor(options: LogLimitOptions<T>) {
    this.#options = options;
  }

  /** Counts an event. Returns true if it is to be logged. */
  admit(key: string, event: T): boolean {
    const { clock, maxLines } = this.#options;
    let period = this.#periods.get(key);
    if (period === undefined) {
      const timer = clock.after(PERIOD_MS, () => this.#end(key));
      period = { timer, count: 0, last: event };
      this.#periods.set(key, period);
    }
    period.last = event;
    return ++period.count <= maxLines;
  }

  /** Ends all periods. Call it before the end of the process, too, which their timers would delay. */
  flush(): void {
    for (const key of [...this.#periods.keys()]) this.#end(key);
  }

  #end(key: string): void {
    const { maxLines, onEnd } = this.#options;
    const period = this.#periods.get(key);
    this.#periods.delete(key);
    period?.timer.cancel();
    if (period !== undefined && period.count > maxLines) onEnd(key, period.count - maxLines, period.last);
  }
}
