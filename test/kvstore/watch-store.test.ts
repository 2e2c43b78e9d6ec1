import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { RejectionLog, rejection } from '../../src/base/rejection.ts';
import { bytesOfText, textOfBytes } from '../../src/kvstore/bytes.ts';
import { type StoreObserver, WatchStore } from '../../src/kvstore/store/watch-store.ts';
import { ManualClock } from '../base/support/manual-clock.ts';
import { FaultyMemory } from './support/faulty-memory.ts';
import { advance, settle } from './support/settle.ts';

const P = 'p/';

describe('a watch store', () => {
  let clock: ManualClock;
  let backend: FaultyMemory;
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
    backend = new FaultyMemory({ clock });
    rejections = new RejectionLog();
    story = [];
  });
  afterEach(async () => {
    await stop();
    await backend.close();
  });

  it('shows what is there, then what changes, and counts it', async () => {
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
    expect(store.status()).toMatchObject({ keys: 1, synced: true, updates: 3, deletes: 1, refused: 0 });
    expect(store.isSynced).toBe(true);
    expect(store.cursor).toBe(backend.server.header.revision + 1);
  });

  it('a key whose value is rejected is absent, until it is accepted again', async () => {
    const store = newStore();
    await start(store);
    await put('a', '1');
    await put('a', 'bad');
    await put('b', 'bad');
    expect(story).toEqual(['a=1', 'a gone']);
    expect(store.status()).toMatchObject({ keys: 0, refused: 2 });
    expect(rejections.status().total).toBe(2);
    await put('a', '2');
    await backend.delete(`${P}b`);
    await settle(4);
    expect(story).toEqual(['a=1', 'a gone', 'a=2']);
    expect(store.status()).toMatchObject({ keys: 1, refused: 0 });
  });

  it('deletes in its next run what that one’s complete list does not show', async () => {
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

  it('forgets with a run which values it has rejected', async () => {
    await put('a', 'bad');
    const store = newStore();
    await start(store);
    await stop();
    await backend.delete(`${P}a`);
    await start(store);
    expect(store.status().refused).toBe(0);
  });

  it('drains as one batch, and is not synced then', async () => {
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
    await start(store);
    expect(() => store.drain()).toThrow('a running store cannot be drained');
    await expect(store.run({ backend, prefix: P, signal: ended.signal })).rejects.toThrow('running already');
    await stop();
    store.drain();
    expect(batches.at(-1)).toEqual(['a gone', 'b gone']);
    expect([store.isSynced, store.size]).toEqual([false, 0]);
    await start(store);
    expect(store.isSynced).toBe(true);
  });

  it('says that it has ended because the kvstore is another one', async () => {
    await put('a', '1');
    const store = newStore();
    ended = new AbortController();
    const run = store.run({ backend, prefix: P, signal: ended.signal, endOnDivergence: true });
    running = run;
    await settle(4);
    backend.server.restore(new FaultyMemory({ clock }).server.snapshot());
    await advance(clock, 10_000);
    expect(await run).toBe('diverged');
    expect(story).toEqual(['a=1']);
  });

  it('an observer that throws is counted, and misses nothing else (regression: the store ended for good)', async () => {
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

  it('a batch that the observer does not apply is applied all the same', async () => {
    await put('a', '1');
    const store = newStore({ ...observer, batch: () => {} });
    await start(store);
    expect(story).toEqual(['a=1']);
  });

  it('a decoder that throws rejects the value (regression: the store ended for good)', async () => {
    const store = newStore();
    await put('a', 'throw');
    await put('b', '1');
    await start(store);
    expect(story).toEqual(['b=1']);
    expect(store.status()).toMatchObject({ refused: 1, faults: 1 });
    expect(rejections.status().recent[0]).toMatchObject({ reason: 'decoder-fault', at: `${P}a` });
  });
});
