import { crc32 } from 'node:zlib';
import fc from 'fast-check';
import { History } from '../../../src/history/history.ts';
import type { PrefixMoment, PrefixRecord } from '../../../src/history/types.ts';
import { IPCache } from '../../../src/ipcache/ipcache.ts';
import type { CompleteClaim } from '../../../src/ipcache/row-reader.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { attributes, NaiveIPCache, writerName } from '../../ipcache/support/naive-ipcache.ts';
import {
  ADDRESSES,
  apply,
  applyNaively,
  history,
  KEYS,
  type Operation,
  SPELLINGS,
} from '../../ipcache/support/operations.ts';
import { MemoryFolder } from '../../restore/support/memory-folder.ts';
import { claimText, NaiveHistory } from './naive-history.ts';
import { itemsOf } from './past-lists.ts';

/** What happens to the files when a process ends. */
type Ending = 'stop' | 'kill' | 'torn' | 'flipped' | 'dropped';

/** One process: writes before it records, then writes while it records, each after a pause, with a flush or without. */
interface LifePlan {
  readonly away: number;
  /** By how much the wall clock is set while no process runs. */
  readonly clockSet: number;
  readonly before: readonly Operation[];
  readonly steps: readonly {
    readonly operation: Operation;
    readonly pause: number;
    readonly flush: boolean;
    /** By how much the wall clock is set before the write, and whether the history compares the clocks immediately. */
    readonly clockSet: number;
    readonly checked: boolean;
    /** Before the write, changes of other keys fill a segment. */
    readonly fill: boolean;
  }[];
  readonly ending: Ending;
  readonly damage: number;
  /** A write after the history has stopped, and before its last segment is complete. */
  readonly late: Operation | undefined;
}

/** An interval of wall time when one process ran and its clock was not set. */
interface Lived {
  readonly naive: NaiveHistory;
  readonly from: number;
  readonly to: number;
}

const restored = { source: 'restored', owner: 'baltic' } as const;

/** Claims that another agent left, and the release of all of them. */
const restoring: fc.Arbitrary<Operation> = fc.oneof(
  fc.record({
    op: fc.constant('upsert' as const),
    at: fc.constantFrom(...SPELLINGS),
    claim: fc.constantFrom(100, 200).map((identity) => ({ ...restored, identity })),
  }),
  fc.constant({ op: 'withdraw' as const, by: restored }),
);

const operation: fc.Arbitrary<Operation> = fc.oneof(
  { weight: 8, arbitrary: history.map((all) => all[0] as Operation) }, // never empty
  { weight: 1, arbitrary: restoring },
);

const step = fc.record({
  operation,
  pause: fc.constantFrom(0, 0, 1, 7, 600),
  flush: fc.boolean(),
  clockSet: fc.constantFrom(...Array.from({ length: 30 }, () => 0), -4000, -300, 9000),
  checked: fc.boolean(),
  fill: fc.constantFrom(false, false, false, false, false, true),
});

/** Number of changes that fill a segment of 16 KiB. */
const FILL = 70;

/** Changes keys that no operation uses. */
function fillSegment(cache: IPCache, round: number): void {
  for (let i = 0; i < FILL; i++) {
    const k8s = { namespace: 'fill', podName: `${'x'.repeat(120)}${round}-${'y'.repeat(30)}${i}` };
    cache.upsert(`10.250.0.${i}`, { source: 'kvstore', identity: 5, k8s });
  }
}

/** Plans of one to four processes. */
const plans: fc.Arbitrary<readonly LifePlan[]> = fc.array(
  fc.record({
    away: fc.constantFrom(0, 1, 50, 3000),
    clockSet: fc.constantFrom(0, 0, 0, 0, -2500, 5000),
    before: fc.oneof(
      { weight: 3, arbitrary: history.map((all) => all.slice(0, 6)) },
      { weight: 1, arbitrary: fc.array(restoring, { maxLength: 5 }) },
    ),
    steps: fc.array(step, { maxLength: 14 }),
    ending: fc.constantFrom<Ending>('stop', 'stop', 'kill', 'kill', 'torn', 'flipped', 'dropped'),
    damage: fc.nat(10_000),
    late: fc.option(operation, { nil: undefined }),
  }),
  { minLength: 1, maxLength: 4 },
);

/** Several processes on one folder. Only the last one still runs. */
interface World {
  readonly lived: readonly Lived[];
  /** The state directly after the record with a sequence number, of all lives. */
  readonly bySequence: ReadonlyMap<number, NaiveHistory>;
  readonly recorded: History;
  readonly clock: ManualClock;
  readonly model: NaiveIPCache;
}

/** Runs the plans. */
async function runLives(all: readonly LifePlan[]): Promise<World> {
  let folder = new MemoryFolder();
  const clock = new ManualClock();
  clock.setWallTimeBy(1_000_000);
  const lived: Lived[] = [];
  const bySequence = new Map<number, NaiveHistory>();
  const model = new NaiveIPCache(true);
  const written: Operation[] = [];
  for (const [index, plan] of all.entries()) {
    clock.advance(plan.away);
    clock.setWallTimeBy(plan.clockSet);
    const cache = new IPCache();
    for (const operation of plan.before) applyNaively(model, operation);
    written.push(...plan.before);
    for (const operation of written) apply(cache, operation);
    const disk = { folder, maxBytes: 1 << 20, checksum: (bytes: Uint8Array) => crc32(bytes) };
    const recorded = new History({ ipcache: cache, clock, memory: 256 << 10, disk });
    await recorded.open();
    recorded.start();
    const noteSequence = async (): Promise<void> => {
      const [newest] = await itemsOf(recorded.past.records({ limit: 1 }));
      const copy = new NaiveHistory();
      copy.note(0, model);
      if (newest !== undefined) bySequence.set(newest.sequence, copy);
    };
    // Records that were not stored have numbers that are used again.
    const [first] = await itemsOf(recorded.past.records({ limit: 1 }));
    for (const sequence of bySequence.keys())
      if (sequence >= (first?.sequence ?? 0)) bySequence.delete(sequence);
    await noteSequence();
    let naive = new NaiveHistory();
    let from = clock.wallTime();
    naive.note(from, model);
    for (const [round, { operation, pause, flush, clockSet, checked, fill }] of plan.steps.entries()) {
      clock.advance(pause);
      if (clockSet !== 0) {
        lived.push({ naive, from, to: clock.wallTime() });
        clock.setWallTimeBy(clockSet);
        if (checked) recorded.checkClock();
        naive = new NaiveHistory();
        from = clock.wallTime();
        naive.note(from, model);
      }
      if (fill) fillSegment(cache, round);
      apply(cache, operation);
      applyNaively(model, operation);
      written.push(operation);
      naive.note(clock.wallTime(), model);
      await noteSequence();
      if (flush) await recorded.flush();
    }
    if (index === all.length - 1) {
      clock.advance(5);
      lived.push({ naive, from, to: Number.POSITIVE_INFINITY });
      return { lived, bySequence, recorded, clock, model };
    }
    lived.push({ naive, from, to: clock.wallTime() });
    recorded.stop();
    if (plan.late !== undefined) {
      clock.advance(2);
      apply(cache, plan.late);
      applyNaively(model, plan.late);
      written.push(plan.late);
      clock.advance(3);
    }
    await end(recorded, folder, plan);
    // A killed process writes no more, although its last write has not ended here.
    const left = new MemoryFolder();
    for (const [name, bytes] of folder.files) left.files.set(name, bytes);
    folder = left;
  }
  throw new Error('no plan');
}

async function end(recorded: History, folder: MemoryFolder, { ending, damage }: LifePlan): Promise<void> {
  if (ending === 'stop') await recorded.close();
  const names = [...folder.files.keys()].sort();
  const name = ending === 'dropped' ? names[damage % names.length] : names.at(-1);
  const bytes = name === undefined ? undefined : new Uint8Array(folder.files.get(name) ?? []);
  if (name === undefined || bytes === undefined) return;
  if (ending === 'torn') folder.files.set(name, bytes.slice(0, damage % (bytes.length + 1)));
  if (ending === 'dropped') folder.files.delete(name);
  if (ending !== 'flipped' || bytes.length === 0) return;
  const flipped = bytes.slice();
  const at = damage % flipped.length;
  flipped[at] = (flipped[at] ?? 0) ^ (1 + (damage % 255));
  folder.files.set(name, flipped);
}

/** The moments worth asking for. */
function momentsOf({ lived }: World): readonly number[] {
  const all = lived.flatMap(({ naive, from, to }) => [
    ...naive.times.flatMap((at) => [at - 1, at, at + 1]),
    ...[from - 1, to, to + 1].filter(Number.isFinite),
  ]);
  return [...new Set(all)];
}

/** Returns the error in the answer for a wall time; undefined if it is right or not certain. */
function fault(world: World, at: number, key: string, moment: PrefixMoment | undefined): string | undefined {
  if (moment?.certain !== true) return undefined;
  const { lived, clock } = world;
  const running = lived.filter(({ from, to }) => at >= from && at <= to);
  if (at > clock.wallTime()) return 'the future is certain';
  if (running.length === 0) return 'no process ran';
  const isRight = running.some(({ naive }) => agrees(moment, naive.claims(at, key)));
  return isRight ? undefined : `${key} at ${at}: ${moment.claims.map(claimText).join(', ') || 'none'}`;
}

function agrees({ claims, claimsComplete }: PrefixMoment, expected: readonly string[]): boolean {
  const got = claims.map(claimText);
  return claimsComplete ? got.join('\n') === expected.join('\n') : got[0] === expected[0];
}

/** Returns the error in the answer for a look-up; undefined if it is right or not certain. */
function lookupFault(
  { lived }: World,
  at: number,
  ip: string,
  moment: PrefixMoment | undefined,
): string | undefined {
  if (moment?.certain !== true) return undefined;
  const [got] = moment.claims.map(({ key }) => key);
  const expected = lived.flatMap(({ naive, from, to }) =>
    at >= from && at <= to ? [naive.lookup(at, ip)] : [],
  );
  return expected.includes(got) ? undefined : `${ip} at ${at}: ${got}, not ${expected.join(' or ')}`;
}

/**
 * Returns the error in the visible claims that records list; undefined if each is right or absent. A record is compared
 * with the state after its write, and with the one before it if it is the first record of its prefix in that write.
 */
function effectiveFault(
  { bySequence }: World,
  key: string,
  records: readonly PrefixRecord[],
): string | undefined {
  const known = [...bySequence.keys()];
  const visible = (sequence: number): string | undefined =>
    bySequence.get(sequence)?.claims(0, key)[0]?.replace(/^\S+ /, '');
  const text = (claim: CompleteClaim | undefined): string | undefined =>
    claim && `${writerName(claim)} ${attributes(claim)}`;
  for (const { sequence, effective } of records) {
    if (effective === undefined) continue;
    const earlier = Math.max(0, ...known.filter((one) => one < sequence));
    const isFirst = !records.some((one) => one.sequence > earlier && one.sequence < sequence);
    const wrongAfter = bySequence.has(sequence) && text(effective.after) !== visible(sequence);
    const wrongBefore = earlier > 0 && isFirst && text(effective.before) !== visible(earlier);
    if (wrongAfter || wrongBefore)
      return `${key} at #${sequence}: from ${text(effective.before)} to ${text(effective.after)}`;
  }
  return undefined;
}

/** Returns the keys that the plans change, and some others. */
function keysOf(all: readonly LifePlan[]): readonly string[] {
  const changed = (operation: Operation): readonly string[] =>
    operation.op === 'batch'
      ? operation.operations.flatMap(changed)
      : operation.op === 'withdraw'
        ? []
        : [operation.at.key];
  const keys = all.flatMap(({ steps }) => steps.flatMap((one) => changed(one.operation)));
  return [...new Set([...keys, ...KEYS.slice(0, 4)])];
}

/**
 * Returns the first wrong answer of a world. Each moment is asked for a few keys only, all of them in turn, because
 * neighbours of a moment have nearly its state.
 */
async function faultOf(all: readonly LifePlan[]): Promise<string | undefined> {
  const world = await runLives(all);
  const { recorded, bySequence } = world;
  const keys = keysOf(all);
  let turn = 0;
  const next = <T>(list: readonly T[]): T => list[turn++ % list.length] as T; // not empty
  for (const at of momentsOf(world)) {
    const [stored, other, ip] = [next(keys), next(keys), next(ADDRESSES)];
    const wrong =
      fault(world, at, stored, await recorded.past.at(stored, at)) ??
      fault(world, at, other, recorded.at(other, at)) ??
      lookupFault(
        world,
        at,
        ip,
        turn % 2 === 0 ? await recorded.past.lookup(ip, at) : recorded.lookup(ip, at),
      );
    if (wrong !== undefined) return wrong;
  }
  for (const key of keys) {
    const wrong = effectiveFault(world, key, await itemsOf(recorded.past.of(key)));
    if (wrong !== undefined) return wrong;
  }
  for (const [sequence, naive] of bySequence) {
    const key = next(keys);
    for (const moment of [await recorded.past.at(key, { sequence }), recorded.at(key, { sequence })])
      if (moment?.certain === true && !agrees(moment, naive.claims(0, key)))
        return `${key} after #${sequence}: ${moment.claims.map(claimText).join(', ') || 'none'}`;
  }
  return undefined;
}

/**
 * H1, H2: over restarts, a certain answer and the visible claims of a record are right, whatever happened to the files.
 * Without a seed, that of the configuration.
 */
export async function H2_aCertainAnswerIsRight(numRuns: number, seed?: number): Promise<void> {
  await fc.assert(
    fc.asyncProperty(plans, async (all) => {
      const wrong = await faultOf(all);
      if (wrong !== undefined) throw new Error(wrong);
    }),
    // Mutants and short runs need no smallest example.
    { numRuns, endOnFailure: numRuns < 1000, ...(seed !== undefined && { seed }) },
  );
}

/**
 * Several changes of one prefix that have left the memory are found on the disk. Returns the number of certain answers.
 */
export async function H1_theDiskHasWhatTheMemoryHasNot(): Promise<number> {
  const clock = new ManualClock();
  const cache = new IPCache();
  const disk = {
    folder: new MemoryFolder(),
    maxBytes: 16 << 20,
    checksum: (bytes: Uint8Array) => crc32(bytes),
  };
  const history = new History({ ipcache: cache, clock, memory: 256 << 10, disk });
  await history.open();
  history.start();
  const answers: [at: number, identity: number][] = [];
  for (let i = 0; i < 12; i++) {
    clock.advance(5);
    cache.upsert('10.0.0.1', { source: 'k8s', identity: 500 + i });
    answers.push([clock.wallTime() + 1, 500 + i]);
    for (let round = 0; round < 30; round++) {
      fillSegment(cache, 100 * i + round);
      clock.advance(1);
      await history.flush();
    }
  }
  let certain = 0;
  for (const [at, identity] of answers) {
    const moment = await history.past.at('10.0.0.1', at);
    if (moment?.certain !== true) continue;
    certain++;
    if (moment.effective?.identity !== identity)
      throw new Error(`${identity} at ${at}: ${moment.effective?.identity}`);
  }
  return certain;
}

/**
 * Removes each file of a life in turn: no answer around the loss is certain and wrong. Returns the number of certain
 * answers.
 */
export async function H2_aLossIsNotCertain(): Promise<number> {
  const clock = new ManualClock();
  const folder = new MemoryFolder();
  const checksum = (bytes: Uint8Array): number => crc32(bytes);
  const open = async (cache: IPCache, on: MemoryFolder): Promise<History> => {
    const disk = { folder: on, maxBytes: 1 << 20, checksum };
    const history = new History({ ipcache: cache, clock, memory: 1 << 20, disk });
    await history.open();
    history.start();
    return history;
  };
  const cache = new IPCache();
  const history = await open(cache, folder);
  const answers: [at: number, identity: number][] = [];
  for (let i = 0; i < 6; i++) {
    clock.advance(5);
    cache.upsert('10.0.0.1', { source: 'k8s', identity: 500 + i });
    for (let round = 0; round < 10; round++) {
      fillSegment(cache, 100 * i + round);
      clock.advance(1);
      answers.push([clock.wallTime(), 500 + i]);
      clock.advance(1);
    }
    await history.flush();
  }
  history.stop();
  await history.close();
  clock.advance(100);
  let certain = 0;
  for (const name of folder.files.keys()) {
    const copy = new MemoryFolder();
    for (const [other, bytes] of folder.files) if (other !== name) copy.files.set(other, bytes);
    const next = await open(new IPCache(), copy);
    for (const [at, identity] of answers) {
      const moment = await next.past.at('10.0.0.1', at);
      if (moment?.certain !== true) continue;
      certain++;
      if (moment.effective?.identity !== identity)
        throw new Error(`${name}: ${identity} at ${at}: ${moment.effective?.identity}`);
    }
  }
  return certain;
}
