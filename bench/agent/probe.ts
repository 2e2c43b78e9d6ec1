import { monitorEventLoopDelay } from 'node:perf_hooks';
import { CHECK_MS, delayOf } from '../loop-delay.ts';
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

const histogram = monitorEventLoopDelay({ resolution: CHECK_MS });
histogram.enable();
const meter = new TurnMeter();
let last = 0;

process.on('message', () => {
  const cpu = processMs();
  const { p99, max } = delayOf(histogram);
  const report: ProbeReport = { cpuMs: cpu - last, p99, max, ...meter.read() };
  last = cpu;
  histogram.reset();
  process.send?.(report);
});
process.channel?.unref();
