import type { Clock } from '../base/clock.ts';
import { type Rejection, RejectionLog, type RejectionStatus } from '../base/rejection.ts';
import { counted } from '../base/show-value.ts';
import { isoTime } from '../base/system-clock.ts';
import type { Logger } from './log.ts';
import { LogLimit } from './log-limit.ts';

/**
 * Maximum number of warnings for one reason in a minute. The other rejections are counted and logged at `debug`.
 */
const MAX_WARNINGS = 20;

/** The counts of a {@link RejectionReport}. */
export interface RejectionReportStatus extends RejectionStatus {
  /** Time of the last rejection, ISO 8601; undefined if there is none. */
  readonly lastAt: string | undefined;
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
  readonly #limit: LogLimit<Rejection>;
  #lastAt: number | undefined;

  constructor(log: Logger, clock: Clock) {
    this.#log = log;
    this.#clock = clock;
    this.#limit = new LogLimit({
      clock,
      maxLines: MAX_WARNINGS,
      onEnd: (reason, count) => log.warn(`${count} more rejections of reason ${reason}`),
    });
  }

  add(rejection: Rejection): void {
    this.count(rejection);
    const { reason, message } = rejection;
    const level = this.#limit.admit(reason, rejection) ? 'warn' : 'debug';
    this.#log[level]({ rejection }, `rejected (${reason}) ${message}`);
  }

  /** Counts a rejection reported elsewhere. */
  count(rejection: Rejection): void {
    this.#rejections.add(rejection);
    this.#lastAt = this.#clock.wallTime();
  }

  status(): RejectionReportStatus {
    return {
      ...this.#rejections.status(),
      lastAt: this.#lastAt === undefined ? undefined : isoTime(this.#lastAt),
    };
  }

  /** Logs the number of rejections that were not logged as warnings. Call it before the end of the process, too. */
  flush(): void {
    this.#limit.flush();
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
