import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { crc32 } from 'node:zlib';
import { StateFiles } from '../src/agent/state-files.ts';
import type { Clock } from '../src/base/clock.ts';
import { systemClock } from '../src/base/system-clock.ts';
import { TurnGate } from '../src/base/turn-gate.ts';
import { History } from '../src/history/history.ts';
import { IPCache } from '../src/ipcache/ipcache.ts';
import type { Claim } from '../src/ipcache/types.ts';
import { expect } from './expect.ts';
import { collectGarbage, median } from './meter.ts';
import { podAddress } from './pod-address.ts';
import { threadMs } from './thread-clock.ts';

/** Budgets: CPU and memory of a record, number of records in 16 MiB, duration of a question and its longest turn. */
const BUDGET = { recordUs: 1.2, bytes: 40, retained: 400_000, atMs: 50, turnMs: 10 } as const;

const ROUNDS = 5;
const MEMORY: number = 64 << 20;
const DISK: number = 128 << 20;
/** Size of the files up to which no segment has been dropped. */
const FULL: number = DISK - (16 << 20);
/** Number of questions of each kind that are answered from the disk. */
const QUESTIONS = 10;
/** Changes between two flushes: less than a segment. */
const FLUSH_EVERY = 20_000;

/** CPU microseconds of one operation without and with a history. */
export interface HistoryCost {
  readonly off: number;
  readonly on: number;
}

/** The result of {@link benchHistory}. */
export interface HistoryBenchReport {
  readonly prefixes: number;
  /** Cost of a deleted pod. */
  readonly deleted: HistoryCost;
  readonly added: HistoryCost;
  readonly updated: HistoryCost;
  /** A claim of a cluster that leaves. */
  readonly withdrawn: HistoryCost;
  /** Memory per record, with indexes, over the life of a pod. */
  readonly bytesPerRecord: number;
  /** Records that 16 MiB hold. */
  readonly retainedIn16MiB: number;
  /** CPU microseconds of a lookup at a random time of the window. */
  readonly lookupPast: number;
  readonly lookupNow: number;
  readonly lookupOff: number;
  /** CPU milliseconds of the claims on one prefix at the begin of the window. */
  readonly atMs: number;
  readonly disk: DiskQuestions;
}

/** CPU milliseconds of questions to 128 MiB on disk, and of their longest turn. */
export interface DiskQuestions {
  readonly mib: number;
  /** Question for the claims at the begin of the window on a prefix without changes since. */
  readonly unchanged: number;
  readonly changedOnce: number;
  readonly changedOften: number;
  readonly longestTurn: number;
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

function claimOf(i: number): Claim {
  const suffix = ((i * 2_654_435_761) >>> 0).toString(36).slice(0, 5);
  const k8s = { namespace: `ns-${i % 50}`, podName: `app-${i % 2000}-7d4b9c8f6d-${suffix}` };
  const hostIP = `192.168.${(i >> 6) % 20}.${i % 250}`;
  const claim = { identity: 65_536 + (i % 5000), source: 'clustermesh', owner: 'baltic', hostIP, k8s };
  // Parsed as in a watch, so that its strings are flat and not shared with another claim.
  return JSON.parse(JSON.stringify(claim)) as Claim;
}

interface Life {
  readonly deleted: number;
  readonly added: number;
  readonly updated: number;
  readonly withdrawn: number;
  readonly cache: IPCache;
  readonly history: History | undefined;
}

const BALTIC = { source: 'clustermesh', owner: 'baltic' } as const;

/**
 * Deletes all prefixes in a scattered order, adds them again, changes them, and withdraws those of another cache.
 * Returns the CPU µs of each operation.
 */
function live(keys: readonly string[], claims: readonly Claim[], memory: number | undefined): Life {
  const cache = new IPCache();
  for (const [i, claim] of claims.entries()) cache.upsert(keys[i] as string, claim);
  const clock = new SteppingClock();
  const history = memory === undefined ? undefined : new History({ ipcache: cache, clock, memory });
  history?.start();
  const each = (work: (i: number) => void): number => {
    collectGarbage();
    const begun = threadMs();
    for (let n = 0; n < keys.length; n++) work((n * 7919) % keys.length);
    return ((threadMs() - begun) * 1000) / keys.length;
  };
  const deleted = each((i) => cache.delete(keys[i] ?? '', BALTIC));
  const added = each((i) => cache.upsert(keys[i] ?? '', claims[i] ?? { identity: 0, ...BALTIC }));
  const updated = each((i) =>
    cache.upsert(keys[i] ?? '', { ...(claims[i] ?? BALTIC), identity: 70_000 + (i % 100) }),
  );
  expect('prefixes', cache.size, keys.length);
  const withdrawn = withdraw(keys, claims, memory);
  return { deleted, added, updated, withdrawn, cache, history };
}

/** Returns the CPU µs of one claim of a cluster that leaves. */
function withdraw(keys: readonly string[], claims: readonly Claim[], memory: number | undefined): number {
  const cache = new IPCache();
  for (const [i, claim] of claims.entries()) cache.upsert(keys[i] as string, claim);
  const history =
    memory === undefined ? undefined : new History({ ipcache: cache, clock: new SteppingClock(), memory });
  history?.start();
  collectGarbage();
  const begun = threadMs();
  let withdrawn = 0;
  for (const step of cache.withdrawSteps(BALTIC)) withdrawn += step;
  const cost = ((threadMs() - begun) * 1000) / keys.length;
  expect('prefixes withdrawn', withdrawn, keys.length);
  return cost;
}

/** Fills 128 MiB on disk, and asks for the claims on prefixes at the begin of the window. */
async function askDisk(keys: readonly string[], claims: readonly Claim[]): Promise<DiskQuestions> {
  const path = await mkdtemp(join(tmpdir(), 'bench-history-'));
  try {
    const cache = new IPCache();
    for (const [i, claim] of claims.entries()) cache.upsert(keys[i] as string, claim);
    const gate = new TurnGate({ clock: systemClock, nextTurn: setImmediate });
    const disk = { folder: new StateFiles(path), maxBytes: DISK, checksum: crc32 };
    const history = new History({ ipcache: cache, clock: new SteppingClock(), disk, gate });
    await history.open();
    history.start();
    const often = keys.slice(0, QUESTIONS);
    const once = keys.slice(QUESTIONS, 2 * QUESTIONS);
    const rest = keys.length - 3 * QUESTIONS;
    const change = (key: string, i: number, round: number): void => {
      cache.upsert(key, { ...(claims[i] as Claim), identity: 70_000 + (round % 65_537) }); // never the same twice
    };
    // The last 10 prefixes do not change.
    for (let n = 0; n % FLUSH_EVERY > 0 || (history.status().disk?.bytes ?? DISK) < FULL; n++) {
      const i = 2 * QUESTIONS + ((n * 7919) % rest);
      change(keys[i] as string, i, n);
      if (n % 1000 === 0) for (const [at, key] of often.entries()) change(key, at, n);
      if (n === 1_000_000) for (const [at, key] of once.entries()) change(key, at + QUESTIONS, n);
      if (n % FLUSH_EVERY === 0) await history.flush();
    }
    await history.flush();
    const { from } = history.past.retained;
    const ask = async (asked: readonly string[]): Promise<number> => {
      const begun = threadMs();
      for (const key of asked) expect('certain', Number((await history.past.at(key, from))?.certain), 1);
      return (threadMs() - begun) / asked.length;
    };
    collectGarbage();
    const unchanged = await ask(keys.slice(-QUESTIONS));
    const changedOnce = await ask(once);
    const changedOften = await ask(often);
    // The longest turn is measured in a second pass, because the meter itself uses CPU while files are read.
    const turns = new LongestTurn();
    await ask(often);
    const longestTurn = turns.stop();
    const { disk: stored } = history.status();
    history.stop();
    await history.close();
    return {
      mib: (stored?.bytes ?? 0) / 2 ** 20,
      unchanged,
      changedOnce,
      changedOften,
      longestTurn,
    };
  } finally {
    await rm(path, { recursive: true });
  }
}

/** Measures the CPU of each turn of the event loop. */
class LongestTurn {
  #last: number = threadMs();
  #longest = 0;
  #next = setImmediate(() => this.#turn());

  #turn(): void {
    const now = threadMs();
    this.#longest = Math.max(this.#longest, now - this.#last);
    this.#last = now;
    this.#next = setImmediate(() => this.#turn());
  }

  /** Returns the CPU milliseconds of the longest turn. */
  stop(): number {
    clearImmediate(this.#next);
    return this.#longest;
  }
}

/** Measures the cost of recording a history, and of its answers. */
export async function benchHistory({
  n = 300_000,
  json = false,
}: {
  readonly n?: number;
  readonly json?: boolean;
}): Promise<HistoryBenchReport> {
  const keys = Array.from({ length: n }, (_, i) => podAddress(i));
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
  const { records, lost, bytes, recordsInMemory } = history.status();
  expect('changes lost', lost.rate, 0);
  expect('changes recorded', records.prefix, 3 * n);
  const { from, to } = history.retained;
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
    withdrawn: cost((life) => life.withdrawn),
    bytesPerRecord: bytes / recordsInMemory,
    retainedIn16MiB: small?.recordsInMemory ?? 0,
    lookupPast,
    lookupNow,
    lookupOff,
    atMs: (atMs * n) / 100 / 1000,
    disk: await askDisk(keys, claims),
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
  console.log(row('withdraw', report.withdrawn));
  console.log(
    `bytes a record         ${report.bytesPerRecord.toFixed(1)}   ${verdict(report.bytesPerRecord <= BUDGET.bytes)}`,
  );
  console.log(
    `records in 16 MiB      ${report.retainedIn16MiB}   ${verdict(report.retainedIn16MiB >= BUDGET.retained)}`,
  );
  const { lookupPast, lookupNow, lookupOff, atMs } = report;
  console.log(
    `lookup                 ${lookupPast.toFixed(2)} µs at a random time, ${lookupNow.toFixed(2)} µs at now, ${lookupOff.toFixed(2)} µs without a history`,
  );
  console.log(`claims at a moment     ${atMs.toFixed(3)} ms   ${verdict(atMs <= BUDGET.atMs)}`);
  const { mib, unchanged, changedOnce, changedOften, longestTurn } = report.disk;
  const isKept =
    Math.max(unchanged, changedOnce, changedOften) <= BUDGET.atMs && longestTurn <= BUDGET.turnMs;
  console.log(
    `the same from disk     ${unchanged.toFixed(1)} ms without changes, ${changedOnce.toFixed(1)} with one, ${changedOften.toFixed(1)} with changes in all ${mib.toFixed(0)} MiB; longest turn ${longestTurn.toFixed(1)} ms   ${verdict(isKept)}`,
  );
}
