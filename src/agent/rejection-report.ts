import type { Clock, Timer } from '../base/clock.ts';
import { type Rejection, RejectionLog, type RejectionStatus } from '../base/rejection.ts';
import type { Logger } from './log.ts';

/** So many rejections of one reason are logged as warnings in a period; the others are counted, and logged at `debug`. */
const WARNED = 20;

/** After this time a line says how many were not logged, and the next ones are logged again. */
const PERIOD_MS = 60_000;

/** Rejections of one reason since the period began. */
interface Period {
  readonly since: number;
  count: number;
}

/**
 * Everything that any part of the agent has rejected: all of it counted, and logged at a bounded rate. A mesh whose every
 * key is wrong has one cause, not a million.
 */
export class RejectionReport {
  readonly #log: Logger;
  readonly #clock: Clock;
  readonly #rejections: RejectionLog;
  readonly #periods = new Map<string, Period>();
  #timer: Timer | undefined;

  constructor(log: Logger, clock: Clock) {
    this.#log = log;
    this.#clock = clock;
    this.#rejections = new RejectionLog();
  }

  add(rejection: Rejection): void {
    this.#rejections.add(rejection);
    this.#report(rejection);
  }

  /** Counts one that is reported elsewhere. */
  count(rejection: Rejection): void {
    this.#rejections.add(rejection);
  }

  status(): RejectionStatus {
    return this.#rejections.status();
  }

  /** Logs how many rejections were not logged, if any. Call it at the end, too. */
  flush(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    for (const [reason, { count }] of this.#periods) {
      if (count > WARNED) this.#log.warn(`${count - WARNED} more of reason ${reason}`);
    }
    this.#periods.clear();
  }

  #report({ reason, message, ...rejection }: Rejection): void {
    const level = this.#countOf(reason) <= WARNED ? 'warn' : 'debug';
    this.#log[level]({ rejection: { reason, message, ...rejection } }, `rejected (${reason}) ${message}`);
    if (level === 'debug') this.#timer ??= this.#clock.after(PERIOD_MS, () => this.flush());
  }

  /** Counts one more; gives how many there are in this period. */
  #countOf(reason: string): number {
    const now = this.#clock.now();
    const known = this.#periods.get(reason);
    const period = known === undefined || this.#isOver(known, now) ? { since: now, count: 0 } : known;
    this.#periods.set(reason, period);
    return ++period.count;
  }

  /** One of which something was not logged lasts until the timer says so. */
  #isOver({ since, count }: Period, now: number): boolean {
    return count <= WARNED && now - since >= PERIOD_MS;
  }
}

/** `3 items were rejected: 2 malformed-line, 1 unknown-kind`, or that nothing was. */
export function rejectedText({ total, byReason }: Pick<RejectionStatus, 'total' | 'byReason'>): string {
  if (total === 0) return 'nothing was rejected';
  const counts = Object.entries(byReason).sort(([, a], [, b]) => b - a);
  const reasons = counts.map(([reason, count]) => `${count} ${reason}`).join(', ');
  return `${total} ${total === 1 ? 'item was' : 'items were'} rejected: ${reasons}`;
}
