import { open, readdir, stat, truncate, utimes } from 'node:fs/promises';
import { join } from 'node:path';
import { crc32 } from 'node:zlib';
import { expect, it, onTestFinished } from 'vitest';
import { StateFiles } from '../../src/agent/state-files.ts';
import type { StateFolder } from '../../src/base/files/state-folder.ts';
import { History } from '../../src/history/history.ts';
import type { PrefixMoment } from '../../src/history/types.ts';
import { IPCache } from '../../src/ipcache/ipcache.ts';
import { temporaryFolder } from '../agent/support/temporary-folder.ts';
import { ManualClock } from '../base/support/manual-clock.ts';
import { MemoryFolder } from '../restore/support/memory-folder.ts';

const KEY = '10.9.0.1';

interface Stored {
  readonly history: History;
  /** Asks for the oldest moment, which reads all segments, and returns the answer and the number of verified bytes. */
  ask(): Promise<{ readonly moment: PrefixMoment | undefined; readonly verified: number }>;
}

/** Returns a history with a change of {@link KEY} in each of many stored segments; most are no longer in memory. */
async function stored(folder: StateFolder): Promise<Stored> {
  const clock = new ManualClock();
  const cache = new IPCache();
  let verified = 0;
  const checksum = (bytes: Uint8Array): number => {
    verified += bytes.length;
    return crc32(bytes);
  };
  const disk = { folder, maxBytes: 4 << 20, checksum };
  const history = new History({ ipcache: cache, clock, memory: 256 << 10, disk });
  await history.open();
  history.start();
  for (let i = 0; i < 8000; i++) {
    if (i % 10 === 0) clock.advance(1);
    const k8s = { namespace: 'shop', podName: `checkout-${'x'.repeat(60)}${i}-${i}` }; // segments are full soon
    const key = i % 50 === 0 ? KEY : `10.0.${i >> 8}.${i & 255}`;
    cache.upsert(key, { source: 'kvstore', identity: 300 + i, k8s });
    if (i % 200 === 0) await history.flush();
  }
  await history.flush();
  onTestFinished(() => history.close());
  const { from } = history.past.retained;
  return {
    history,
    ask: async () => {
      verified = 0;
      return { moment: await history.past.at(KEY, from + 1), verified };
    },
  };
}

it('verifies the checksums of a segment once, because a file with the same inode and times has not changed', async () => {
  const { ask } = await stored(new StateFiles(temporaryFolder({})));
  const first = await ask();
  const second = await ask();
  expect(first.verified).toBeGreaterThan(100_000);
  expect(second.verified).toBe(0);
  expect(first.moment).toMatchObject({ certain: true });
  expect({ ...second.moment, retained: undefined }).toEqual({ ...first.moment, retained: undefined });
});

it('verifies the segments at each question if the folder has no versions of files', async () => {
  const { ask } = await stored(new MemoryFolder());
  const first = await ask();
  expect(first.verified).toBeGreaterThan(100_000);
  expect((await ask()).verified).toBe(first.verified);
});

it('reads a file into more buffers than one call of the system takes, and no further than it goes', async () => {
  const folder = new StateFiles(temporaryFolder({ file: 'abc'.repeat(1000) }));
  const file = await folder.open('file');
  onTestFinished(() => file?.close());
  const parts = Array.from({ length: 2999 }, () => new Uint8Array(1));
  expect(await file?.readParts?.(parts, 1)).toBe(2999);
  expect(Buffer.concat(parts).toString()).toBe('abc'.repeat(1000).slice(1));
  expect(await file?.readParts?.(parts, 2)).toBe(2998);
});

const damages = {
  changed: async (path: string, size: number) => {
    const file = await open(path, 'r+');
    const byte = new Uint8Array(1);
    await file.read(byte, 0, 1, size / 2);
    await file.write(Uint8Array.of((byte[0] ?? 0) ^ 1), 0, 1, size / 2);
    await file.close();
  },
  torn: (path: string, size: number) => truncate(path, size / 2),
} as const;

for (const [name, damage] of Object.entries(damages)) {
  it(`notices a segment that was ${name} after it was verified, even if its time was set back`, async () => {
    const path = temporaryFolder({});
    const { history, ask } = await stored(new StateFiles(path));
    await ask();
    expect((await ask()).moment).toMatchObject({ certain: true });
    const files = (await readdir(path)).sort();
    const file = join(path, files[8] ?? '');
    const { size, atime, mtime } = await stat(file);
    await damage(file, Math.floor(size / 2) * 2);
    await utimes(file, atime, mtime);
    expect((await ask()).moment).toMatchObject({ certain: false, reason: 'lost' });
    expect(history.status().disk).toMatchObject({ damaged: 1 });
  });
}
