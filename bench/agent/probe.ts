import { monitorEventLoopDelay } from 'node:perf_hooks';
import { type OwnTurns, TurnMeter } from '../own-work.ts';
import { processMs } from '../thread-clock.ts';

/*
 * Loaded into the process of an agent before its own code (`--import`). Answers each message with the figures since the
 * last one.
 */

/** Figures of a process since the last message. */
export interface ProbeReport extends OwnTurns {
  /** CPU time of all threads. */
  readonly cpuMs: number;
  /** 99th percentile of the event-loop delay, in milliseconds. */
  readonly p99: number;
  readonly max: number;
}

/** Interval of the checks of the event loop. */
const LOOK_MS = 5;

const looks = monitorEventLoopDelay({ resolution: LOOK_MS });
looks.enable();
const meter = new TurnMeter();
let last = 0;

process.on('message', () => {
  const cpu = processMs();
  const delay = (nanoseconds: number): number => Math.max(0, Math.round(nanoseconds / 1e6 - LOOK_MS));
  const report: ProbeReport = {
    cpuMs: cpu - last,
    p99: delay(looks.percentile(99)),
    max: delay(looks.max),
    ...meter.read(),
  };
  last = cpu;
  looks.reset();
  process.send?.(report);
});
process.channel?.unref();
