import { describe, expect, it, vi } from 'vitest';
import { bytesOfText, textOfBytes } from '../../../src/kvstore/codec/bytes.ts';
import { prefixRange } from '../../../src/kvstore/codec/key-range.ts';
import { FaultyMemoryBackend } from '../../../src/kvstore/memory/faulty-memory-backend.ts';
import { MemoryBackend } from '../../../src/kvstore/memory/memory-backend.ts';
import { MemoryServer } from '../../../src/kvstore/memory/memory-server.ts';
import { MemoryTransport } from '../../../src/kvstore/memory/memory-transport.ts';
import {
  type LeaseID,
  NO_LEASE,
  type TxnResponse,
  type WriteOperation,
} from '../../../src/kvstore/session/transport.ts';
import { SyncStore } from '../../../src/kvstore/stores/sync-store.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { advance } from '../support/settle.ts';

it('a black hole ends each stream after 25 s (regression: sooner after another black hole, and never one that opened later)', async () => {
  const clock = new ManualClock();
  const { link } = new FaultyMemoryBackend({ clock });
  const ended: string[] = [];
  const open = (name: string): void => {
    const onEnd = (): void => void ended.push(`${name} at ${clock.now()}`);
    const silent = { onCreated: () => {}, onEvents: () => {}, onProgress: () => {} };
    link.watch({ prefix: 'p/', startRevision: 0 }, { ...silent, onEnd });
  };
  const start = clock.now();
  open('first');
  link.blackHole();
  await advance(clock, 10_000);
  link.up();
  link.blackHole();
  await advance(clock, 20_000);
  open('second');
  await advance(clock, 40_000);
  expect(ended).toEqual([`first at ${start + 35_000}`, `second at ${start + 55_000}`]);
  await link.close();
});

describe('a memory kvstore', () => {
  it.each([false, true])(
    'lets the event loop turn while 20,000 keys are published, batched: %s (regression: after all of them)',
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
      for (let i = 0; i < 20_000; i++) store.upsert(`${i}`, bytesOfText('1'));
      const ended = new AbortController();
      const running = store.run(ended.signal);
      const most = { written: 0, before: 0, turns: 0 };
      let isLanded = false;
      void store.whenFlushed().then(() => {
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
      expect(most.turns).toBeGreaterThan(19);
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

  describe('a change of many keys at one revision', () => {
    const KEYS = 40_000;
    /**
     * A step visits 512 keys, a turn has 8 steps. Each key is visited twice: when the change is planned and
     * when it is applied.
     */
    const TURNS = (2 * KEYS) / 4096 - 1;

    interface World {
      readonly clock: ManualClock;
      readonly server: MemoryServer;
      readonly open: () => MemoryTransport;
      readonly puts: (lease: LeaseID) => readonly WriteOperation[];
    }

    function world(isLeased = false): World {
      const clock = new ManualClock();
      const server = new MemoryServer({ clock });
      const value = bytesOfText('1');
      const bound = isLeased ? server.grantLease(10) : NO_LEASE;
      const puts = (of: LeaseID): readonly WriteOperation[] =>
        Array.from({ length: KEYS }, (_, i) => ({ op: 'put', key: `p/${i}`, value, lease: of }) as const);
      server.txn({ compare: [], writes: puts(bound) });
      return { clock, server, open: () => new MemoryTransport(server), puts };
    }

    /** Returns the number of turns of the event loop until the work is done. */
    async function turnsOf(work: Promise<unknown>, eachTurn: () => void = () => {}): Promise<number> {
      let isOver = false;
      void work.then(() => {
        isOver = true;
      });
      for (let turns = 0; ; turns++) {
        if (isOver) return turns;
        eachTurn();
        await new Promise((resolve) => setImmediate(resolve));
      }
    }

    it('takes many turns, and no reader or writer comes between (regression: deletePrefix took one turn)', async () => {
      const { open, server } = world();
      const [writer, reader] = [open(), open()];
      const seen: Promise<string>[] = [];
      const see = async (): Promise<string> => {
        const { count, kvs, header } = await reader.range({ ...prefixRange('p/'), limit: 1 });
        return `${count} ${kvs.length} at ${header.revision}`;
      };
      const deleted = writer.txn({ compare: [], writes: [{ op: 'delete', range: prefixRange('p/') }] });
      const turns = await turnsOf(deleted, () => {
        if (seen.length < 5) seen.push(see());
      });
      expect(turns).toBeGreaterThan(TURNS);
      expect(await deleted).toMatchObject({ succeeded: true, deleted: KEYS, header: { revision: 3 } });
      // The first read was requested before the change began.
      const answers = await Promise.all(seen);
      expect([...new Set(answers)].filter((answer) => answer !== `${KEYS} 1 at 2`)).toEqual(['0 0 at 3']);
      expect(answers.at(-1)).toBe('0 0 at 3');
      expect(server.idle).toBeUndefined();
    });

    it('is completed at once for a caller that cannot wait', async () => {
      const { open, server } = world();
      const deleted = open().txn({ compare: [], writes: [{ op: 'delete', range: prefixRange('p/') }] });
      await new Promise((resolve) => setImmediate(resolve));
      expect([server.header.revision, server.idle === undefined]).toEqual([2, false]);
      expect(server.range(prefixRange('p/'))).toMatchObject({ count: 0, header: { revision: 3 } });
      expect(await deleted).toMatchObject({ deleted: KEYS });
    });

    it('lets writers wait in their order', async () => {
      const { open } = world();
      const writer = open();
      const put = (text: string): Promise<TxnResponse> =>
        writer.txn({
          compare: [],
          writes: [{ op: 'put', key: 'p/0', value: bytesOfText(text), lease: NO_LEASE }],
        });
      const deleted = writer.txn({ compare: [], writes: [{ op: 'delete', range: prefixRange('p/') }] });
      const [first, second] = [put('first'), put('second')];
      const revisions = (await Promise.all([deleted, first, second])).map(({ header }) => header.revision);
      expect(revisions).toEqual([3, 4, 5]);
      const { kvs } = await writer.range(prefixRange('p/'));
      expect(kvs.map(({ key, value, createRevision }) => [key, textOfBytes(value), createRevision])).toEqual([
        ['p/0', 'second', 4],
      ]);
    });

    it('takes many turns if a lease expires, and deletes none of its keys that have another lease by then', async () => {
      const { clock, open, server, puts } = world(true);
      const client = open();
      const other = server.grantLease(60);
      const rebound = client.txn({ compare: [], writes: puts(other).slice(0, KEYS / 2) });
      await new Promise((resolve) => setImmediate(resolve));
      expect(server.idle).toBeDefined();
      clock.advance(10_000); // while the keys are being bound to the other lease
      await rebound;
      const left = client.range({ ...prefixRange('p/'), limit: 1 });
      expect(await turnsOf(left)).toBeGreaterThan(TURNS / 4);
      expect(await left).toMatchObject({ count: KEYS / 2, header: { revision: 4 } });
      expect(server.leases).toEqual([other]);
      clock.advance(60_000);
      expect(await client.range({ ...prefixRange('p/'), limit: 1 })).toMatchObject({ count: 0 });
    });

    it('is rejected if its lease expires before it begins', async () => {
      const { clock, open, server, puts } = world();
      const client = open();
      const brief = server.grantLease(1);
      const deleted = client.txn({ compare: [], writes: [{ op: 'delete', range: prefixRange('p/') }] });
      const put = client.txn({ compare: [], writes: puts(brief).slice(0, 1) });
      await new Promise((resolve) => setImmediate(resolve));
      clock.advance(1000);
      await expect(put).rejects.toMatchObject({ code: 'lease-not-found' });
      expect(await deleted).toMatchObject({ deleted: KEYS });
    });

    it('takes many turns to forget, after a compaction', async () => {
      const { open, server } = world();
      const client = open();
      await client.txn({ compare: [], writes: [{ op: 'delete', range: prefixRange('p/') }] });
      server.compact();
      const read = client.range(prefixRange('p/'));
      expect(await turnsOf(read)).toBeGreaterThan(TURNS / 2);
      expect(await read).toMatchObject({ count: 0 });
      expect(server.snapshot().store.versions.size).toBe(0);
    });
  });

  it('reports a failure in a later turn as a KvstoreError, like one in the same turn (regression: the bare error)', async () => {
    const server = new MemoryServer({ clock: new ManualClock() });
    const transport = new MemoryTransport(server);
    const broken = new TypeError('broken');
    const isInternal = expect.objectContaining({ name: 'KvstoreError', code: 'internal', cause: broken });
    const txn = vi.spyOn(server, 'txnInTurns');
    txn.mockRejectedValueOnce(broken);
    await expect(transport.txn({ compare: [], writes: [] })).rejects.toEqual(isInternal);
    txn.mockImplementationOnce(() => {
      throw broken;
    });
    await expect(transport.txn({ compare: [], writes: [] })).rejects.toEqual(isInternal);
  });
});
