import type { Logger } from './log.ts';

/** What running an agent, an operator or a kvstoremesh takes from its process. */
export interface RunContext {
  readonly log: Logger;
  /** Asks it to end. */
  readonly signal: AbortSignal;
}
