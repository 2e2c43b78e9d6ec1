import type { Clock, Timer } from '../base/clock.ts';
import { type Rejection, RejectionLog, type RejectionStatus } from '../base/rejection.ts';
import { counted } from '../base/show-value.ts';
import type { Logger } from './log.ts';

/**
 * Maximum number of warnings for one reason in a period. The other rejections are counted and logged
 * at `debug`.
 */
const MAX_WARNINGS = 20;

/** Length of a period. At its end, one line reports the number of rejections that were not logged as warnings. */
const PERIOD_MS = 60_000;

/** The current period of one reason: its start, monotonic, and its number of rejections. */
interface Period {
  readonly since: number;
  count: number;
}

/**
 * Counts all rejections of a process and logs them at a bounded rate. If all keys of a mesh are invalid for one reason,
 * a line per key would hide other messages.
 */
export class RejectionReport {
  readonly #log: Logger;
  readonly #clock: Clock;
  readonly #rejections = new RejectionLog();
  /** By reason. */
  readonly #periods = new Map<string, Period>();
  /** Runs while a period has rejections that were not logged as warnings. */
  #timer: Timer | undefined;

  constructor(log: Logger, clock: Clock) {
    this.#log = log;
    this.#clock = clock;
  }

  add(rejection: Rejection): void {
    this.count(rejection);
    this.#report(rejection);
  }

  /** Counts a rejection reported elsewhere. */
  count(rejection: Rejection): void {
    this.#rejections.add(rejection);
  }

  status(): RejectionStatus {
    return this.#rejections.status();
  }

  /**
   * Logs the number of rejections that were not logged as warnings, if any. Call it before the end of the process, too.
   */
  flush(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    for (const [reason, { count }] of this.#periods) {
      if (count > MAX_WARNINGS) this.#log.warn(`${count - MAX_WARNINGS} more rejections of reason ${reason}`);
    }
    this.#periods.clear();
  }

  #report(rejection: Rejection): void {
    const { reason, message } = rejection;
    const level = this.#countInPeriod(reason) <= MAX_WARNINGS ? 'warn' : 'debug';
    this.#log[level]({ rejection }, `rejected (${reason}) ${message}`);
    if (level === 'debug') this.#timer ??= this.#clock.after(PERIOD_MS, () => this.flush());
  }

  /** Counts a rejection. Returns the number of rejections of its reason in this period. */
  #countInPeriod(reason: string): number {
    const now = this.#clock.now();
    const known = this.#periods.get(reason);
    const period = known === undefined || this.#isOver(known, now) ? { since: now, count: 0 } : known;
    this.#periods.set(reason, period);
    return ++period.count;
  }

  /**
   * Returns true if the period is over. A period with rejections that were not logged as warnings ends with the timer
   * instead, which reports them.
   */
  #isOver({ since, count }: Period, now: number): boolean {
    return count <= MAX_WARNINGS && now - since >= PERIOD_MS;
  }
}

/**
 * Returns the rejections by reason: `3 items were rejected: 2 malformed-line, 1 unknown-kind`; `no items were rejected`
 * if there are none.
 */
export function rejectedText({ total, byReason }: Pick<RejectionStatus, 'total' | 'byReason'>): string {
  if (total === 0) return 'no items were rejected';
  const counts = Object.entries(byReason).sort(([, a], [, b]) => b - a);
  const reasons = counts.map(([reason, count]) => `${count} ${reason}`).join(', ');
  return `${counted(total, 'item was', 'items were')} rejected: ${reasons}`;
}
