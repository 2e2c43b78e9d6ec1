import { performance } from 'node:perf_hooks';
import type { IPCache } from '../../src/ipcache/ipcache.ts';
import type { Claim } from '../../src/ipcache/types.ts';
import { collectGarbage, type PauseLog } from '../meter.ts';
import { EngineSubject } from '../peers/engine.ts';
import { NativeMapSubject } from '../peers/native-map.ts';
import { threadMs } from '../thread-clock.ts';
import type { Entries } from './entries.ts';
import type { Stall } from './report.ts';

/** Duration of an operation above which it may include a pause of the collector. */
const SUSPICIOUS_MS = 0.03;

interface Suspect {
  readonly start: number;
  readonly end: number;
  /** CPU time of the thread in it. */
  readonly cpuMs: number;
}

/** Measures every single operation and keeps the longest. */
class StallWatch {
  readonly #durations: Float64Array;
  #count = 0;
  #longest = { start: 0, end: 0 };
  readonly #suspects: Suspect[] = [];

  constructor(operations: number) {
    this.#durations = new Float64Array(operations);
  }

  time(operation: () => void): void {
    const onCPU = threadMs();
    const start = performance.now();
    operation();
    const end = performance.now();
    const cpuMs = Math.min(end - start, threadMs() - onCPU);
    if (end - start > SUSPICIOUS_MS) this.#suspects.push({ start, end, cpuMs });
    this.#durations[this.#count] = cpuMs;
    this.#count++;
    if (end - start > this.#longest.end - this.#longest.start) this.#longest = { start, end };
  }

  async stall(pauses: PauseLog): Promise<Stall> {
    const work = [0];
    for (const suspect of this.#suspects) work.push(suspect.cpuMs - (await pauses.within([suspect])));
    const sorted = this.#durations.subarray(0, this.#count).sort();
    return {
      maxMs: this.#longest.end - this.#longest.start,
      gcMs: await pauses.within([this.#longest]),
      p9999Ms: sorted[Math.floor(this.#count * 0.9999)] ?? Number.NaN,
      workMs: Math.max(...work),
    };
  }
}

/** Returns the minimum time between two readings of the clock, in nanoseconds. */
export function timerResolution(): number {
  let least = Number.POSITIVE_INFINITY;
  for (let i = 0; i < 10_000; i++) {
    const start = performance.now();
    let end = performance.now();
    while (end === start) end = performance.now();
    least = Math.min(least, end - start);
  }
  return least * 1e6;
}

type Chunks = ReturnType<Entries['fresh']>;

async function watchUpserts(
  pauses: PauseLog,
  n: number,
  chunks: Chunks,
  upsert: (key: string, claim: Claim) => unknown,
): Promise<Stall> {
  const watch = new StallWatch(n);
  for (const { keys, claims } of chunks) {
    claims.forEach((claim, i) => {
      const key = keys[i] ?? '';
      watch.time(() => upsert(key, claim));
    });
  }
  return watch.stall(pauses);
}

async function watchDeletes(pauses: PauseLog, entries: Entries, cache: IPCache): Promise<Stall> {
  const watch = new StallWatch(entries.n);
  for (const keys of entries.keys()) {
    for (const key of keys) watch.time(() => cache.delete(key, { source: 'kvstore' }));
  }
  return watch.stall(pauses);
}

/** Returns the longest single operations in another life of an engine, and of a `Map`. */
export async function measureStalls(pauses: PauseLog, entries: Entries): Promise<Record<string, Stall>> {
  const { n } = entries;
  collectGarbage();
  const { cache } = new EngineSubject();
  const upsert = (key: string, claim: Claim): unknown => cache.upsert(key, claim);
  const stalls = {
    fresh: await watchUpserts(pauses, n, entries.fresh(), upsert),
    unchanged: await watchUpserts(pauses, n, entries.again(), upsert),
    identityChange: await watchUpserts(pauses, n, entries.again(1), upsert),
    delete: await watchDeletes(pauses, entries, cache),
  };
  collectGarbage();
  const { map } = new NativeMapSubject();
  const mapSet = await watchUpserts(pauses, n, entries.fresh(), (key, claim) => map.set(key, claim));
  return { ...stalls, mapSet };
}
