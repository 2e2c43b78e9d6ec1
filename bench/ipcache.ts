import { expect } from './expect.ts';
import { interleave, type Part } from './interleave.ts';
import { Entries, type EntryKind } from './ipcache/entries.ts';
import {
  type Costs,
  fill,
  timeBatches,
  timeChurn,
  timeLife,
  timeMap,
  timeMapMatches,
  timeMatches,
} from './ipcache/lives.ts';
import { type LookupKind, Lookups } from './ipcache/lookups.ts';
import { bytesPerEntry, bytesPerPrefix } from './ipcache/memory.ts';
import { readOtherProgram, timesFaster } from './ipcache/other-program.ts';
import { measurePeers } from './ipcache/peer-rows.ts';
import type { IPCacheReport, Row } from './ipcache/report.ts';
import { rowsOf, SORTED } from './ipcache/rows.ts';
import { measureStalls, timerResolution } from './ipcache/stalls.ts';
import { renderIPCache } from './ipcache/table.ts';
import { measureTurns } from './ipcache/turns.ts';
import { type Cost, collectGarbage, PauseLog } from './meter.ts';
import { EngineSubject } from './peers/engine.ts';
import { NativeMapSubject } from './peers/native-map.ts';

/** Parameters of the bench. */
export interface IPCacheBenchOptions {
  /** Entries; default 1,000,000. */
  readonly n?: number | undefined;
  /**
   * Number of rounds for the medians; default 5 (writes of other workloads 3), 3 below 500,000, 1 from 5,000,000
   * entries on.
   */
  readonly rounds?: number | undefined;
  /** If true, measures the peers, too. */
  readonly peers?: boolean | undefined;
  /** A file with the figures of another program: see {@link readOtherProgram}. */
  readonly peer?: string | undefined;
  /** If true, prints nothing: the caller prints the result. */
  readonly json?: boolean | undefined;
}

const DEFAULT_N = 1_000_000;
const ROUNDS = 5;
/** Number of rounds of a quick run, which takes less than a minute. */
const ROUNDS_OF_QUICK = 3;
const QUICK = 500_000;
/**
 * Number of rounds for batches, for writes of many keys, and for lives with shadowed keys, IPv6 or another order. A
 * quick run has one.
 */
const ROUNDS_OF_OTHERS = 3;
/** From this size on, a round takes minutes and gigabytes: plain entries only, in random order and by text. */
const HUGE = 5_000_000;
const ROUNDS_OF_HUGE = 1;
/** From this size on, progress is printed. */
const LONG = 200_000;
/** Number of operations after which V8 has compiled all measured code. */
const WARM_UP = 10_000;

function defaultRounds(n: number): number {
  if (n < QUICK) return ROUNDS_OF_QUICK;
  return n < HUGE ? ROUNDS : ROUNDS_OF_HUGE;
}

/** Prints the name of the next part on stderr. */
function logProgress(n: number, what: string): void {
  if (n < LONG) return;
  const seconds = (performance.now() / 1000).toFixed(0).padStart(4);
  process.stderr.write(`${seconds} s  ipcache ${n.toLocaleString('en')}: ${what}\n`);
}

/** {@link interleave}, with progress. */
function inRounds(
  n: number,
  what: string,
  rounds: number,
  parts: readonly Part<Cost>[],
): Promise<readonly Costs[]> {
  return interleave(rounds, parts, (round) => logProgress(n, `${what}, round ${round + 1} of ${rounds}`));
}

/** The workloads of one size. */
interface Workloads {
  readonly entries: ReadonlyMap<EntryKind, Entries>;
  readonly lookups: ReadonlyMap<LookupKind, Lookups>;
  /** The workloads of the `Map` that the others are compared with. */
  readonly plain: { readonly entries: Entries; readonly sorted: Entries; readonly lookups: Lookups };
}

function workloads(n: number, peers: boolean): Workloads {
  const entriesOf = (kind: EntryKind): Entries => new Entries(n, kind);
  const plain = {
    entries: entriesOf('ipv4'),
    sorted: entriesOf('sorted'),
    lookups: new Lookups(n, 'ipv4'),
  };
  if (n >= HUGE) return { entries: new Map(), lookups: new Map([['ipv4', plain.lookups]]), plain };
  const kinds: readonly EntryKind[] = [
    ...(['shadowed', 'ipv6'] as const),
    ...(n >= QUICK || peers ? (['ipv6Sorted'] as const) : []),
    ...(peers ? (['reordered'] as const) : []),
  ];
  return {
    entries: new Map(kinds.map((kind) => [kind, entriesOf(kind)])),
    lookups: new Map([
      ['ipv4', plain.lookups],
      ['shadowed', new Lookups(n, 'shadowed')],
      ['ipv6', new Lookups(n, 'ipv6')],
    ]),
    plain,
  };
}

/**
 * Rows of workloads other than the plain one start with its name; those in the order of texts have a suffix:
 * `ipv6.fresh`, `freshSorted`, `ipv6.freshSorted`.
 */
function named(kind: EntryKind, costs: Costs): Costs {
  const workload = kind.replace(/sorted$/i, '');
  const front = workload === '' || workload === 'ipv4' ? '' : `${workload}.`;
  const end = workload === kind ? '' : SORTED;
  return Object.fromEntries(Object.entries(costs).map(([name, cost]) => [front + name + end, cost]));
}

/**
 * Measures lives of all kinds, including that of a `Map`. Workloads other than the plain ones are measured in the first
 * rounds only.
 */
async function writeRounds(
  pauses: PauseLog,
  { entries, plain }: Workloads,
  rounds: number,
): Promise<readonly Costs[]> {
  const life = (kind: EntryKind, some: Entries) => async (): Promise<Costs> => {
    const countsChanges = kind === 'ipv4' || kind === 'sorted';
    return named(kind, await timeLife(pauses, some, new EngineSubject(), countsChanges));
  };
  const main = [
    life('ipv4', plain.entries),
    () => timeMap(pauses, plain.entries),
    life('sorted', plain.sorted),
    async () => named('sorted', await timeMap(pauses, plain.sorted)),
  ];
  const others = [
    () => timeBatches(pauses, plain.entries),
    () => timeChurn(pauses, plain.entries),
    async () => named('sorted', await timeChurn(pauses, plain.sorted)),
    ...Array.from(entries, ([kind, some]) => life(kind, some)),
  ];
  const { n } = plain.entries;
  const together = Math.min(rounds, n < QUICK ? 1 : ROUNDS_OF_OTHERS);
  const first = await inRounds(n, 'all writes', together, [...main, ...others]);
  return [...first, ...(await inRounds(n, 'plain writes', rounds - together, main))];
}

/**
 * Measures longest matches in tables of all kinds, including a `Map`. The tables are filled once, because lookups do
 * not change them.
 */
async function matchRounds(
  pauses: PauseLog,
  { lookups, plain }: Workloads,
  rounds: number,
): Promise<readonly Costs[]> {
  const parts = Array.from(lookups, ([kind, some]) => {
    const engine = new EngineSubject();
    fill(engine, some);
    return async () => named(kind, await timeMatches(pauses, some, engine));
  });
  const map = new NativeMapSubject();
  fill(map, plain.lookups);
  collectGarbage();
  const work = [...parts, () => timeMapMatches(pauses, plain.lookups, map)];
  return inRounds(plain.entries.n, 'longest matches', rounds, work);
}

/** Adds the yardstick to each row whose budget compares engine with engine. */
function withFactors(rows: Readonly<Record<string, Row>>): Readonly<Record<string, Row>> {
  const plainOf = (name: string): string => (name === 'batch256' ? 'fresh' : (name.split('.')[1] ?? ''));
  return Object.fromEntries(
    Object.entries(rows).map(([name, row]) => {
      const plain = rows[plainOf(name)];
      return [name, plain === undefined ? row : { ...row, factor: row.ns / plain.ns }];
    }),
  );
}

async function allRows(
  pauses: PauseLog,
  work: Workloads,
  rounds: number,
): Promise<Readonly<Record<string, Row>>> {
  const writes = await writeRounds(pauses, work, rounds);
  const matches = await matchRounds(pauses, work, rounds);
  return withFactors({
    ...rowsOf(writes, { writes: 'mapSet', reads: 'mapGet' }),
    ...rowsOf(matches, { writes: 'lpmMapGet', reads: 'lpmMapGet' }),
  });
}

/**
 * Measures the `IPCache` by the workloads of its budgets, each compared with a `Map` of the same strings. Only the work
 * of the engine is measured; the strings are parsed again just before. Prints a table unless `json` is set.
 */
export async function benchIPCache(options: IPCacheBenchOptions = {}): Promise<IPCacheReport> {
  const { n = DEFAULT_N, json = false, peers = false } = options;
  const rounds = options.rounds ?? defaultRounds(n);
  const other = options.peer === undefined ? undefined : readOtherProgram(options.peer);
  const pauses = new PauseLog();
  // One cache is kept alive, because V8 drops the compiled code of a class with its last object and would compile it
  // again in each round.
  const kept = new EngineSubject();
  kept.upsertAll(['10.0.0.1'], [{ source: 'kvstore', identity: 256 }]);
  await allRows(pauses, workloads(Math.min(n, WARM_UP), peers), 1);
  logProgress(n, 'makes the strings');
  const work = workloads(n, peers);
  const { entries } = work.plain;
  const ipv6 = work.entries.get('ipv6');
  logProgress(n, 'memory');
  const memory = {
    bytesPerEntry: await bytesPerEntry(entries, () => new EngineSubject()),
    mapBytesPerEntry: await bytesPerEntry(entries, () => new NativeMapSubject()),
    bytesPerEntryIPv6: ipv6 ? await bytesPerEntry(ipv6, () => new EngineSubject()) : Number.NaN,
    bytesPerEntrySparse: await bytesPerEntry(new Entries(n, 'sparse'), () => new EngineSubject()),
    bytesPerPrefix: await bytesPerPrefix(work.plain.lookups),
  };
  const rows = await allRows(pauses, work, rounds);
  logProgress(n, 'stalls');
  const stalls = await measureStalls(pauses, entries);
  logProgress(n, 'turns');
  const turns = await measureTurns(entries);
  const measured = {
    n,
    rounds,
    ...memory,
    rows,
    stalls,
    turns,
    timerNs: timerResolution(),
    peers: peers ? await measurePeers(pauses, n, rounds) : {},
  };
  pauses.stop();
  expect('entries of the cache that is kept', kept.size, 1);
  const report: IPCacheReport = {
    ...measured,
    ...(other && {
      otherProgram: { n: other['n'] ?? Number.NaN, timesFaster: timesFaster(other, measured) },
    }),
  };
  if (!json) process.stdout.write(renderIPCache(report));
  return report;
}
