import { isDeepStrictEqual } from 'node:util';
import fc from 'fast-check';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { PAGE_ROWS } from '../../src/columns/int32-rows.ts';
import { IPCache } from '../../src/ipcache/ipcache.ts';
import { RowReader } from '../../src/ipcache/row-reader.ts';
import { IPCacheSnapshot } from '../../src/ipcache/snapshot.ts';
import type { KeyedEntry } from '../../src/ipcache/types.ts';
import { HashPrefixTable } from '../../src/lpm/hash-prefix-table.ts';
import { collectGarbage } from '../base/support/garbage.ts';
import { FoldingListener } from './support/invariants.ts';
import { ADDRESSES, apply, history, KEYS } from './support/operations.ts';

/** Returns all reads that both a cache and a snapshot have, in the same order. */
function asked(view: IPCache | IPCacheSnapshot): unknown {
  const byKey = (a: KeyedEntry, b: KeyedEntry): number => (a.key < b.key ? -1 : 1);
  return {
    size: view.size,
    all: [...view.entries({ includeShadowed: true })].sort(byKey),
    visible: [...view.entries()].sort(byKey),
    exact: KEYS.map((key) => view.get(key)),
    prefixes: KEYS.map((key) => view.lookupByPrefix(key)),
    longest: ADDRESSES.map((address) => view.lookup(address)),
    identities: [100, 200, 300].map((identity) => [...view.lookupByIdentity(identity)].sort()),
  };
}

function filled(entries: number): IPCache {
  const cache = new IPCache();
  for (let i = 0; i < entries; i++) {
    const identity = 256 + (i % 100);
    cache.upsert(`10.${i >>> 16}.${(i >>> 8) & 255}.${i & 255}`, { identity, source: 'kvstore' });
  }
  return cache;
}

afterEach(() => {
  vi.restoreAllMocks();
});

describe('a snapshot', () => {
  it('reads no entry before it is read, and then only the requested ones', () => {
    const cache = filled(10_000);
    const looks = [
      vi.spyOn(HashPrefixTable.prototype, 'keyOf'),
      vi.spyOn(HashPrefixTable.prototype, 'find'),
      vi.spyOn(RowReader.prototype, 'entry'),
      vi.spyOn(RowReader.prototype, 'claim'),
    ];
    const looked = (): number => looks.reduce((sum, { mock }) => sum + mock.calls.length, 0);
    const snapshot = cache.snapshot();
    expect(looked()).toBe(0);
    expect(snapshot.size).toBe(10_000);
    expect(snapshot.get('10.0.0.7')?.identity).toBe(256 + 7);
    expect(snapshot.lookup('10.0.9.7')?.key).toBe('10.0.9.7');
    expect(snapshot.entries().next().value?.key).toBe('10.0.0.0');
    expect(looked()).toBeLessThan(10);
  });

  it('costs a later write the pages that are written, not all entries', () => {
    const cache = filled(10_000);
    const copies = vi.spyOn(Int32Array.prototype, 'slice');
    const snapshot = cache.snapshot();
    copies.mockClear();
    for (let identity = 500; identity < 600; identity++)
      cache.upsert('10.0.0.7', { identity, source: 'kvstore' });
    expect(copies.mock.calls.length).toBeLessThan(10);
    expect(snapshot.get('10.0.0.7')?.identity).toBe(256 + 7);
  });

  it('leaves nothing in the cache when it is released', async () => {
    const cache = filled(1000);
    const reference = new WeakRef(cache.snapshot());
    cache.upsert('10.0.0.7', { identity: 500, source: 'kvstore' });
    await collectGarbage();
    expect(reference.deref()).toBeUndefined();
    expect(cache.get('10.0.0.7')?.identity).toBe(500);
  });

  it('returns the same as the cache at its time, whatever is written later', () => {
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

  it('shares unchanged pages with the previous one', () => {
    const cache = filled(10_000);
    const first = cache.snapshot();
    cache.upsert('10.0.0.7', { identity: 999, source: 'kvstore' });
    const second = cache.snapshot();
    const looks = vi.spyOn(RowReader.prototype, 'holdsSame');
    expect(IPCacheSnapshot.diff(first, second).map(({ prefix }) => prefix)).toEqual(['10.0.0.7/32']);
    expect(looks.mock.calls.length).toBeLessThanOrEqual(2 * PAGE_ROWS);
    expect(first.get('10.0.0.7')?.identity).toBe(256 + 7);
  });

  it('differs from the next one by every key if all were written', () => {
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
