import fc from 'fast-check';
import { describe, expect, it, vi } from 'vitest';
import { sleep } from '../../../src/base/sleep.ts';
import { bytesOfText } from '../../../src/kvstore/codec/bytes.ts';
import { identityKey, identityValueKey } from '../../../src/kvstore/codec/keys.ts';
import {
  type Collection,
  identityCollection,
  lockCollection,
  staleIdentities,
} from '../../../src/kvstore/gc/collections.ts';
import { GarbageCollector, staleRound } from '../../../src/kvstore/gc/garbage-collector.ts';
import { FaultyMemoryBackend } from '../../../src/kvstore/memory/faulty-memory-backend.ts';
import { MemoryServer } from '../../../src/kvstore/memory/memory-server.ts';
import type { KeyValue } from '../../../src/kvstore/session/transport.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { advance } from '../support/settle.ts';

describe('a round', () => {
  const keys = fc
    .dictionary(fc.constantFrom('a', 'b', 'c', 'd'), fc.nat(2))
    .map((o) => new Map(Object.entries(o)));

  it('removes keys that were stale before at the same revision, and remembers the others', () => {
    fc.assert(
      fc.property(keys, keys, (before, now) => {
        const { remove, stale } = staleRound(before, now);
        for (const [key, revision] of now) {
          const unchanged = before.get(key) === revision;
          expect(remove.has(key)).toBe(unchanged);
          expect(stale.has(key)).toBe(!unchanged);
        }
        expect(remove.size + stale.size).toBe(now.size);
      }),
    );
  });

  it('keeps a key that was used in between', () => {
    const first = staleRound(new Map(), new Map([['a', 5]]));
    const used = staleRound(first.stale, new Map());
    expect(staleRound(used.stale, new Map([['a', 5]])).remove.size).toBe(0);
  });
});

describe('stale identities', () => {
  const kv = (key: string, value: string): KeyValue => ({
    key,
    value: bytesOfText(value),
    createRevision: 1,
    modRevision: 7,
  });

  it('are master keys of the local range without slave keys', async () => {
    const listing = [
      kv(identityKey(300), 'k8s:a=1;'),
      kv(identityKey(301), 'k8s:b=x/y;'),
      kv(identityKey(302), 'k8s:c=1;'),
      kv(identityKey(70_000), 'k8s:d=1;'),
      kv(identityKey(5), 'reserved:init=;'),
      kv(identityValueKey('k8s:a=1;', '10.0.0.1'), '300'),
      kv(identityValueKey('k8s:b=x/y;', '10.0.0.1'), '301'),
      kv('cilium/state/identities/v1/id/junk', 'k8s:e=1;'),
      kv('cilium/state/identities/v1/locks/k8s:c=1;/1f', ''),
    ];
    expect([...(await staleIdentities(listing, { min: 256, max: 65_535 }))]).toEqual([[identityKey(302), 7]]);
  });

  it('include the first and the last of the range, and none outside it or with invalid labels', async () => {
    const listing = [255, 256, 65_535, 65_536].map((id) => kv(identityKey(id), `k8s:of=${id};`));
    const spoilt = { ...kv(identityKey(300), ''), value: Uint8Array.of(0xff) };
    expect([...(await staleIdentities([...listing, spoilt], { min: 256, max: 65_535 })).keys()]).toEqual([
      identityKey(256),
      identityKey(65_535),
    ]);
  });
});

describe('a collector', () => {
  it('removes locks that are not released, one round after it has first seen them', async () => {
    const clock = new ManualClock();
    const server = new MemoryServer({ clock });
    const [holder, operator] = [0, 1].map(
      () => new FaultyMemoryBackend({ server, clock, random: () => 0.5 }),
    );
    if (holder === undefined || operator === undefined) throw new Error('two backends');
    const lock = await holder.lock('cilium/state/identities/v1/locks/k8s:a=1;');
    const collector = new GarbageCollector({
      collection: lockCollection(operator),
      clock,
      intervalMs: 25_000,
    });
    const ended = new AbortController();
    const running = collector.run(ended.signal);
    await advance(clock, 20_000);
    expect(await operator.get(lock.key)).toBeDefined();
    await advance(clock, 10_000);
    expect(await operator.get(lock.key)).toBeUndefined();
    ended.abort();
    await running;
    expect(collector.status()).toMatchObject({ removed: 1, failures: 0 });
    await Promise.all([holder.close(), operator.close()]);
  });

  it('removes the holder of a lock, and then gives the next in line its time', async () => {
    const clock = new ManualClock();
    const backend = new FaultyMemoryBackend({ clock, random: () => 0.5 });
    const locks = 'cilium/state/identities/v1/locks/';
    for (const key of ['k8s:a=1;/2f', 'k8s:a=1;/1f', 'k8s:b=1;/3f', 'nolease'])
      await backend.update(`${locks}${key}`, bytesOfText('x'));
    const removed: string[] = [];
    const collector = new GarbageCollector({
      collection: lockCollection(backend),
      clock,
      intervalMs: 25_000,
      onRemoved: (key, _revision, round) => removed.push(`${key.slice(locks.length)} in round ${round}`),
    });
    const ended = new AbortController();
    const running = collector.run(ended.signal);
    await advance(clock, 80_000);
    expect(removed).toEqual([
      ...['k8s:a=1;/2f in round 2', 'k8s:b=1;/3f in round 2', 'nolease in round 2'],
      'k8s:a=1;/1f in round 4',
    ]);
    ended.abort();
    await running;
    await backend.close();
  });

  it('keeps the mark of a key that it could not remove, and removes nothing while it is not allowed', async () => {
    const clock = new ManualClock();
    const removed: string[] = [];
    let leads = false;
    let isLocked = true;
    const collector = new GarbageCollector({
      clock,
      intervalMs: 1000,
      mayDelete: () => leads,
      collection: {
        list: () => Promise.resolve(new Map(['a', 'b'].map((key) => [key, 1]))),
        remove: (key) => {
          if (isLocked) return Promise.reject(new Error('it is locked'));
          removed.push(key);
          return Promise.resolve(true);
        },
      },
    });
    const round = async (): Promise<void> => {
      const running = collector.round(new AbortController().signal);
      await advance(clock, 1000);
      await running;
    };
    await round();
    await round();
    expect(collector.status()).toMatchObject({ removed: 0, stale: 2, failures: 0 });
    leads = true;
    await round();
    expect(collector.status()).toMatchObject({ removed: 0, stale: 2, failures: 2 });
    isLocked = false;
    await round();
    expect(removed).toEqual(['a', 'b']);
  });

  it('starts its rounds at an interval, however long they take', async () => {
    const clock = new ManualClock();
    const rounds: number[] = [];
    const collection: Collection = {
      list: async () => {
        rounds.push(clock.now());
        await sleep(clock, 400);
        return new Map();
      },
      remove: () => Promise.resolve(true),
    };
    const ended = new AbortController();
    const running = new GarbageCollector({ collection, clock, intervalMs: 1000 }).run(ended.signal);
    await advance(clock, 2500);
    expect(rounds).toEqual([0, 1000, 2000]);
    ended.abort();
    await advance(clock, 500);
    await running;
  });

  it('treats no other keys as locks, and removes twenty per second by default', async () => {
    const clock = new ManualClock();
    const backend = new FaultyMemoryBackend({ clock, random: () => 0.5 });
    const locks = ['a', 'b', 'c'].map((name) => `cilium/state/identities/v1/locks/k8s:${name}=1;/1f`);
    for (const key of [identityKey(300), ...locks]) await backend.update(key, bytesOfText('x'));
    const collector = new GarbageCollector({ collection: lockCollection(backend), clock, intervalMs: 1000 });
    const { signal } = new AbortController();
    await collector.round(signal);
    expect(collector.status()).toMatchObject({ rounds: 1, removed: 0, stale: 3 });
    const round = collector.round(signal);
    const removed: number[] = [];
    for (let i = 0; i < 4; i++) {
      await advance(clock, 49);
      removed.push(collector.status().removed);
      await advance(clock, 1);
    }
    await round;
    expect(removed).toEqual([1, 2, 3, 3]);
    expect((await backend.listPrefix('cilium/')).map(({ key }) => key)).toEqual([identityKey(300)]);
    await backend.close();
  });

  it('reports a failed round, and continues with the next', async () => {
    const clock = new ManualClock();
    const backend = new FaultyMemoryBackend({ clock, random: () => 0.5 });
    const collector = new GarbageCollector({ collection: lockCollection(backend), clock, intervalMs: 1000 });
    const ended = new AbortController();
    backend.link.down();
    const running = collector.run(ended.signal);
    await advance(clock, 1500);
    expect(collector.status()).toMatchObject({ rounds: 0, failures: 2 });
    backend.link.up();
    await advance(clock, 1000);
    expect(collector.status().rounds).toBe(1);
    ended.abort();
    await running;
    await backend.close();
  });

  it('deletes at the given rate, and continues if a delete fails', async () => {
    const clock = new ManualClock();
    const removed: string[] = [];
    const onFailure = vi.fn();
    const collector = new GarbageCollector({
      clock,
      intervalMs: 1000,
      removalsPerSecond: 10,
      onFailure,
      collection: {
        list: () => Promise.resolve(new Map(['a', 'b', 'c', 'd'].map((key) => [key, 1]))),
        remove: (key) => {
          if (key === 'b') return Promise.reject(new Error('it is locked'));
          removed.push(`${key} at ${clock.now()}`);
          return Promise.resolve(key !== 'd');
        },
      },
    });
    const ended = new AbortController();
    const running = collector.run(ended.signal);
    await advance(clock, 1350);
    expect(removed).toEqual(['a at 1000', 'c at 1200', 'd at 1300']);
    expect(collector.status()).toMatchObject({ rounds: 2, removed: 2, stale: 1, failures: 1 });
    expect(collector.status().lastFailure).toMatchObject({ message: 'it is locked' });
    expect(onFailure.mock.calls).toEqual([[expect.any(Error), 'removal of b']]);
    ended.abort();
    await running;
    await advance(clock, 10_000);
    expect(collector.status().rounds).toBe(2);
  });

  it('ends within a round if its signal fires, and counts no failure', async () => {
    const clock = new ManualClock();
    const ended = new AbortController();
    const removed: string[] = [];
    const collector = new GarbageCollector({
      clock,
      intervalMs: 1000,
      collection: {
        list: () => Promise.resolve(new Map(['a', 'b'].map((key) => [key, 1]))),
        remove: (key, _revision, signal) => {
          removed.push(key);
          ended.abort();
          return signal.aborted ? Promise.reject(new Error('aborted')) : Promise.resolve(true);
        },
      },
    });
    const running = collector.run(ended.signal);
    await advance(clock, 5000);
    await running;
    expect(removed).toEqual(['a']);
    expect(collector.status()).toMatchObject({ removed: 0, failures: 0 });
  });

  it('keeps an identity that is used again between list and removal, and one that was written since', async () => {
    const clock = new ManualClock();
    const backend = new FaultyMemoryBackend({ clock });
    const range = { min: 256, max: 65_535 };
    const { list, remove } = identityCollection(backend, range);
    const { signal } = new AbortController();
    const a = identityKey(300);
    const b = identityKey(301);
    const c = identityKey(302);
    for (const key of [a, b, c]) await backend.update(key, bytesOfText(`k8s:of=${key.slice(-3)};`));
    const stale = await list(signal);
    expect([...stale.keys()]).toEqual([a, b, c]);
    await backend.update(identityValueKey('k8s:of=300;', '10.0.0.1'), bytesOfText('300'));
    await backend.update(b, bytesOfText('k8s:of=301;'));
    const results = [];
    for (const [key, revision] of stale) results.push(await remove(key, revision, signal));
    expect(results).toEqual([false, false, true]);
    expect(await remove(c, stale.get(c) ?? 0, signal)).toBe(false);
    expect((await backend.listPrefix('cilium/state/')).map(({ key }) => key)).toEqual([
      a,
      b,
      identityValueKey('k8s:of=300;', '10.0.0.1'),
    ]); // and no lock is left
    await backend.close();
  });

  it('removes an identity under the lock of its labels, and none that was deleted or is not text', async () => {
    const backend = new FaultyMemoryBackend({ clock: new ManualClock() });
    const { remove } = identityCollection(backend, { min: 256, max: 65_535 });
    const { signal } = new AbortController();
    const lock = vi.spyOn(backend, 'lock');
    expect(await remove(identityKey(300), 1, signal)).toBe(false);
    await backend.update(identityKey(300), Uint8Array.of(0xff));
    expect(await remove(identityKey(300), 1, signal)).toBe(false);
    expect(lock).not.toHaveBeenCalled();
    await backend.update(identityKey(300), bytesOfText('k8s:a=1;'));
    const { modRevision = 0 } = (await backend.get(identityKey(300))) ?? {};
    expect(await remove(identityKey(300), modRevision, signal)).toBe(true);
    expect(lock.mock.calls).toEqual([['cilium/state/identities/v1/locks/k8s:a=1;', { signal }]]);
    await backend.close();
  });

  it('keeps a lock that another owner has got since', async () => {
    const backend = new FaultyMemoryBackend({ clock: new ManualClock() });
    const key = 'cilium/state/identities/v1/locks/k8s:a=1;/1f';
    const { list, remove } = lockCollection(backend);
    const { signal } = new AbortController();
    await backend.update(key, bytesOfText('x'));
    const before = await list(signal);
    await backend.delete(key);
    await backend.update(key, bytesOfText('x'));
    expect(await remove(key, before.get(key) ?? 0, signal)).toBe(false);
    expect(await backend.get(key)).toBeDefined();
    await backend.close();
  });

  it('skips keys below the identities that are not identities', async () => {
    const other = { value: bytesOfText('k8s:a=1;'), createRevision: 1, modRevision: 7 };
    const listing = ['cilium/state/identities/v1/other', 'cilium/state/ip/v1/default/300'].map((key) => ({
      key,
      ...other,
    }));
    expect((await staleIdentities(listing, { min: 0, max: 65_535 })).size).toBe(0);
  });

  it('names the failed round, and requires a signal to end', async () => {
    const clock = new ManualClock();
    const failed: string[] = [];
    const ended = new AbortController();
    const collector = new GarbageCollector({
      clock,
      intervalMs: 1000,
      onFailure: (_error: unknown, task: string) => failed.push(task),
      collection: { list: () => Promise.reject(new Error('no')), remove: () => Promise.resolve(true) },
    });
    const running = collector.run(ended.signal);
    await advance(clock, 500);
    expect(failed).toEqual(['collection']);
    ended.abort();
    await running;
    const never = undefined as unknown as AbortSignal;
    expect(() => collector.run(never)).toThrow('run: signal');
    expect(() => collector.round(never)).toThrow('round: signal');
  });
});
