import type { Logger } from './log.ts';

/** Context of running an agent, an operator or a kvstoremesh. */
export interface RunContext {
  readonly log: Logger;
  /** Fires when the process should end. */
  readonly signal: AbortSignal;
}
