import { type Delayed, delayDuring } from './loop-delay.ts';
import { processMs, threadMs } from './thread-clock.ts';

/** CPU time of the thread between two checks of its event loop, in milliseconds: independent of other processes. */
export interface OwnTurns {
  /** 99th percentile. */
  readonly ownP99: number;
  readonly ownMax: number;
}

/** Measures the CPU time of this thread in each turn of its event loop. */
export class TurnMeter {
  readonly #timer: NodeJS.Timeout;
  #turns: number[] = [];
  #last: number = threadMs();

  constructor() {
    this.#timer = setInterval(() => {
      const now = threadMs();
      this.#turns.push(now - this.#last);
      this.#last = now;
    }, 1).unref();
  }

  /** Returns the figures since the last call. */
  read(): OwnTurns {
    const turns = this.#turns.sort((a, b) => a - b);
    this.#turns = [];
    return { ownP99: turns[Math.floor(turns.length * 0.99)] ?? 0, ownMax: turns.at(-1) ?? 0 };
  }

  stop(): void {
    clearInterval(this.#timer);
  }
}

/** Delays of the event loop, and the work of the process in them. */
export interface OwnWork extends Delayed, OwnTurns {
  /** CPU time of all threads of the process, in milliseconds. */
  readonly cpuMs: number;
  /** Largest resident memory of the process, in bytes. */
  readonly peakBytes: number;
}

/** Interval of the reads of the memory, which take 5 µs each. */
const MEMORY_MS = 20;

/** Like {@link delayDuring}, with the CPU time of the thread in each turn, and the memory of the process. */
export async function ownWorkDuring(work: () => Promise<void>): Promise<OwnWork> {
  const meter = new TurnMeter();
  let peakBytes = process.memoryUsage.rss();
  const measure = setInterval(() => {
    peakBytes = Math.max(peakBytes, process.memoryUsage.rss());
  }, MEMORY_MS);
  const begun = processMs();
  const delayed = await delayDuring(work);
  const cpuMs = processMs() - begun;
  clearInterval(measure);
  meter.stop();
  return { ...delayed, ...meter.read(), cpuMs, peakBytes };
}
