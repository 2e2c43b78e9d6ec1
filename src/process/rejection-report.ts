import type { Clock } from '../base/clock.ts';
import { type Rejection, RejectionLog, type RejectionStatus } from '../base/rejection.ts';
import { counted } from '../base/show-value.ts';
import type { Logger } from './log.ts';
import { LogLimit } from './log-limit.ts';

/**
 * Maximum number of warnings for one reason in a minute. The other rejections are counted and logged at `debug`.
 */
const MAX_WARNINGS = 20;

/**
 * Counts all rejections of a process and logs them at a bounded rate. If all keys of a mesh are invalid for one reason,
 * a line per key would hide other messages.
 */
export class RejectionReport {
  readonly #log: Logger;
  readonly #rejections = new RejectionLog();
  /** By reason. */
  readonly #limit: LogLimit<Rejection>;

  constructor(log: Logger, clock: Clock) {
    this.#log = log;
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
  }

  status(): RejectionStatus {
    return this.#rejections.status();
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
