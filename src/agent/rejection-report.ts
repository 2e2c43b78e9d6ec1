import { type Rejection, RejectionLog, type RejectionStatus } from '../base/rejection.ts';
import type { Logger } from './log.ts';

/** So many refusals of one reason are logged as warnings; all are counted, and later ones logged at `debug`. */
const WARNED = 20;

/**
 * Everything that any part of the agent has refused, counted, and logged without drowning the log: a mesh whose
 * every key is wrong has one cause, not a million.
 */
export class RejectionReport {
  readonly #log: Logger;
  readonly #refused: RejectionLog;

  constructor(log: Logger) {
    this.#log = log;
    this.#refused = new RejectionLog((rejection) => this.#tell(rejection));
  }

  add(rejection: Rejection): void {
    this.#refused.add(rejection);
  }

  status(): RejectionStatus {
    return this.#refused.status();
  }

  #tell(rejection: Rejection): void {
    const { reason, message } = rejection;
    const count = this.#refused.status().byReason.get(reason) ?? 0;
    this.#log[count <= WARNED ? 'warn' : 'debug']({ rejection }, `refused (${reason}) ${message}`);
    if (count === WARNED) this.#log.warn(`more of reason ${reason} is counted, and logged at level debug`);
  }
}

/** `3 items were refused: 2 malformed-line, 1 unknown-kind`, or that nothing was. */
export function refusedText({ total, byReason }: Pick<RejectionStatus, 'total' | 'byReason'>): string {
  if (total === 0) return 'nothing was refused';
  const counts = [...byReason].sort(([, a], [, b]) => b - a);
  const reasons = counts.map(([reason, count]) => `${count} ${reason}`).join(', ');
  return `${total} ${total === 1 ? 'item was' : 'items were'} refused: ${reasons}`;
}
