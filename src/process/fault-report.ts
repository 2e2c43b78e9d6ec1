import type { Clock, Timer } from '../base/clock.ts';
import { counted } from '../base/show-value.ts';
import type { Logger } from './log.ts';

/** Within this time after a logged failure, further ones of its callback are counted, and logged at `debug`. */
const PERIOD_MS = 60_000;

/** The failures of one callback after the logged one. */
interface Period {
  readonly timer: Timer;
  count: number;
  last: Fault | undefined;
}

/** The fields of a line. */
interface Fault {
  readonly err: unknown;
  /** Full name of the node that a handler was called for. */
  readonly node?: string | undefined;
}

/**
 * Logs failures of callbacks at a bounded rate: the first one of a callback, and a minute later the number of further
 * ones with the last of them. A handler may fail for each node of a mesh, and for each retry.
 */
export class FaultReport {
  readonly #log: Logger;
  readonly #clock: Clock;
  /** By callback. Their number is limited, because the code defines them. */
  readonly #periods = new Map<string, Period>();

  constructor(log: Logger, clock: Clock) {
    this.#log = log;
    this.#clock = clock;
  }

  /** Logs or counts a failure of `callback`, such as `node handler paths`. */
  add(callback: string, fault: Fault): void {
    const period = this.#periods.get(callback);
    this.#log[period === undefined ? 'error' : 'debug'](fault, `${callback} failed${subject(fault)}`);
    if (period === undefined) {
      const timer = this.#clock.after(PERIOD_MS, () => this.#end(callback));
      this.#periods.set(callback, { timer, count: 0, last: undefined });
    } else {
      period.count++;
      period.last = fault;
    }
  }

  /** Logs the number of failures that were only counted. Call it before the end of the process, too. */
  flush(): void {
    for (const callback of [...this.#periods.keys()]) this.#end(callback);
  }

  #end(callback: string): void {
    const period = this.#periods.get(callback);
    this.#periods.delete(callback);
    period?.timer.cancel();
    if (period?.last === undefined) return;
    const { count, last } = period;
    this.#log.error(
      last,
      `${callback} failed ${counted(count, 'more time', 'more times')}${last.node === undefined ? '' : `, last for ${last.node}`}; remove the cause, or report a defect if there is none on this machine`,
    );
  }
}

function subject({ node }: Fault): string {
  return node === undefined ? '' : ` for ${node}`;
}
