import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { RejectionLog, rejection } from '../../../src/base/rejection.ts';
import { TurnGate } from '../../../src/base/turn-gate.ts';
import { bytesOfText, textOfBytes } from '../../../src/kvstore/codec/bytes.ts';
import { FaultyMemoryBackend } from '../../../src/kvstore/memory/faulty-memory-backend.ts';
import type { Watch, WatchEvent, WatchOptions, WatchStatus } from '../../../src/kvstore/session/backend.ts';
import { KeyTable } from '../../../src/kvstore/session/key-table.ts';
import { TableEvent } from '../../../src/kvstore/session/table-event.ts';
import { NO_LEASE } from '../../../src/kvstore/session/transport.ts';
import { WireKeyValue } from '../../../src/kvstore/session/wire-key-value.ts';
import { type StoreObserver, WatchStore } from '../../../src/kvstore/stores/watch-store.ts';
import { bytesInUse } from '../../base/support/garbage.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { advance, settle } from '../support/settle.ts';

const P = 'p/';

describe('a watch store', () => {
  let clock: ManualClock;
  let backend: FaultyMemoryBackend;
  let rejections: RejectionLog;
  let story: string[];
  let ended: AbortController;
  let running: Promise<unknown>;

  const observer: StoreObserver<string> = {
    onUpdate: (name, value) => story.push(`${name}=${value}`),
    onDelete: (name) => story.push(`${name} gone`),
  };

  /** Values that begin with `bad` are rejected, with `throw` the decoder throws. */
  const newStore = (observe: StoreObserver<string> = observer, onFault = vi.fn()): WatchStore<string> =>
    new WatchStore({
      observer: observe,
      rejections,
      onFault,
      decode: (_name, value, at) => {
        const text = textOfBytes(value) ?? '';
        if (text === 'throw') throw new Error('a broken decoder');
        if (!text.startsWith('bad')) return { ok: true, value: text };
        return { ok: false, rejection: rejection('bad', 'value', text, 'it is bad', at) };
      },
    });

  const start = async (store: WatchStore<string>, from = backend): Promise<void> => {
    ended = new AbortController();
    running = store.run({ backend: from, prefix: P, signal: ended.signal });
    await settle(4);
  };
  const stop = async (): Promise<void> => {
    ended.abort();
    await running;
  };
  const put = async (name: string, value: string): Promise<void> => {
    await backend.update(P + name, bytesOfText(value));
    await settle(4);
  };

  beforeEach(() => {
    clock = new ManualClock();
    backend = new FaultyMemoryBackend({ clock });
    rejections = new RejectionLog();
    story = [];
  });
  afterEach(async () => {
    await stop();
    await backend.close();
  });

  it('delivers existing keys, then changes, and counts them', async () => {
    await put('a', '1');
    const store = newStore();
    expect(store.status()).toMatchObject({ keys: 0, synced: false, watch: undefined });
    await start(store);
    await store.synced;
    await put('b', '2');
    await put('a', '3');
    await backend.delete(`${P}b`);
    await settle(4);
    expect(story).toEqual(['a=1', 'b=2', 'a=3', 'b gone']);
    expect(store.status()).toMatchObject({ keys: 1, synced: true, updates: 3, deletes: 1, rejected: 0 });
    expect(store.isSynced).toBe(true);
    expect(store.cursor).toBe(backend.server.header.revision + 1);
  });

  it('a key that takes the row of a deleted one while both wait is delivered as itself', async () => {
    await put('z', '0');
    const store = newStore();
    let allow: (isAllowed: boolean) => void = () => {};
    const mayDelete = (): Promise<boolean> =>
      new Promise((resolve) => {
        allow = resolve;
      });
    ended = new AbortController();
    running = store.run({ backend, prefix: P, signal: ended.signal, mayDelete });
    await settle(4);
    await backend.delete(`${P}z`);
    await settle(4);
    await put('a', '1');
    await backend.delete(`${P}a`);
    await put('b', '2'); // reuses the free row of `a`
    allow(true);
    await settle(4);
    allow(true);
    await settle(4);
    expect(story).toEqual(['z=0', 'z gone', 'a=1', 'a gone', 'b=2']);
    expect(store.size).toBe(1);
    await backend.delete(`${P}b`);
    await settle(4);
    allow(true);
    await settle(4);
    expect([story.at(-1), store.size]).toEqual(['b gone', 0]);
  });

  it('a key whose value is rejected is absent, until it is accepted again', async () => {
    const store = newStore();
    await start(store);
    await put('a', '1');
    await put('a', 'bad');
    await put('b', 'bad');
    expect(story).toEqual(['a=1', 'a gone']);
    expect(store.status()).toMatchObject({ keys: 0, rejected: 2 });
    expect(rejections.status().total).toBe(2);
    await put('a', '2');
    await backend.delete(`${P}b`);
    await settle(4);
    expect(story).toEqual(['a=1', 'a gone', 'a=2']);
    expect(store.status()).toMatchObject({ keys: 1, rejected: 0 });
  });

  it('a key with a name of more than 4,096 characters is rejected, and absent after its delete in a run or between two', async () => {
    const store = newStore();
    const [longest, one, two] = ['n'.repeat(4096), 'é'.repeat(4097), 'n'.repeat(4097)];
    await start(store);
    for (const name of [longest, one, two, two]) await put(name, '1');
    expect(story).toEqual([`${longest}=1`]);
    expect(store.status()).toMatchObject({ keys: 1, rejected: 2 });
    expect(rejections.status()).toMatchObject({ total: 3, byReason: { 'invalid-key': 3 } });
    await backend.delete(P + one);
    await settle(4);
    expect(store.status()).toMatchObject({ keys: 1, rejected: 1, faults: 0 });
    await stop();
    await backend.delete(P + longest);
    await backend.delete(P + two);
    await start(store);
    expect(story.slice(1)).toEqual([`${longest} gone`]);
    expect(store.status()).toMatchObject({ keys: 0, rejected: 0 });
  });

  it('keeps little of 200 keys of 1.2 MB in memory (regression: twice their size, which was copied again and again)', async () => {
    const store = newStore();
    const count = 200;
    const batches = async function* (keys: KeyTable): AsyncGenerator<readonly WatchEvent[], void, void> {
      for (let revision = 1; revision <= count; revision++) {
        const key = Buffer.alloc(1_200_000, `${P}${revision}/`);
        const kv = new WireKeyValue(key, 0, key.length, key.length, key.length, revision, revision);
        const row = keys.add(kv, P.length);
        keys.setVersion(row, revision, 0);
        yield [new TableEvent('create', kv, row)];
      }
      yield [{ type: 'list-done', key: '', value: bytesOfText(''), modRevision: count }];
    };
    const status = () => ({ state: 'watching', nextRevision: count + 1, queuedBytes: 0 }) as WatchStatus;
    const watch = (_prefix: string, { keys = new KeyTable() }: WatchOptions = {}): Watch =>
      Object.assign(batches(keys), { status });
    const before = await bytesInUse();
    ended = new AbortController();
    running = store.run({ backend: { watch }, prefix: P, signal: ended.signal });
    await running;
    expect([store.isSynced, store.rejected]).toEqual([true, count]);
    // The last 16 rejections, which are cut texts, may keep their keys in memory.
    expect((await bytesInUse()) - before).toBeLessThan(60e6);
  });

  it('deletes in its next run the keys that the complete list of that run does not contain', async () => {
    const store = newStore();
    for (const name of ['a', 'b']) await put(name, '1');
    await start(store);
    await stop();
    await backend.delete(`${P}b`);
    await put('c', '1');
    expect(story).toEqual(['a=1', 'b=1']);
    await start(store);
    expect(story.slice(2)).toEqual(['a=1', 'c=1', 'b gone']);
    expect(store.status().watch?.state).toBe('watching');
  });

  it('forgets its rejected values when a run ends', async () => {
    await put('a', 'bad');
    const store = newStore();
    await start(store);
    await stop();
    await backend.delete(`${P}a`);
    await start(store);
    expect(store.status().rejected).toBe(0);
  });

  describe('with many keys behind a gate', () => {
    /** Names that were deleted in each batch. */
    let deleted: number[];
    let msPerDelete: number;
    let turns: (() => void)[];
    let store: WatchStore<string>;

    const fill = (from: FaultyMemoryBackend, names: number): void => {
      for (let i = 0; i < names; i++) {
        const write = { op: 'put', key: `${P}${i}`, value: bytesOfText('1'), lease: NO_LEASE } as const;
        from.server.txn({ compare: [], writes: [write] });
      }
    };
    /** Runs turns of the event loop until none is requested or `count` are over. */
    const turn = async (count = 1000): Promise<void> => {
      for (let i = 0; i < count && turns.length > 0; i++) {
        for (const callback of turns.splice(0)) callback();
        await settle();
      }
    };

    beforeEach(async () => {
      deleted = [];
      msPerDelete = 0;
      turns = [];
      const counting: StoreObserver<string> = {
        onUpdate: () => {},
        onDelete: () => {
          deleted.push((deleted.pop() ?? 0) + 1);
          clock.advance(msPerDelete);
        },
        batch: (apply) => {
          deleted.push(0);
          apply();
        },
      };
      const nextTurn = (callback: () => void): number => turns.push(callback);
      const gate = new TurnGate({ clock, nextTurn });
      const decode = (): { ok: true; value: string } => ({ ok: true, value: '' });
      store = new WatchStore({ observer: counting, rejections, gate, decode });
      fill(backend, 20_000);
      await start(store);
      await turn();
      expect(store.status()).toMatchObject({ keys: 20_000, synced: true });
    });

    /** Continues with an empty kvstore. */
    const emptied = async (onListed?: () => void): Promise<void> => {
      await stop();
      deleted = [];
      ended = new AbortController();
      const empty = new FaultyMemoryBackend({ clock });
      running = store.run({ backend: empty, prefix: P, signal: ended.signal, onListed });
      await settle(4);
    };

    it('drains 256 of 20,000 at a time, eight slices in a turn (freeze: all in one batch)', async () => {
      await stop();
      deleted = [];
      let isDrained = false;
      void store.drain().then((all) => {
        isDrained = all;
      });
      expect(store.isSynced).toBe(false);
      for (let before = 20_000; store.size > 0; before = store.size) {
        await turn(1);
        expect(before - store.size).toBeLessThanOrEqual(8 * 256 + 256);
      }
      expect(isDrained).toBe(true);
      expect([Math.max(...deleted), deleted.length]).toEqual([256, 79]);
    });

    it('ends a slice of a drain after 2 ms if the observer is slow (freeze: 256 deletes of any duration)', async () => {
      await stop();
      deleted = [];
      msPerDelete = 0.25;
      void store.drain();
      await turn(100);
      expect([Math.max(...deleted), store.size < 19_000]).toEqual([8, true]);
    });

    it('leaves the remainder of an aborted drain to the next one', async () => {
      await stop();
      const aborted = new AbortController();
      const drained = store.drain(aborted.signal);
      await turn(2);
      aborted.abort();
      expect(await drained).toBe(false);
      const { size } = store;
      await turn();
      expect(size).toBeGreaterThan(5000);
      expect(store.size).toBe(size);
      const rest = store.drain();
      await turn();
      expect([await rest, store.size, store.status().deletes]).toEqual([true, 0, 20_000]);
    });

    it('sweeps 256 of 20,000 at a time, and is complete after that (freeze: all in one batch)', async () => {
      let listed = 0;
      await emptied(() => void listed++);
      await turn(2);
      expect(store.size).toBeGreaterThan(5000);
      expect(listed).toBe(0);
      await turn();
      expect([store.size, listed, Math.max(...deleted)]).toEqual([0, 1, 256]);
    });

    it('leaves the remainder of an interrupted sweep to the next run', async () => {
      await emptied();
      await turn(2);
      const { size } = store;
      await emptied();
      expect(size).toBeGreaterThan(5000);
      await turn();
      expect([store.size, store.status().deletes]).toEqual([0, 20_000]);
    });

    it('does not examine all 20,000 names in one turn to sweep none', async () => {
      await stop();
      deleted = [];
      await start(store);
      await turn();
      expect(deleted.reduce((sum, each) => sum + each, 0)).toBe(0);
      // The list was delivered in batches of at most 1,000; three more batches scanned 8,192 names each.
      expect(deleted.length).toBeGreaterThan(20 + 2);
    });
  });

  it('drains as one batch without a gate, and is not synced then', async () => {
    const batches: string[][] = [];
    const store = newStore({
      ...observer,
      batch: (apply) => {
        story = [];
        apply();
        batches.push(story);
      },
    });
    for (const name of ['a', 'b']) await put(name, '1');
    await put('c', 'bad');
    await start(store);
    expect(store.rejected).toBe(1);
    expect(() => store.drain()).toThrow('drain must not be called while the store is running');
    await expect(store.run({ backend, prefix: P, signal: ended.signal })).rejects.toThrow('running already');
    await stop();
    await store.drain();
    expect(batches.at(-1)).toEqual(['a gone', 'b gone']);
    expect([store.isSynced, store.size, store.rejected]).toEqual([false, 0, 0]);
    await start(store);
    expect(store.isSynced).toBe(true);
  });

  it('reports that it has ended because the kvstore was replaced', async () => {
    await put('a', '1');
    const store = newStore();
    ended = new AbortController();
    const run = store.run({ backend, prefix: P, signal: ended.signal, endOnDivergence: true });
    running = run;
    await settle(4);
    backend.server.restore(new FaultyMemoryBackend({ clock }).server.snapshot());
    await advance(clock, 10_000);
    expect(await run).toBe('diverged');
    expect(story).toEqual(['a=1']);
  });

  it('an observer that throws is counted, and misses nothing else (regression: the store ended permanently)', async () => {
    const fault = new Error('a broken observer');
    const onFault = vi.fn();
    const store = newStore(
      {
        onUpdate: (name, value) => {
          if (value === 'boom') throw fault;
          observer.onUpdate(name, value);
        },
        onDelete: () => {
          throw fault;
        },
        batch: (apply) => {
          apply();
          apply(); // once is enough
          throw fault;
        },
      },
      onFault,
    );
    await put('a', 'boom');
    await put('b', '1');
    await start(store);
    await put('c', '1');
    await backend.delete(`${P}c`);
    await settle(4);
    expect(story).toEqual(['b=1', 'c=1']);
    expect(store.status().watch?.state).toBe('watching');
    expect(store.status().faults).toBe(onFault.mock.calls.length);
    expect(onFault.mock.calls.every(([error]) => error === fault)).toBe(true);
  });

  it('a batch that the observer does not apply counts as applied', async () => {
    await put('a', '1');
    const store = newStore({ ...observer, batch: () => {} });
    await start(store);
    expect(story).toEqual(['a=1']);
  });

  it('a decoder that throws rejects the value (regression: the store ended permanently)', async () => {
    const store = newStore();
    await put('a', 'throw');
    await put('b', '1');
    await start(store);
    expect(story).toEqual(['b=1']);
    expect(store.status()).toMatchObject({ rejected: 1, faults: 1 });
    expect(rejections.status().recent[0]).toMatchObject({ reason: 'decoder-fault', at: `${P}a` });
  });
});
