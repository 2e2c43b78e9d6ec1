import { crc32 } from 'node:zlib';
import { expect, it } from 'vitest';
import { History } from '../../src/history/history.ts';
import { IPCache } from '../../src/ipcache/ipcache.ts';
import { ManualClock } from '../base/support/manual-clock.ts';
import { FIXED_SUM, mutated, random, readAll } from '../history/support/fuzz.ts';
import { H2_aCertainAnswerIsRight } from '../history/support/lives.ts';
import { MemoryFolder } from '../restore/support/memory-folder.ts';

const MIB = 1 << 20;

/** Ranges of worlds, so that a run that was interrupted continues with `-t 'range 7'`. */
const RANGES = 20;

it.each(Array.from({ length: RANGES }, (_, index) => index + 1))(
  'H2: a certain answer is right in 100,000 worlds, range %i of 5,000',
  async (range) => {
    await H2_aCertainAnswerIsRight(5_000, range);
  },
);

it('H5: 10,000,000 changes stay below the settings of memory and disk', async () => {
  const clock = new ManualClock();
  const cache = new IPCache();
  const folder = new MemoryFolder();
  const disk = { folder, maxBytes: 8 * MIB, checksum: (bytes: Uint8Array) => crc32(bytes) };
  const history = new History({ ipcache: cache, clock, memory: 4 * MIB, disk });
  await history.open();
  history.start();
  for (let i = 0; i < 10_000_000; i++) {
    if (i % 10 === 0) clock.advance(1);
    cache.upsert(`10.0.${(i >> 8) & 255}.${i & 255}`, { source: 'kvstore', identity: 256 + (i % 50_000) });
    if (i % 10_000 !== 0) continue;
    await history.flush();
    const { bytes } = history.status();
    expect(bytes).toBeLessThanOrEqual(4 * MIB);
    const size = [...folder.files.values()].reduce((sum, { length }) => sum + length, 0);
    expect(size).toBeLessThanOrEqual(8 * MIB);
  }
  expect(history.status()).toMatchObject({ disk: { damaged: 0, failure: undefined }, lost: { rate: 0 } });
});

it('1,000,000 mutated segments are torn, damaged or of a later version, never something else', async () => {
  for (const checked of [true, false]) {
    const clock = new ManualClock();
    const cache = new IPCache();
    const folder = new MemoryFolder();
    const checksum = checked ? (bytes: Uint8Array): number => crc32(bytes) : (): number => FIXED_SUM;
    const history = new History({
      ipcache: cache,
      clock,
      memory: 256 << 10,
      disk: { folder, maxBytes: MIB, checksum },
    });
    await history.open();
    history.start();
    for (let i = 0; i < 40; i++) {
      clock.advance(1);
      cache.upsert(`10.0.0.${i % 7}`, {
        source: 'k8s',
        identity: i,
        k8s: { namespace: 'a', podName: `b-${i}` },
      });
      if (i % 9 === 0) await history.flush();
    }
    history.recordDocument('node', 'a/n1', 'k8s', { before: undefined, after: { name: 'n1' } });
    await history.flush();
    const [bytes = new Uint8Array()] = folder.files.values();
    const next = random(checked ? 3 : 4);
    for (let i = 0; i < 500_000; i++) readAll(mutated(bytes, next), checked);
  }
});
