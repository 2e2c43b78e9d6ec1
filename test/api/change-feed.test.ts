import { getEventListeners } from 'node:events';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ChangeFeed, type FeedRead } from '../../src/api/change-feed.ts';
import { CHANGE_TYPES } from '../../src/api/change-types.ts';
import { settle } from '../agent/support/fake-clock.ts';
import { bytesInUse } from '../base/support/garbage.ts';
import { TestModel } from './support/model.ts';

/** Reads until no changes are left. */
function readAll(feed: ChangeFeed, from: number, limit: number): { keys: string[]; reads: FeedRead[] } {
  const reads: FeedRead[] = [];
  let revision = from;
  do {
    const read = feed.read(revision, limit);
    reads.push(read);
    revision = read.revision;
  } while (revision !== feed.revision);
  return { keys: reads.flatMap(({ changes }) => changes.map(({ key }) => key)), reads };
}

describe('a reader of the change feed', () => {
  it('receives each key once, in the order of the latest changes, for any page size', () => {
    const KEYS = ['10.0.0.0/8', ...Array.from({ length: 20 }, (_, i) => `10.0.0.${i}`)];
    const prefixOf = (key: string): string => (key.includes('/') ? key : `${key}/32`);
    fc.assert(
      fc.property(
        fc.array(fc.record({ key: fc.constantFrom(...KEYS), identity: fc.integer({ min: 1, max: 9 }) }), {
          maxLength: 60,
          size: 'max',
        }),
        fc.nat({ max: 40 }),
        fc.integer({ min: 1, max: 5 }),
        fc.integer({ min: 1, max: 60 }),
        (writes, from, limit, capacity) => {
          const model = new TestModel();
          const feed = new ChangeFeed(model, model.clock, capacity);
          feed.follow();
          const happened: string[] = []; // the model: every change, one after the other
          for (const { key, identity } of writes) {
            if (model.ipcache.upsert(key, { identity, source: 'k8s' }) === 'applied')
              happened.push(prefixOf(key));
          }
          const oldest = Math.max(0, happened.length - capacity);
          for (const begin of [from, oldest]) {
            const since = happened.slice(begin);
            const expected = since.filter((key, at) => since.lastIndexOf(key) === at);
            const { keys, reads } = readAll(feed, begin, limit);
            const missed = begin > happened.length || begin < oldest;
            expect(reads[0]?.hasMissed).toBe(missed);
            if (!missed) expect(keys).toEqual(expected);
            expect(reads.every(({ changes }) => changes.length <= limit)).toBe(true);
          }
        },
      ),
    );
  });

  it('that is too far behind is notified of missed changes, and continues with new ones', () => {
    const model = new TestModel();
    const feed = new ChangeFeed(model, model.clock, 4);
    feed.follow();
    for (let i = 1; i <= 6; i++) model.ipcache.upsert(`10.0.0.${i}`, { identity: i, source: 'k8s' });
    expect(feed.read(1, 10)).toEqual({ changes: [], revision: 6, hasMissed: true });
    expect(feed.read(2, 10)).toMatchObject({ hasMissed: false, revision: 6 });
    expect(feed.read(2, 10).changes.map(({ key }) => key)).toEqual([3, 4, 5, 6].map((i) => `10.0.0.${i}/32`));
  });

  it('receives services and nodes by name, and no earlier state', () => {
    const model = new TestModel().fill();
    const feed = new ChangeFeed(model, model.clock);
    feed.follow();
    expect(feed.revision).toBe(0);
    model.nodes.nodeUpdated({ cluster: 'baltic', name: 'node-2', source: 'clustermesh' });
    model.services.deleteService({ namespace: 'shop', name: 'checkout' });
    expect(feed.read(0, 10).changes).toMatchObject([
      { revision: 1, type: 'node', key: 'baltic/node-2', at: model.clock.wallTime() },
      { revision: 2, type: 'service', key: 'shop/checkout' },
    ]);
  });

  it('of some types receives only those, and the last revision of each type is known', () => {
    const model = new TestModel();
    const feed = new ChangeFeed(model, model.clock);
    const last = (): readonly number[] => CHANGE_TYPES.map((type) => feed.lastOf(type));
    const following = feed.follow();
    expect([CHANGE_TYPES, last()]).toEqual([
      ['ip', 'service', 'node'],
      [0, 0, 0],
    ]);
    model.services.markSynced();
    const change = (count: number): void => {
      model.nodes.nodeUpdated({ cluster: 'baltic', name: `node-${count}`, source: 'clustermesh' });
      model.addService({ namespace: 'shop', name: `cart-${count}` }, `172.16.0.${count}`);
      model.ipcache.upsert('10.0.0.1', { identity: count, source: 'k8s' });
    };
    change(1);
    model.ipcache.upsert('10.0.0.2', { identity: 1, source: 'k8s' });
    expect(last()).toEqual([4, 2, 1]);
    model.nodes.nodeDeleted({ cluster: 'baltic', name: 'node-1', source: 'clustermesh' });
    expect(last()).toEqual([4, 2, 5]);
    const at = model.clock.wallTime();
    expect(feed.read(0, 9, new Set(['node', 'service']))).toEqual({
      changes: [
        { revision: 2, type: 'service', key: 'shop/cart-1', at },
        { revision: 5, type: 'node', key: 'baltic/node-1', at },
      ],
      revision: 5,
      hasMissed: false,
    });
    expect(feed.read(0, 1)).toEqual({
      changes: [{ revision: 2, type: 'service', key: 'shop/cart-1', at }],
      revision: 2,
      hasMissed: false,
    });
    following();
    change(2);
    expect([feed.revision, last()]).toEqual([5, [4, 2, 5]]);
  });

  it('receives each of the last keys whatever their number, and older keys take no memory', async () => {
    const model = new TestModel();
    let write = (_: string): void => {};
    const subscribe = ({ onChanges }: { onChanges: (changes: readonly object[]) => void }): (() => void) => {
      write = (prefix) => onChanges([{ prefix }]);
      return () => {};
    };
    const feed = new ChangeFeed(Object.assign(model, { ipcache: { subscribe } as never }), model.clock, 16);
    feed.follow();
    const before = await bytesInUse();
    for (let count = 1; count <= 100_000; count++) {
      write(`${count}`);
      if (count > 100) continue;
      const kept = Math.min(count, 16);
      const { changes, hasMissed } = feed.read(count - kept, 100);
      expect([changes.length, hasMissed]).toEqual([kept, false]);
    }
    expect((await bytesInUse()) - before).toBeLessThan(1 << 20);
  });

  it('of a type without changes examines 4,096 changes of other types at a time', () => {
    const model = new TestModel();
    const feed = new ChangeFeed(model, model.clock);
    feed.follow();
    for (let i = 1; i <= 4_097; i++) model.ipcache.upsert('10.0.0.1', { identity: i, source: 'k8s' });
    const types = new Set(['node'] as const);
    expect(feed.read(0, 1, types)).toEqual({ changes: [], revision: 4_096, hasMissed: false });
    expect(feed.read(1, 1, types)).toEqual({ changes: [], revision: 4_097, hasMissed: false });
    expect(feed.read(4_096, 1)).toMatchObject({ changes: [{ revision: 4_097 }], revision: 4_097 });
  });

  it('that waits leaves nothing behind, and the next change wakes the next one', async () => {
    const model = new TestModel();
    const feed = new ChangeFeed(model, model.clock);
    const following = feed.follow();
    const { signal } = new AbortController();
    let woken = 0;
    const wait = (): void => void feed.waitForChange(feed.revision, signal, 1_000).then(() => woken++);
    const change = (): unknown =>
      model.ipcache.upsert('10.0.0.1', { identity: feed.revision + 1, source: 'k8s' });
    for (let round = 1; round <= 2; round++) {
      wait();
      change();
      await model.clock.advance(49);
      expect(woken).toBe(round - 1);
      await model.clock.advance(1);
      expect(woken).toBe(round);
    }
    wait();
    await model.clock.advance(999);
    expect(woken).toBe(2);
    await model.clock.advance(1);
    expect(woken).toBe(3);
    change(); // nobody waits
    expect(model.clock.pending).toBe(0);
    await feed.waitForChange(feed.revision, AbortSignal.abort(), 1_000);
    wait();
    change();
    following(); // also cancels the wake-up
    await settle();
    expect([woken, model.clock.pending]).toEqual([4, 0]);
    await feed.waitForChange(feed.revision, signal, 1_000);
    expect([getEventListeners(signal, 'abort'), model.clock.pending]).toEqual([[], 0]);
  });

  it('that waits is woken by a change, by its signal, and by the end of the feed', async () => {
    const model = new TestModel();
    const feed = new ChangeFeed(model, model.clock);
    const following = feed.follow();
    const signal = new AbortController();
    const byChange = feed.waitForChange(0, signal.signal, 1_000);
    model.ipcache.upsert('10.0.0.1', { identity: 1, source: 'k8s' });
    await model.clock.advance(50);
    await byChange;
    await feed.waitForChange(0, signal.signal, 1_000); // resolves immediately, because a change exists
    const byTime = feed.waitForChange(1, signal.signal, 1_000);
    await model.clock.advance(1_000);
    await byTime;
    const bySignal = feed.waitForChange(1, signal.signal, 1_000);
    expect(getEventListeners(signal.signal, 'abort')).toHaveLength(1); // only of the wait that is not over
    signal.abort();
    await bySignal;
    const byEnd = feed.waitForChange(1, new AbortController().signal, 1_000);
    following();
    await byEnd;
    expect(feed.ended).toBe(true);
    expect(model.clock.pending).toBe(0);
  });

  it('that waits is woken once for all changes within 50 ms, together with all others', async () => {
    const model = new TestModel();
    const feed = new ChangeFeed(model, model.clock);
    feed.follow();
    const never = new AbortController().signal;
    const woken: number[] = [];
    for (let i = 0; i < 3; i++)
      void feed.waitForChange(0, never, 1_000).then(() => woken.push(feed.revision));
    for (let i = 1; i <= 5; i++) {
      model.ipcache.upsert(`10.0.0.${i}`, { identity: i, source: 'k8s' });
      await model.clock.advance(9);
    }
    expect(woken).toEqual([]);
    await model.clock.advance(5);
    expect(woken).toEqual([5, 5, 5]);
  });
});
