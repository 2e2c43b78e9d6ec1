import type { Clock } from '../base/clock.ts';
import { counted } from '../base/show-value.ts';
import type { Logger } from './log.ts';
import { LogLimit } from './log-limit.ts';

const REMEDY = 'remove the cause, or report a defect if there is none on this machine';

/** The fields of a line. */
interface Fault {
  readonly err: unknown;
  /** Full name of the node that a handler was called for. */
  readonly node?: string | undefined;
}

/**
 * Logs failures of callbacks at a bounded rate: the first one of a callback, and a minute later the number of further
 * ones with the last of them. The others are logged at `debug`. A handler may fail for each node of a mesh, and for
 * each retry.
 */
export class FaultReport {
  readonly #log: Logger;
  /** By callback. */
  readonly #limit: LogLimit<Fault>;

  constructor(log: Logger, clock: Clock) {
    this.#log = log;
    this.#limit = new LogLimit({
      clock,
      maxLines: 1,
      onEnd: (callback, count, last) => {
        const times = `${counted(count, 'more time', 'more times')}${subject(', last for', last)}`;
        log.error(last, `${callback} failed ${times}; ${REMEDY}`);
      },
    });
  }

  /** Logs or counts a failure of `callback`, such as `node handler paths`. */
  add(callback: string, fault: Fault): void {
    const level = this.#limit.admit(callback, fault) ? 'error' : 'debug';
    this.#log[level](fault, `${callback} failed${subject(' for', fault)}`);
  }

  /** Logs the number of failures that were only counted. Call it before the end of the process, too. */
  flush(): void {
    this.#limit.flush();
  }
}

function subject(preposition: string, { node }: Fault): string {
  return node === undefined ? '' : `${preposition} ${node}`;
}
