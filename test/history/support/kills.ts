import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { crc32 } from 'node:zlib';
import { expect } from 'vitest';
import { StateFiles } from '../../../src/agent/state-files.ts';
import { systemClock } from '../../../src/base/system-clock.ts';
import { History } from '../../../src/history/history.ts';
import { IPCache } from '../../../src/ipcache/ipcache.ts';
import { temporaryFolder } from '../../agent/support/temporary-folder.ts';
import { bundledScript, linesUntilKilled } from '../../base/support/killed-process.ts';

const WRITER = fileURLToPath(new URL('history-writer.ts', import.meta.url));
const KEYS = 20;
/** Lines of a writer before it is killed: at least some changes, and some of them stored; at most a few segments. */
const MIN_LINES = 60;
const MAX_LINES = 400;
/**
 * Wall time and monotonic time are read one after the other, in whole milliseconds. In addition, the step of the wall
 * clock during a run is tolerated, because the history takes a step of less than 20 ms for inexact reads.
 */
const TOLERANCE_MS = 4;
/** Questions after each kill. */
const QUESTIONS = 150;

interface Change {
  readonly key: number;
  /** 0: deleted. */
  readonly identity: number;
  readonly begun: number;
  readonly ended: number;
}

/** The output of one process before it was killed. */
interface Run {
  readonly from: number;
  readonly to: number;
  readonly changes: readonly Change[];
  /** Everything before this time was stored. */
  readonly flushed: number;
  /** Maximum difference between the times of this run and of its history. */
  readonly toleranceMs: number;
}

async function killed(script: string, path: string, count: number): Promise<Run> {
  const lines = await linesUntilKilled(script, [path, KEYS], { lines: count, afterMs: 0 });
  const starts = lines.flatMap((line) => /^start (\d+)/.exec(line)?.[1] ?? []);
  const flushes = lines.flatMap((line) => /^flushed (\d+)/.exec(line)?.[1] ?? []);
  const changes = lines.flatMap((line) => {
    const [key = 0, identity = 0, begun = 0, ended = 0, step = 0] = line.split(' ').map(Number);
    return /^\d/.test(line) ? [{ key, identity, begun, ended, step }] : [];
  });
  const toleranceMs = TOLERANCE_MS + Math.max(0, ...changes.map(({ step }) => Math.abs(step)));
  return {
    from: Number(starts[0]),
    to: Date.now(),
    changes,
    flushed: Number(flushes.at(-1) ?? 0),
    toleranceMs,
  };
}

/** Returns the identities that a key may have had at a time; undefined if no process ran for sure. */
function possible(
  { from, changes, toleranceMs }: Run,
  key: number,
  at: number,
): ReadonlySet<number> | undefined {
  if (at < from - toleranceMs) return undefined;
  const own = changes.filter((change) => change.key === key);
  const last = own.filter(({ ended }) => ended < at - toleranceMs).at(-1);
  const near = own.filter(({ begun, ended }) => ended >= at - toleranceMs && begun <= at + toleranceMs);
  return new Set([last?.identity ?? 1, ...near.map(({ identity }) => identity)]);
}

/**
 * Kills a process that stores a history, again and again, each time after another number of changes. After each kill,
 * everything that was stored must be found, and no certain answer may be wrong. Returns the number of certain answers.
 */
export async function killHistories(kills: number): Promise<number> {
  const folder = temporaryFolder({});
  const script = await bundledScript(WRITER);
  const path = join(folder, 'history');
  const runs: Run[] = [];
  let certain = 0;
  for (let kill = 0; kill < kills; kill++) {
    const run = await killed(script, path, MIN_LINES + ((kill * 67) % (MAX_LINES - MIN_LINES)));
    runs.push(run);
    const disk = { folder: new StateFiles(path), maxBytes: 1 << 20, checksum: crc32 };
    const history = new History({ ipcache: new IPCache(), clock: systemClock, memory: 256 << 10, disk });
    await history.open();
    const readAt = Date.now();
    history.start();
    expect(history.status().disk).toMatchObject({ damaged: 0, failure: undefined });
    await expectStored(history, run);
    for (let n = 0; n < QUESTIONS; n++) certain += await ask(history, runs, n, readAt);
  }
  return certain;
}

/** Expects that all changes before the last flush are found. */
async function expectStored(history: History, { from, changes, flushed, toleranceMs }: Run): Promise<void> {
  const stored = changes.filter(({ ended }) => ended < flushed);
  const found = new Set<number>();
  for await (const slice of history.past.records({ from: from - toleranceMs }))
    for (const record of slice) {
      if (record.kind === 'prefix' && record.after !== undefined) found.add(record.after.identity);
    }
  const missing = stored.filter(({ identity }) => identity !== 0 && !found.has(identity));
  expect(missing).toEqual([]);
  const written = new Set(changes.map(({ identity }) => identity));
  expect([...found].filter((identity) => !written.has(identity))).toEqual([]);
}

/** Returns a random time: half of them anywhere in or around the lives, the others near a change. */
function randomTime(runs: readonly Run[], n: number): number {
  const newest = runs.at(-1) as Run; // there is one
  const random = (count: number): number => Math.floor(Math.random() * count);
  const run = n % 2 === 0 ? newest : (runs[random(runs.length)] ?? newest);
  // Near a change, because the share of the certain answers must not depend on the speed of the process and of its end.
  const near = run.changes[random(run.changes.length)];
  if (n % 4 > 1 && near !== undefined) return near.ended - 10 + random(20);
  return run.from - 50 + random(newest.to - run.from + 100);
}

/** Asks for a random key and time. Returns 1 if the answer is certain. */
async function ask(history: History, runs: readonly Run[], n: number, readAt: number): Promise<number> {
  const at = Math.min(readAt - 1, randomTime(runs, n));
  const key = Math.floor(Math.random() * KEYS);
  const moment = await history.past.at(`10.0.0.${key}`, at);
  if (moment?.certain !== true) return 0;
  const run = runs.findLast(({ from, toleranceMs }) => from - toleranceMs <= at);
  const identities = run === undefined ? undefined : possible(run, key, at);
  const identity = moment.effective?.identity ?? 0;
  expect([...(identities ?? [])], `10.0.0.${key} at ${at}: ${JSON.stringify(moment.claims)}`).toContain(
    identity,
  );
  // No process ran after the kill.
  if (run !== undefined) expect(at).toBeLessThanOrEqual(run.to + run.toleranceMs);
  return 1;
}
