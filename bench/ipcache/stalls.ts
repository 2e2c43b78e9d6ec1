import { performance } from 'node:perf_hooks';
import type { IPCache } from '../../src/ipcache/ipcache.ts';
import type { Claim } from '../../src/ipcache/types.ts';
import { collectGarbage, type PauseLog } from '../meter.ts';
import { EngineSubject } from '../peers/engine.ts';
import { NativeMapSubject } from '../peers/native-map.ts';
import type { Entries } from './entries.ts';
import type { Stall } from './report.ts';

/** So often the CPU time is read, which takes a µs. */
const CHECK = 64;
/** An operation that takes longer may have lost the CPU meanwhile: how much the process got is looked at. */
const SUSPICIOUS_MS = 0.03;

interface Suspect {
  readonly start: number;
  readonly end: number;
  /** At most so much of it was spent on the CPU: by this operation, those since the last check, and threads beside it. */
  readonly cpuMs: number;
}

/** Times every single operation and remembers the longest. */
class StallWatch {
  readonly #durations: Float64Array;
  #count = 0;
  #longest = { start: 0, end: 0 };
  readonly #suspects: Suspect[] = [];
  #checked: NodeJS.CpuUsage = process.cpuUsage();

  constructor(operations: number) {
    this.#durations = new Float64Array(operations);
  }

  time(operation: () => void): void {
    if (this.#count % CHECK === 0) this.#checked = process.cpuUsage();
    const start = performance.now();
    operation();
    const end = performance.now();
    this.#durations[this.#count] = end - start > SUSPICIOUS_MS ? this.#suspect(start, end) : end - start;
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

  /** Remembers a long operation, and gives what of it the process had the CPU for. */
  #suspect(start: number, end: number): number {
    const { user, system } = process.cpuUsage(this.#checked);
    this.#checked = process.cpuUsage();
    const cpuMs = Math.min(end - start, (user + system) / 1e3);
    this.#suspects.push({ start, end, cpuMs });
    return cpuMs;
  }
}

/** The least time between two readings of the clock, in nanoseconds. */
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

/** The longest single operations in one more life of an engine, and of a `Map` beside it. */
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
