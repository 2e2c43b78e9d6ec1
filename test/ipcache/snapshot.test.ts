import { isDeepStrictEqual } from 'node:util';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { IPCache } from '../../src/ipcache/ipcache.ts';
import { IPCacheSnapshot } from '../../src/ipcache/snapshot.ts';
import type { KeyedEntry } from '../../src/ipcache/types.ts';
import { FoldingListener } from './support/invariants.ts';
import { ADDRESSES, apply, history, KEYS } from './support/operations.ts';

/** Everything that both a cache and a snapshot can be asked, in an order that is the same for both. */
function asked(view: IPCache | IPCacheSnapshot): unknown {
  const byKey = (a: KeyedEntry, b: KeyedEntry): number => (a.key < b.key ? -1 : 1);
  return {
    size: view.size,
    all: [...view.entries({ includeShadowed: true })].sort(byKey),
    visible: [...view.entries()].sort(byKey),
    exact: KEYS.map((key) => view.get(key)),
    longest: ADDRESSES.map((address) => view.lookup(address)),
    identities: [100, 200, 300].map((identity) => [...view.lookupByIdentity(identity)].sort()),
  };
}

describe('a snapshot', () => {
  it('answers as the cache did when it was taken, whatever is written later', () => {
    fc.assert(
      fc.property(history, fc.infiniteStream(fc.boolean()), (operations, takes) => {
        const cache = new IPCache();
        const taken: { readonly snapshot: IPCacheSnapshot; readonly answers: unknown }[] = [];
        for (const operation of operations) {
          apply(cache, operation);
          if (!takes.next().value) continue;
          taken.push({ snapshot: cache.snapshot(), answers: asked(cache) });
        }
        for (const { snapshot, answers } of taken) {
          if (!isDeepStrictEqual(asked(snapshot), answers)) expect(asked(snapshot)).toEqual(answers);
        }
      }),
    );
  });

  it('differs from another by the changes that lead from one to the other, in both directions', () => {
    fc.assert(
      fc.property(history, history, (before, between) => {
        const cache = new IPCache();
        for (const operation of before) apply(cache, operation);
        const a = cache.snapshot();
        const there = new FoldingListener();
        cache.subscribe(there)();
        const back = new FoldingListener();
        for (const operation of between) apply(cache, operation);
        const b = cache.snapshot();
        cache.subscribe(back)();
        const [startView, endView] = [new Map(there.view), new Map(back.view)];
        const forth = IPCacheSnapshot.diff(a, b);
        const home = IPCacheSnapshot.diff(b, a);
        if (forth.length > 0) there.onChanges(forth);
        if (home.length > 0) back.onChanges(home);
        expect([...there.complaints, ...back.complaints]).toEqual([]);
        expect(new Map([...there.view].sort())).toEqual(new Map([...endView].sort()));
        expect(new Map([...back.view].sort())).toEqual(new Map([...startView].sort()));
        expect(IPCacheSnapshot.diff(a, a)).toEqual([]);
      }),
    );
  });

  it('shares what has not changed with the one before', () => {
    const cache = new IPCache();
    cache.batch(() => {
      for (let i = 0; i < 50_000; i++) {
        cache.upsert(`10.${i >>> 16}.${(i >>> 8) & 255}.${i & 255}`, {
          identity: 256 + (i % 100),
          source: 'kvstore',
        });
      }
    });
    const first = cache.snapshot();
    cache.upsert('10.0.0.7', { identity: 999, source: 'kvstore' });
    const second = cache.snapshot();
    expect(IPCacheSnapshot.diff(first, second).map(({ prefix }) => prefix)).toEqual(['10.0.0.7/32']);
    expect(first.get('10.0.0.7')?.identity).toBe(256 + 7);
  });

  it('is not begun anew while few keys are written, and is when most are', () => {
    const cache = new IPCache();
    const write = (identity: number): void => {
      for (let i = 0; i < 3000; i++)
        cache.upsert(`10.0.${i >>> 8}.${i & 255}`, { identity, source: 'kvstore' });
    };
    write(256);
    const before = cache.snapshot();
    write(257);
    const after = cache.snapshot();
    expect(IPCacheSnapshot.diff(before, after)).toHaveLength(3000);
    expect(after.lookupByIdentity(256)).toEqual([]);
    expect(after.lookupByIdentity(257)).toHaveLength(3000);
  });
});
