import type { Clock } from '../src/base/clock.ts';
import { systemClock } from '../src/base/system-clock.ts';
import { History } from '../src/history/history.ts';
import { IPCache } from '../src/ipcache/ipcache.ts';
import type { Claim } from '../src/ipcache/types.ts';
import { expect } from './expect.ts';
import { threadMs } from './thread-clock.ts';

/** Budgets: CPU and memory of a record, and one question. */
const BUDGET = { recordUs: 1.2, bytes: 40, atMs: 50 } as const;

const ROUNDS = 5;
const MEMORY: number = 64 << 20;

/** CPU microseconds of one operation without and with a history. */
export interface HistoryCost {
  readonly off: number;
  readonly on: number;
}

/** The result of {@link benchHistory}. */
export interface HistoryBenchReport {
  readonly prefixes: number;
  /** A pod that is deleted, one that is added, and a claim whose identity changes. */
  readonly deleted: HistoryCost;
  readonly added: HistoryCost;
  readonly updated: HistoryCost;
  /** Memory a record, with indexes, over the life of a pod. */
  readonly bytesPerRecord: number;
  /** Records that 16 MiB hold. */
  readonly heldIn16MiB: number;
  /** CPU microseconds of a lookup at a random time of the window, at now, and without a history. */
  readonly lookupPast: number;
  readonly lookupNow: number;
  readonly lookupOff: number;
  /** CPU milliseconds of the claims on one prefix at the begin of the window. */
  readonly atMs: number;
}

/** Advances by 1 ms with each 10 readings, so that the rate limit is not reached. */
class SteppingClock implements Clock {
  #reads = 0;
  now(): number {
    return this.#reads++ / 10;
  }
  wallTime(): number {
    return this.#reads / 10;
  }
  readonly after = systemClock.after;
}

function keyOf(i: number): string {
  return `10.${(i >> 16) & 255}.${(i >> 8) & 255}.${i & 255}`;
}

function claimOf(i: number): Claim {
  const suffix = ((i * 2_654_435_761) >>> 0).toString(36).slice(0, 5);
  const k8s = { namespace: `ns-${i % 50}`, podName: `app-${i % 2000}-7d4b9c8f6d-${suffix}` };
  const hostIP = `192.168.${(i >> 6) % 20}.${i % 250}`;
  return { identity: 65_536 + (i % 5000), source: 'clustermesh', owner: 'baltic', hostIP, k8s };
}

interface Life {
  readonly deleted: number;
  readonly added: number;
  readonly updated: number;
  readonly cache: IPCache;
  readonly history: History | undefined;
}

/** Deletes all prefixes in a scattered order, adds them again, and changes them. Returns the CPU µs of each operation. */
function live(keys: readonly string[], claims: readonly Claim[], memory: number | undefined): Life {
  const cache = new IPCache();
  for (const [i, claim] of claims.entries()) cache.upsert(keys[i] as string, claim);
  const clock = new SteppingClock();
  const history = memory === undefined ? undefined : new History({ ipcache: cache, clock, memory });
  history?.start();
  const each = (work: (i: number) => void): number => {
    const begun = threadMs();
    for (let n = 0; n < keys.length; n++) work((n * 7919) % keys.length);
    return ((threadMs() - begun) * 1000) / keys.length;
  };
  const by = { source: 'clustermesh', owner: 'baltic' } as const;
  const deleted = each((i) => cache.delete(keys[i] ?? '', by));
  const added = each((i) => cache.upsert(keys[i] ?? '', claims[i] ?? { identity: 0, ...by }));
  const updated = each((i) =>
    cache.upsert(keys[i] ?? '', { ...(claims[i] ?? by), identity: 70_000 + (i % 100) }),
  );
  expect('prefixes', cache.size, keys.length);
  return { deleted, added, updated, cache, history };
}

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0;
}

/** Measures what a history costs, and what its answers cost. */
export function benchHistory({
  n = 300_000,
  json = false,
}: {
  readonly n?: number;
  readonly json?: boolean;
}): HistoryBenchReport {
  const keys = Array.from({ length: n }, (_, i) => keyOf(i));
  const claims = keys.map((_, i) => claimOf(i));
  live(keys.slice(0, 20_000), claims.slice(0, 20_000), MEMORY); // warm up
  const off: Life[] = [];
  const on: Life[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    off.push(live(keys, claims, undefined));
    on.push(live(keys, claims, MEMORY));
  }
  const cost = (read: (life: Life) => number): HistoryCost => ({
    off: median(off.map(read)),
    on: median(on.map(read)),
  });
  const small = live(keys, claims, 16 << 20).history?.status();
  const last = on.at(-1);
  const history = last?.history;
  if (last === undefined || history === undefined) throw new Error('no round');
  const { records, lost, bytes, held } = history.status();
  expect('changes lost', lost.rate, 0);
  expect('changes recorded', records.prefix, 3 * n);
  const { from, to } = history.held;
  const identities = new Uint32Array(n);
  const times = Float64Array.from(keys, (_, i) => from + (((i * 7907) % n) / n) * (to - from));
  const timed = (work: () => void): number => {
    const begun = threadMs();
    work();
    return ((threadMs() - begun) * 1000) / n;
  };
  const lookupPast = timed(() => history.lookupMany(keys, times, identities));
  const lookupNow = timed(() => history.lookupMany(keys, times.fill(to), identities));
  const lookupOff = timed(() => last.cache.lookupMany(keys, identities));
  const atMs = timed(() => {
    for (let i = 0; i < 100; i++) history.at(keys[(i * 37) % n] ?? '', from);
  });
  const report = {
    prefixes: n,
    deleted: cost((life) => life.deleted),
    added: cost((life) => life.added),
    updated: cost((life) => life.updated),
    bytesPerRecord: bytes / held,
    heldIn16MiB: small?.held ?? 0,
    ...{ lookupPast, lookupNow, lookupOff },
    atMs: (atMs * n) / 100 / 1000,
  };
  if (!json) print(report);
  return report;
}

function print(report: HistoryBenchReport): void {
  const verdict = (isKept: boolean): string => (isKept ? 'ok' : 'OVER');
  const row = (what: string, { off, on }: HistoryCost): string =>
    `${what.padEnd(22)} ${off.toFixed(2)} µs without, ${on.toFixed(2)} µs with a history   ${verdict(on - off <= BUDGET.recordUs)}`;
  console.log(
    `\nhistory of ${report.prefixes} prefixes, each deleted, added and changed once (CPU of the thread)`,
  );
  console.log(row('delete', report.deleted));
  console.log(row('add', report.added));
  console.log(row('change', report.updated));
  console.log(
    `bytes a record         ${report.bytesPerRecord.toFixed(1)}   ${verdict(report.bytesPerRecord <= BUDGET.bytes)}`,
  );
  console.log(`records in 16 MiB      ${report.heldIn16MiB}`);
  const { lookupPast, lookupNow, lookupOff, atMs } = report;
  console.log(
    `lookup                 ${lookupPast.toFixed(2)} µs at a random time, ${lookupNow.toFixed(2)} µs at now, ${lookupOff.toFixed(2)} µs without a history`,
  );
  console.log(`claims at a moment     ${atMs.toFixed(3)} ms   ${verdict(atMs <= BUDGET.atMs)}`);
}
