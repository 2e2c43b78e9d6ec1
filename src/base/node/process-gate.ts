import { performance } from 'node:perf_hooks';
import type { Clock } from '../clock.ts';
import type { FaultListener } from '../guard.ts';
import { TurnGate } from '../turn-gate.ts';

/** Returns the gate to the event loop of this process. The time of a turn includes all other callbacks of the loop. */
export function processGate(clock: Pick<Clock, 'now'>, onFault?: FaultListener): TurnGate {
  return new TurnGate({ clock, nextTurn: setImmediate, activeMs, onFault });
}

/** Returns the milliseconds during which the event loop of this thread has not waited for events. */
function activeMs(): number {
  return performance.now() - performance.nodeTiming.idleTime;
}
