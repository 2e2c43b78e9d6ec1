import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { KvstoreError } from '../../src/kvstore/errors.ts';
import { keyRange } from '../../src/kvstore/key-range.ts';
import { ManualClock } from '../base/support/manual-clock.ts';
import { FaultyMemory } from './support/faulty-memory.ts';
import { advance, settle } from './support/settle.ts';

const PATH = 'locks/a';

describe('the locks of one client', () => {
  let clock: ManualClock;
  let backend: FaultyMemory;
  beforeEach(() => {
    clock = new ManualClock();
    backend = new FaultyMemory({ clock, random: () => 0.5 });
  });
  afterEach(() => backend.close());

  const failNextDelete = (): void => {
    const { link } = backend;
    const txn = link.txn.bind(link);
    link.txn = (request, options) => {
      if (!request.writes.some(({ op }) => op === 'delete')) return txn(request, options);
      link.txn = txn;
      return Promise.reject(new KvstoreError('unavailable', 'connection reset'));
    };
  };

  it('who gives up waiting lets nobody pass who came later (regression: two held one lock)', async () => {
    const first = await backend.lock(PATH);
    const controller = new AbortController();
    const second = backend.lock(PATH, { signal: controller.signal });
    controller.abort();
    await expect(second).rejects.toMatchObject({ code: 'aborted' });
    let isHeld = false;
    const third = backend.lock(PATH).then((lock) => {
      isHeld = true;
      return lock;
    });
    await settle(4);
    expect(isHeld).toBe(false);
    await first.release();
    await (await third).release();
    expect(backend.server.range(keyRange(first.key)).count).toBe(0);
  });

  it('a key that could not be deleted is not deleted under the next holder (regression: another client got in)', async () => {
    failNextDelete();
    await (await backend.lock(PATH)).release();
    const next = await backend.lock(PATH);
    await advance(clock, 10_000);
    expect(backend.server.range(keyRange(next.key)).count).toBe(1);
    await next.release();
    expect(backend.server.range(keyRange(next.key)).count).toBe(0);
  });

  it('closing ends those who wait behind a holder (regression: they waited for ever)', async () => {
    await backend.lock(PATH);
    const waiting = backend.lock(PATH);
    await settle();
    await backend.close();
    await expect(waiting).rejects.toMatchObject({ code: 'aborted' });
  });
});
