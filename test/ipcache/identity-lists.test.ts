import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { IdentityLists } from '../../src/ipcache/identity-lists.ts';
import { IPCache } from '../../src/ipcache/ipcache.ts';
import { IPCacheSnapshot } from '../../src/ipcache/snapshot.ts';
import { leastCpuTime } from '../base/support/cpu-time.ts';

const IDENTITIES = [0, 300, 301, 0x8000_0001];

const write = fc.record({
  host: fc.nat(40),
  identity: fc.constantFrom(...IDENTITIES),
  owner: fc.constantFrom('a', 'b'),
  gone: fc.boolean(),
});

/** Returns the entries of each identity, and the same computed from all entries. */
function inverse(view: IPCache | IPCacheSnapshot): { lists: unknown; entries: unknown } {
  const entries = [...view.entries({ includeShadowed: true })];
  if (view instanceof IPCacheSnapshot) {
    const identities = [...view.identities()].sort((a, b) => a - b);
    expect(identities).toEqual([...new Set(entries.map(({ identity }) => identity))].sort((a, b) => a - b));
    for (const identity of IDENTITIES) {
      const found = Array.from(view.entriesOf(identity), ({ key }) => key).sort();
      const visible = entries.filter((entry) => entry.identity === identity && !entry.shadowed);
      expect(found).toEqual(visible.map(({ key }) => key).sort());
    }
  }
  return {
    lists: IDENTITIES.map((identity) => {
      const keys = [...view.lookupByIdentity(identity)].sort();
      expect(view.countByIdentity(identity)).toBe(keys.length);
      return keys;
    }),
    entries: IDENTITIES.map((identity) =>
      entries.flatMap((entry) => (entry.identity === identity ? [entry.key] : [])).sort(),
    ),
  };
}

describe('the lists by identity', () => {
  it('equal those of the entries (I5), whenever they are requested first', () => {
    fc.assert(
      fc.property(fc.array(write, { maxLength: 80 }), fc.nat(80), fc.nat(80), (writes, taken, asked) => {
        const cache = new IPCache({ hashSeed: taken });
        let snapshot = cache.snapshot();
        let before = snapshot;
        writes.forEach(({ host, identity, owner, gone }, at) => {
          if (at === taken) snapshot = before = cache.snapshot();
          if (at === asked) {
            const { lists, entries } = inverse(snapshot);
            expect(lists).toEqual(entries);
            before = cache.snapshot(); // has lists from the beginning, which continue in the cache
          }
          const key = `10.0.0.${host}${host % 3 === 0 ? '/32' : ''}`;
          if (gone) cache.delete(key, { source: 'kvstore', owner });
          else cache.upsert(key, { identity, source: 'kvstore', owner });
        });
        for (const view of [before, cache, snapshot, cache.snapshot()]) {
          const { lists, entries } = inverse(view);
          expect(lists).toEqual(entries);
        }
      }),
    );
  });

  it('use memory only after the first request, and are built once for all snapshots', () => {
    const cache = new IPCache();
    cache.upsert('10.0.0.1', { identity: 300, source: 'kvstore' });
    const { bytes } = cache.status();
    const first = cache.snapshot();
    expect(cache.status().bytes).toBe(bytes);
    expect(first.lookupByIdentity(300)).toEqual(['10.0.0.1']);
    cache.snapshot();
    expect(cache.status().bytes).toBeGreaterThan(bytes);
  });

  it('use a seed, so that writers cannot choose identities that make them slow (regression: they could)', async () => {
    // These have the lowest of all hashes: without a seed they are in one run of buckets.
    const crowd: number[] = [];
    for (let identity = 0; crowd.length < 8192; identity++)
      if (Math.imul(identity, 0x9e37_79b1) >>> 0 < 1 << 22) crowd.push(identity);
    const cost = (seed: number, limit?: number): Promise<number> =>
      leastCpuTime(() => {
        const lists = new IdentityLists(seed);
        for (const [slot, identity] of crowd.entries()) lists.add(slot, identity);
      }, limit);
    const limit = (await cost(0)) / 4;
    expect(await cost(0x5bd1_e995, limit)).toBeLessThan(limit); // less than a hundredth of the cost without one
  });
});
