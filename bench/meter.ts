import { type PerformanceEntry, PerformanceObserver, performance } from 'node:perf_hooks';
import { processMs, threadMs } from './thread-clock.ts';

/** The cost of equal operations, in nanoseconds for one of them. */
export interface Cost {
  /** CPU time of the thread, on which other processes have little effect. */
  readonly cpuNs: number;
  /** CPU time of the helper threads, which collect garbage and compile. */
  readonly helperNs: number;
  /** Wall time. */
  readonly wallNs: number;
  /** Wall time in pauses of the garbage collector. */
  readonly gcNs: number;
}

interface Span {
  readonly start: number;
  readonly end: number;
}

function overlap(a: Span, b: Span): number {
  return Math.max(0, Math.min(a.end, b.end) - Math.max(a.start, b.start));
}

/** Pauses of the garbage collector since its construction, in milliseconds of `performance.now()`. */
export class PauseLog {
  readonly #pauses: Span[] = [];
  readonly #observer: PerformanceObserver;

  constructor() {
    const note = (entries: readonly PerformanceEntry[]): void => {
      for (const { startTime, duration } of entries)
        this.#pauses.push({ start: startTime, end: startTime + duration });
    };
    this.#observer = new PerformanceObserver((list) => note(list.getEntries()));
    this.#observer.observe({ entryTypes: ['gc'] });
  }

  /** Returns the milliseconds of pauses within the spans, after Node has reported them. */
  async within(spans: readonly Span[]): Promise<number> {
    for (let turn = 0; turn < 3; turn++) await new Promise((resolve) => setImmediate(resolve));
    const first = spans[0]?.start ?? 0;
    const pauses = this.#pauses.filter((pause) => pause.end > first);
    return spans.reduce(
      (sum, span) => sum + pauses.reduce((part, pause) => part + overlap(span, pause), 0),
      0,
    );
  }

  stop(): void {
    this.#observer.disconnect();
  }
}

/** Measures work in pieces, without the time between them. */
export class Meter {
  readonly #pauses: PauseLog;
  readonly #spans: Span[] = [];
  #threadMs = 0;
  #processMs = 0;

  constructor(pauses: PauseLog) {
    this.#pauses = pauses;
  }

  /** Runs and measures one piece of work. */
  time(work: () => void): void {
    const ofProcess = processMs();
    const ofThread = threadMs();
    const start = performance.now();
    work();
    const end = performance.now();
    this.#threadMs += threadMs() - ofThread;
    this.#processMs += processMs() - ofProcess;
    this.#spans.push({ start, end });
  }

  /** Returns the cost of the pieces, divided by `operations`. */
  async cost(operations: number): Promise<Cost> {
    const wallMs = this.#spans.reduce((sum, { start, end }) => sum + end - start, 0);
    return {
      cpuNs: (this.#threadMs * 1e6) / operations,
      helperNs: (Math.max(0, this.#processMs - this.#threadMs) * 1e6) / operations,
      wallNs: (wallMs * 1e6) / operations,
      gcNs: ((await this.#pauses.within(this.#spans)) * 1e6) / operations,
    };
  }
}

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >>> 1;
  const upper = sorted[middle] ?? Number.NaN;
  return sorted.length % 2 === 1 ? upper : (upper + (sorted[middle - 1] ?? Number.NaN)) / 2;
}

/** Returns the median of each figure over several rounds. */
export function medianCost(costs: readonly Cost[]): Cost {
  return {
    cpuNs: median(costs.map(({ cpuNs }) => cpuNs)),
    helperNs: median(costs.map(({ helperNs }) => helperNs)),
    wallNs: median(costs.map(({ wallNs }) => wallNs)),
    gcNs: median(costs.map(({ gcNs }) => gcNs)),
  };
}

/** Collects all garbage. Requires `--expose-gc`. */
export function collectGarbage(): void {
  if (globalThis.gc === undefined) throw new Error('run node with --expose-gc');
  globalThis.gc();
}

/** Returns the live bytes on the heap and in array buffers, after a garbage collection. */
export async function liveBytes(): Promise<number> {
  for (let turn = 0; turn < 2; turn++) {
    collectGarbage();
    await new Promise((resolve) => setImmediate(resolve)); // array buffers are freed a turn later
  }
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  return heapUsed + arrayBuffers;
}
