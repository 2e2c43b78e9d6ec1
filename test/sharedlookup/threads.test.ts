import { once } from 'node:events';
import { describe, expect, it } from 'vitest';
import { IPCache } from '../../src/ipcache/ipcache.ts';
import { SharedLookup } from '../../src/sharedlookup/shared-lookup.ts';
import { openLookup } from '../../src/sharedlookup/shared-reader.ts';
import { checkedReader, checkInThreads, NumberedBatches, startWorker } from './support/checked-threads.ts';
import { bundlePatched } from './support/patched.ts';

describe('lookups in three workers while batches are written', () => {
  it('are never torn or stale, and see all of a batch or nothing', async () => {
    const reports = await checkInThreads(await checkedReader(), { workers: 3, pairs: 50_000, keys: 64 });
    for (const { faults, lookups, revisions } of reports) {
      expect(faults).toEqual([]);
      expect(lookups).toBeGreaterThanOrEqual(200_000);
      expect(revisions).toBeGreaterThanOrEqual(100);
    }
  });

  it('are torn or stale if readers do not check the sequence', async () => {
    const mutant = await checkedReader({
      file: 'shared-reader.ts',
      text: 'return isRecent(batch, started) &&',
      by: 'return started >= 0 &&',
    });
    const found = async (): Promise<number> => {
      const reports = await checkInThreads(mutant, { workers: 3, pairs: 100_000, keys: 64 });
      return reports.flatMap(({ faults }) => faults).length;
    };
    await expect.poll(found, { timeout: 100_000 }).toBeGreaterThan(0);
  });
});

const LOOPING = `
import { parentPort, workerData } from 'node:worker_threads';
import { openLookup } from './shared-reader.ts';
const reader = openLookup(workerData);
parentPort.postMessage('reading');
for (let i = 0; !reader.closed; i++) reader.lookupIdentity(0x0a000000 + (i & 63));
parentPort.postMessage([reader.closed, reader.lookupIdentity(0x0a000001), reader.revision]);
`;

describe('a worker that reads', () => {
  it('continues with the last state after the writer was closed', async () => {
    const batches = new NumberedBatches(64);
    const worker = startWorker(await bundlePatched(LOOPING), batches.lookup.handle);
    await once(worker, 'message');
    for (let i = 0; i < 100; i++) batches.write();
    const { revision } = batches.cache;
    batches.lookup.close();
    batches.write(); // readers do not see it
    const [last] = await once(worker, 'message');
    expect(last).toEqual([true, revision, revision]);
    await worker.terminate();
  });

  it('has no effect on others if it dies within a read', async () => {
    const batches = new NumberedBatches(64);
    const program = await bundlePatched(LOOPING);
    const reader = openLookup(batches.lookup.handle);
    for (let i = 0; i < 10; i++) batches.write();
    const { bytes } = batches.lookup.status();
    for (let round = 0; round < 5; round++) {
      const worker = startWorker(program, batches.lookup.handle);
      await once(worker, 'message');
      for (let i = 0; i < 20; i++) batches.write();
      await worker.terminate();
      for (let i = 0; i < 20; i++) batches.write();
      expect(reader.lookupIdentity('10.0.0.1')).toBe(batches.cache.revision);
    }
    expect(batches.lookup.status().bytes).toBeLessThan(1.1 * bytes);
    batches.lookup.close();
  });

  it('maps memory that was added after it had started, without a message', async () => {
    const cache = new IPCache();
    const lookup = new SharedLookup(cache, { maxBytes: 1 << 25 });
    const program = `
      import { parentPort, workerData } from 'node:worker_threads';
      import { openLookup } from './shared-reader.ts';
      const reader = openLookup(workerData);
      parentPort.postMessage('reading');
      while (reader.size < 200_000) ;
      let found = 0;
      for (let i = 0; i < 200_000; i++) if (reader.lookupIdentity(0x0a000000 + i) === i) found++;
      parentPort.postMessage(found);
    `;
    const worker = startWorker(await bundlePatched(program), lookup.handle);
    await once(worker, 'message');
    const before = lookup.handle.buffer.byteLength;
    for (let i = 0; i < 200_000; i++)
      cache.upsert(`10.${i >>> 16}.${(i >>> 8) & 255}.${i & 255}`, { identity: i, source: 'k8s' });
    const [found] = await once(worker, 'message');
    expect(found).toBe(200_000);
    expect(lookup.handle.buffer.byteLength).toBeGreaterThan(2 * before);
    await worker.terminate();
  });
});
