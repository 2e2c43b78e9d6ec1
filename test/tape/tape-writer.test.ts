import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { describe, expect, it, vi } from 'vitest';
import { StateFiles } from '../../src/agent/state-files.ts';
import type { StateSink } from '../../src/base/files/state-folder.ts';
import { OPEN_GATE, TurnGate } from '../../src/base/turn-gate.ts';
import { IPCache } from '../../src/ipcache/ipcache.ts';
import { readRecordedKeys } from '../../src/recording/recorded-keys.ts';
import { checkTape } from '../../src/tape/check-tape.ts';
import { Tape, type TapeOptions } from '../../src/tape/tape.ts';
import { MAX_LINE_BYTES } from '../../src/tape/tape-line.ts';
import { ManualClock } from '../base/support/manual-clock.ts';
import { I9_reconnectIsColdStart } from '../clustermesh/support/mesh-laws.ts';
import { keepTape } from './support/keep-tape.ts';
import { replayMesh, SETTINGS, tapeMesh, withFolder } from './support/taped-mesh.ts';

/** A folder on a disk that is full while `isFull`. */
class SmallDisk extends StateFiles {
  isFull = false;

  override async create(name: string): Promise<StateSink> {
    const sink = await super.create(name);
    const check = (): void => {
      if (this.isFull) throw Object.assign(new Error('write'), { code: 'ENOSPC', syscall: 'write' });
    };
    return {
      ...sink,
      write: async (bytes) => {
        check();
        await sink.write(bytes);
      },
    };
  }
}

async function newTape(
  folder: string,
  options: Partial<TapeOptions> = {},
): Promise<{ readonly tape: Tape; readonly disk: SmallDisk; readonly pass: (ms: number) => Promise<void> }> {
  const disk = new SmallDisk(folder);
  const clock = new ManualClock();
  const tape = new Tape({
    folder: disk,
    maxBytes: 1 << 24,
    settings: SETTINGS,
    version: '0.1.0',
    clock,
    gate: OPEN_GATE,
    ipcache: new IPCache(),
    onFailure: () => {},
    ...options,
  });
  tape.start();
  const pass = async (ms: number): Promise<void> => {
    for (let passed = 0; passed < ms; passed += 1000) {
      clock.advance(1000);
      await tape.flush();
      await new Promise((resolve) => setImmediate(resolve));
    }
  };
  await pass(1000);
  return { tape, disk, pass };
}

/** A folder on a disk that writes nothing while it is stuck. */
class StuckDisk extends StateFiles {
  #stuck: Promise<void> = Promise.resolve();
  release: () => void = () => {};

  stick(): void {
    this.#stuck = new Promise((resolve) => {
      this.release = resolve;
    });
  }

  override async create(name: string): Promise<StateSink> {
    const sink = await super.create(name);
    return { ...sink, write: (bytes) => this.#stuck.then(() => sink.write(bytes)) };
  }
}

/** Returns text that does not become smaller. */
function noise(length: number): string {
  let text = '';
  for (let i = 1; text.length < length; i++) text += Math.sin(i).toString(36).slice(3);
  return text.slice(0, length);
}

describe('the files of a tape', () => {
  it('are cut while the disk is full; the lost lines are counted, and a new file begins with a snapshot', async () => {
    await withFolder(async (folder) => {
      const failures: (string | undefined)[] = [];
      const { tape, disk, pass } = await newTape(folder, {
        onFailure: (failure) => failures.push(failure?.message),
      });
      disk.isFull = true;
      tape.note('this does not reach the disk');
      await pass(3000);
      expect(tape.status().failure?.message).toBe('no space left on device');
      const { lost } = tape.status();
      tape.note('lost');
      expect(tape.status().lost).toBe(lost + 1);
      disk.isFull = false;
      await pass(12_000);
      tape.note('recorded again');
      await tape.stop();
      expect(failures).toEqual(['no space left on device', undefined]);
      const { report } = await replayMesh(folder);
      expect(report.cuts).toHaveLength(1);
      expect(report.isComplete).toBe(true);
      const { cuts, events } = await checkTape(folder, new AbortController().signal);
      expect(cuts).toEqual(report.cuts);
      // Regression: lines that waited for the disk were not counted.
      expect(tape.status().lost).toBe(cuts[0]?.lost);
      expect(events).toBeGreaterThan(3);
    });
  });

  it('are not created again and again while the disk is full (regression: an empty file every 10 s)', async () => {
    await withFolder(async (folder) => {
      const { tape, disk, pass } = await newTape(folder);
      disk.isFull = true;
      tape.note('not written');
      await pass(60_000);
      expect(await readdir(folder)).toEqual(['tape-000001.jsonl.gz', 'tape-000007.jsonl.gz']);
      await tape.stop();
      expect(await readdir(folder)).toEqual(['tape-000001.jsonl.gz']);
    });
  });

  it('have no line that was added while an earlier one could not be written', async () => {
    await withFolder(async (folder) => {
      const { tape, disk, pass } = await newTape(folder);
      disk.isFull = true;
      tape.note('not written');
      const written = tape.flush();
      tape.note('added meanwhile');
      await written;
      disk.isFull = false;
      await pass(12_000);
      await tape.stop();
      const texts = await Promise.all(
        (await readdir(folder)).map(async (name) =>
          gunzipSync(await readFile(join(folder, name))).toString(),
        ),
      );
      expect(texts.join('')).not.toContain('added meanwhile');
      expect((await replayMesh(folder)).report).toMatchObject({ isComplete: true });
    });
  });

  it('are removed, oldest first, if they are larger than their limit; what remains is replayed', async () => {
    await withFolder(async (folder) => {
      const maxBytes = 64 << 10;
      const { tape, pass } = await newTape(folder, { maxBytes });
      for (let i = 0; i < 40; i++) {
        tape.note(noise(9000));
        await pass(1000);
        expect(tape.status().bytes).toBeLessThanOrEqual(maxBytes + 8192);
      }
      await tape.stop();
      expect(tape.status()).toMatchObject({ lost: 0, failure: undefined });
      expect((await readdir(folder))[0]).not.toBe('tape-000001.jsonl.gz');
      expect((await replayMesh(folder)).report).toMatchObject({ isComplete: true, cuts: [] });
    });
  });

  it('are cut instead of having a line that no reader accepts', async () => {
    await withFolder(async (folder) => {
      const { tape, pass } = await newTape(folder);
      tape.note('x'.repeat(MAX_LINE_BYTES - 100));
      await pass(1000);
      expect(tape.status()).toMatchObject({ lost: 0, failure: undefined });
      tape.note('\u20ac'.repeat(MAX_LINE_BYTES / 3));
      expect(tape.status()).toMatchObject({ lost: 1, failure: { message: 'a line has more than 16 MiB' } });
      await pass(12_000);
      await tape.stop();
      expect(tape.status().failure).toBeUndefined();
      expect((await replayMesh(folder)).report).toMatchObject({ isComplete: true, cuts: [{ lost: 1 }] });
    });
  });

  it('of failed snapshots are removed (regression: a file of --tape-size every 10 s if a snapshot needs more)', async () => {
    await withFolder(async (folder) => {
      const maxBytes = 64 << 10;
      const failures: (string | undefined)[] = [];
      const onFailure: TapeOptions['onFailure'] = (failure) => failures.push(failure?.message);
      const { tape, pass } = await newTape(folder, { maxBytes, onFailure });
      const tap = tape.kubernetes.tap('nodes');
      tap.onStart();
      const names = noise(15 * 9000).match(/.{9000}/g) ?? [];
      for (const name of names) {
        tap.onEvent({ type: 'put', object: { metadata: { name, uid: '', resourceVersion: '' } } });
        tap.onApplied();
        await pass(1000);
      }
      await pass(60_000);
      expect(failures).toEqual(['one snapshot of the state needs more than --tape-size']);
      expect(tape.status().bytes).toBeLessThan(3 * maxBytes);
      expect((await readdir(folder)).length).toBeLessThan(4);
      await tape.stop();
    });
  });

  it('have snapshots with the steps of the last list only', async () => {
    await withFolder(async (folder) => {
      const { tape, pass } = await newTape(folder, { partMs: 2000 });
      const tap = tape.kubernetes.tap('nodes');
      tap.onStart();
      tap.onReceived();
      tap.onListed();
      tap.onStart();
      await pass(3000);
      await tape.stop();
      const second = gunzipSync(await readFile(join(folder, 'tape-000002.jsonl.gz'))).toString();
      expect([...second.matchAll(/"do":"(\w+)"/g)].map(([, step]) => step)).toEqual(['start']);
    });
  });

  it('do not begin with a snapshot each second if it is larger than a part (regression)', async () => {
    await withFolder(async (folder) => {
      const maxBytes = 64 << 10;
      const { tape, pass } = await newTape(folder, { maxBytes });
      const tap = tape.kubernetes.tap('nodes');
      tap.onStart();
      for (const name of noise(4 * 9000).match(/.{9000}/g) ?? [])
        tap.onEvent({ type: 'put', object: { metadata: { name, uid: '', resourceVersion: '' } } });
      tap.onApplied();
      await pass(60_000);
      expect(await readdir(folder)).toEqual(['tape-000001.jsonl.gz', 'tape-000002.jsonl.gz']);
      for (const change of noise(3 * 9000).match(/.{9000}/g) ?? []) {
        tape.note(change);
        await pass(1000);
      }
      expect((await readdir(folder)).at(-1)).toBe('tape-000003.jsonl.gz');
      await tape.stop();
      expect(tape.status()).toMatchObject({ lost: 0, failure: undefined });
    });
  });

  it('do not begin again while the disk has not written the snapshot (regression: one each second)', async () => {
    await withFolder(async (folder) => {
      const disk = new StuckDisk(folder);
      const clock = new ManualClock();
      const { tape } = await newTape(folder, { folder: disk, clock, maxBytes: 64 << 10 });
      tape.note(noise(30_000));
      await tape.flush();
      disk.stick();
      tape.note('waits for the disk');
      for (let second = 0; second < 5; second++) {
        clock.advance(1000);
        await new Promise((resolve) => setImmediate(resolve));
      }
      disk.release();
      await tape.stop();
      expect(await readdir(folder)).toEqual(['tape-000001.jsonl.gz', 'tape-000002.jsonl.gz']);
    });
  });

  it.each([
    { work: 'snapshot', method: 'keysOfWriters' },
    { work: 'digest', method: 'trackClaims' },
  ] as const)('have another $work after one has failed, which is in the status', async ({ work, method }) => {
    await withFolder(async (folder) => {
      const ipcache = new IPCache();
      const failures: (string | undefined)[] = [];
      const onFailure: TapeOptions['onFailure'] = (failure) => failures.push(failure?.message);
      const { tape, pass } = await newTape(folder, { ipcache, onFailure, partMs: 20_000 });
      const fail = vi.spyOn(ipcache, method).mockImplementationOnce(() => {
        throw new Error('a row is missing');
      });
      await pass(23_000);
      const failure = `cannot write a ${work}: a row is missing`;
      expect(failures[0]).toBe(failure);
      await pass(12_000);
      expect(fail.mock.calls.length).toBeGreaterThan(1);
      expect([failures, tape.status().failure]).toEqual([[failure, undefined], undefined]);
      await tape.stop();
      expect((await replayMesh(folder)).report).toMatchObject({ isComplete: true, cuts: [] });
    });
  });

  it('are closed if the last digest fails', async () => {
    await withFolder(async (folder) => {
      const ipcache = new IPCache();
      const { tape } = await newTape(folder, { ipcache });
      tape.note('the last line');
      vi.spyOn(ipcache, 'trackClaims').mockImplementation(() => {
        throw new Error('a row is missing');
      });
      await tape.stop();
      expect(tape.status().failure?.message).toContain('a row is missing');
      expect((await checkTape(folder, new AbortController().signal)).events).toBe(2);
    });
  });

  it('are not created after the stop (regression: a snapshot that waited for its turn began one)', async () => {
    await withFolder(async (folder) => {
      const turns: (() => void)[] = [];
      const nextTurn = (turn: () => void): void => void turns.push(turn);
      const gate = new TurnGate({ clock: { now: () => 0 }, nextTurn, weightPerTurn: 1 });
      const { tape, pass } = await newTape(folder, { gate, partMs: 2000 });
      await gate.pass(1);
      await pass(2000);
      await tape.stop();
      const { lines } = tape.status();
      for (let turn = turns.shift(); turn !== undefined; turn = turns.shift()) {
        turn();
        await tape.flush();
      }
      expect(await readdir(folder)).toEqual(['tape-000001.jsonl.gz']);
      expect(tape.status()).toMatchObject({ lines, lost: 0 });
    });
  });

  it('are written on if the listener of failures throws', async () => {
    await withFolder(async (folder) => {
      const onFailure = vi.fn(() => {
        throw new Error('the log is closed');
      });
      const { tape, disk, pass } = await newTape(folder, { onFailure });
      disk.isFull = true;
      tape.note('this does not reach the disk');
      await pass(3000);
      disk.isFull = false;
      await pass(12_000);
      await tape.stop();
      expect(onFailure).toHaveBeenCalledTimes(2);
      expect(tape.status().failure).toBe(undefined);
    });
  });

  it('are cut if the disk is too slow; no line of the cut reaches the old file', async () => {
    await withFolder(async (folder) => {
      const disk = new StuckDisk(folder);
      const clock = new ManualClock();
      const tape = new Tape({
        folder: disk,
        maxBytes: 1 << 24,
        settings: SETTINGS,
        version: '0.1.0',
        clock,
        gate: OPEN_GATE,
        ipcache: new IPCache(),
        onFailure: () => {},
      });
      tape.start();
      await tape.flush();
      disk.stick();
      for (let i = 0; i < 100 && tape.status().lost === 0; i++) tape.note(`${i}${'x'.repeat(1 << 20)}`);
      const { lost } = tape.status();
      tape.note('lost, too');
      expect(tape.status().lost).toBe(lost + 1);
      disk.release();
      for (let second = 0; second < 12; second++) {
        clock.advance(1000);
        await tape.flush();
        await new Promise((resolve) => setImmediate(resolve));
      }
      await tape.stop();
      const { cuts } = await checkTape(folder, new AbortController().signal);
      expect(cuts).toEqual([{ at: expect.stringContaining('tape-000002'), lost: expect.any(Number) }]);
      expect(cuts[0]?.lost).toBe(tape.status().lost);
    });
  });

  it('have gzip members of at most 1 MiB of text, each with whole lines; a longer line has one of its own', async () => {
    await withFolder(async (folder) => {
      const { tape } = await newTape(folder);
      for (let i = 0; i < 200; i++) tape.note('\u00e4'.repeat(20_000));
      tape.note('x'.repeat(2 << 20));
      tape.note('end');
      await tape.stop();
      const bytes = await readFile(join(folder, 'tape-000001.jsonl.gz'));
      const magic = Buffer.from([0x1f, 0x8b, 0x08]);
      const starts: number[] = [];
      for (let at = bytes.indexOf(magic); at >= 0; at = bytes.indexOf(magic, at + 1)) starts.push(at);
      const members = starts.map((from, i) => gunzipSync(bytes.subarray(from, starts[i + 1])).toString());
      expect(members.length).toBeGreaterThan(8);
      for (const member of members) expect(member.endsWith('\n')).toBe(true);
      const long = members.filter((member) => Buffer.byteLength(member) > 1 << 20);
      expect(long.map((member) => member.split('\n').length)).toEqual([2]);
    });
  });

  it('show their beginning as a recording of --load', async () => {
    await withFolder(async (folder) => {
      await tapeMesh(folder, [
        {
          do: 'write',
          cluster: 'a',
          key: 'cilium/state/ip/v1/default/10.0.0.1',
          value: { IP: '10.0.0.1', ID: 65_792 },
        },
      ]);
      const keys: string[] = [];
      const rejected: unknown[] = [];
      const file = join(folder, 'tape-000001.jsonl.gz');
      for await (const { store, key } of readRecordedKeys(file, (one) => rejected.push(one), 'own'))
        keys.push(`${store} ${key}`);
      expect(rejected).toEqual([]);
      expect(keys).toContain('a cilium/cluster-config/a');
      expect(keys).toContain('a cilium/state/ip/v1/default/10.0.0.1');
    });
  });

  it('are kept if a law of a mesh fails', async () => {
    await withFolder(async (folder) => {
      const law = async (script: Parameters<typeof I9_reconnectIsColdStart>[0]): Promise<void> => {
        await I9_reconnectIsColdStart(script);
        throw new Error('broken');
      };
      await expect(keepTape([], law, folder)).rejects.toThrow('broken');
      const [kept = ''] = await readdir(folder);
      expect((await replayMesh(join(folder, kept))).report.digests).toBeGreaterThan(0);
    });
  });
});
