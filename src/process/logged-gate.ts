import type { Clock } from '../base/clock.ts';
import { processGate } from '../base/node/process-gate.ts';
import type { TurnGate } from '../base/turn-gate.ts';
import type { Logger } from './log.ts';

/** Returns the gate through which a daemon does long work in short turns. Errors of background work are logged. */
export function loggedGate({
  clock,
  log,
}: {
  readonly clock: Pick<Clock, 'now'>;
  readonly log: Logger;
}): TurnGate {
  return processGate(clock, (error) => log.error({ err: error }, 'background work failed'));
}
