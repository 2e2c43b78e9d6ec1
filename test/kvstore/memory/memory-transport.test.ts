import { describe, expect, it } from 'vitest';
import { bytesOfText } from '../../../src/kvstore/codec/bytes.ts';
import { prefixRange } from '../../../src/kvstore/codec/key-range.ts';
import { MemoryBackend } from '../../../src/kvstore/memory/memory-backend.ts';
import { MemoryServer } from '../../../src/kvstore/memory/memory-server.ts';
import { MemoryTransport } from '../../../src/kvstore/memory/memory-transport.ts';
import { SyncStore } from '../../../src/kvstore/stores/sync-store.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';

describe('a memory kvstore', () => {
  it.each([false, true])(
    'lets the event loop turn while 100,000 keys are published, batched: %s (regression: after all of them)',
    async (batched) => {
      const clock = new ManualClock();
      const backend = new MemoryBackend({ clock, random: () => 0.5 });
      const store = new SyncStore({
        backend,
        prefix: 'p/',
        clock,
        random: () => 0.5,
        batched,
        follow: false,
      });
      for (let i = 0; i < 100_000; i++) store.upsert(`${i}`, bytesOfText('1'));
      const ended = new AbortController();
      const running = store.run(ended.signal);
      const most = { written: 0, before: 0, turns: 0 };
      let isLanded = false;
      void store.flushed().then(() => {
        isLanded = true;
      });
      while (!isLanded) {
        await new Promise((resolve) => setImmediate(resolve));
        const { writes } = store.status();
        most.written = Math.max(most.written, writes - most.before);
        most.before = writes;
        most.turns++;
      }
      expect(most.written).toBeLessThanOrEqual(1024);
      expect(most.turns).toBeGreaterThan(97);
      ended.abort();
      await running;
      await backend.close();
    },
  );

  it('lists 100,000 keys, and delivers a revision that deletes them, over many turns (regression: each in one turn)', async () => {
    const server = new MemoryServer({ clock: new ManualClock() });
    const transport = new MemoryTransport(server);
    const value = bytesOfText('1');
    const puts = Array.from(
      { length: 100_000 },
      (_, i) => ({ op: 'put', key: `p/${i}`, value, lease: '0' }) as const,
    );
    server.txn({ compare: [], writes: puts });
    let turns = 0;
    let isOver = false;
    const counting = (async () => {
      for (; !isOver; turns++) await new Promise((resolve) => setImmediate(resolve));
    })();

    const all = transport.range(prefixRange('p/'));
    await Promise.resolve();
    server.txn({
      compare: [],
      writes: [{ op: 'put', key: 'p/99999', value: bytesOfText('later'), lease: '0' }],
    });
    const { kvs, more, count, header } = await all;
    expect([kvs.length, more, count, header.revision]).toEqual([100_000, false, 100_000, 2]);
    expect(kvs.every((kv) => kv.modRevision === 2)).toBe(true);
    expect(new Set(kvs.map(({ key }) => key)).size).toBe(100_000);
    expect(turns).toBeGreaterThan(20);
    const part = await transport.range({ ...prefixRange('p/'), limit: 5000 });
    expect([part.kvs.length, part.more]).toEqual([5000, true]);

    const delivered = { events: 0, most: 0, inTurn: 0, turn: 0, whole: 0 };
    await new Promise<void>((resolve) => {
      transport.watch(
        { prefix: 'p/', startRevision: 4 },
        {
          onCreated: () => server.txn({ compare: [], writes: [{ op: 'delete', range: prefixRange('p/') }] }),
          onEvents: (events, _header, isPartial) => {
            if (delivered.turn !== turns) Object.assign(delivered, { turn: turns, inTurn: 0 });
            delivered.inTurn += events.length;
            delivered.most = Math.max(delivered.most, delivered.inTurn);
            delivered.events += events.length;
            if (isPartial !== true) {
              delivered.whole++;
              resolve();
            }
          },
          onProgress: () => {},
          onEnd: () => {},
        },
      );
    });
    expect([delivered.events, delivered.whole]).toEqual([100_000, 1]);
    expect(delivered.most).toBeLessThanOrEqual(8192);
    isOver = true;
    await counting;
    await transport.close();
  });
});
