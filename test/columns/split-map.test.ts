import fc from 'fast-check';
import { describe, expect, it, vi } from 'vitest';
import { SplitMap } from '../../src/columns/split-map.ts';

const address = (i: number): string => `10.${i >> 16}.${(i >> 8) & 255}.${i & 255}`;

/** Returns the buckets that `work` reads, one for each run of reads of the same bucket. */
function bucketsOf(work: () => void): readonly unknown[] {
  const buckets: unknown[] = [];
  const get = Map.prototype.get;
  const gets = vi.spyOn(Map.prototype, 'get').mockImplementation(function (this: Map<unknown, unknown>, key) {
    if (buckets.at(-1) !== this) buckets.push(this);
    return get.call(this, key);
  });
  work();
  gets.mockRestore();
  return buckets;
}

describe('a map that is split into buckets', () => {
  it('has the entries of a Map', () => {
    const step = fc.record({
      key: fc.nat(6000),
      isDelete: fc.boolean(),
      times: fc.integer({ min: 1, max: 3000 }),
    });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 12 }), (steps) => {
        const map = new SplitMap<number>();
        const model = new Map<string, number>();
        let equal = true;
        for (const { key, isDelete, times } of steps)
          for (let i = key; i < key + times; i++)
            if (isDelete) equal &&= map.delete(address(i)) === model.delete(address(i));
            else {
              map.set(address(i), i);
              model.set(address(i), i);
            }
        expect(map.size).toBe(model.size);
        for (const [key, value] of map.entries()) equal &&= model.get(key) === value;
        expect([...map.values()].length).toBe(model.size);
        for (let i = 0; i < 9000; i += 97) equal &&= map.get(address(i)) === model.get(address(i));
        expect(equal).toBe(true);
      }),
      { numRuns: 30 },
    );
  });

  it('moves few entries at a time (regression: one write moved all of 500,000 in 80 ms)', () => {
    const map = new SplitMap<number>();
    let moved = 0;
    const set = Map.prototype.set;
    const sets = vi.spyOn(Map.prototype, 'set').mockImplementation(function (
      this: Map<unknown, unknown>,
      key,
      value,
    ) {
      moved++;
      return set.call(this, key, value);
    });
    let most = 0;
    for (let i = 0; i < 100_000; i++) {
      moved = 0;
      map.set(address(i), i);
      most = Math.max(most, moved);
    }
    sets.mockRestore();
    expect(map.size).toBe(100_000);
    expect(most).toBeLessThan(3000);
  });

  it('keeps successive addresses in one bucket (regression: each was in another, and out of the cache)', () => {
    const map = new SplitMap<number>();
    for (let i = 0; i < 100_000; i++) map.set(address(i), i);
    const read = bucketsOf(() => {
      for (let i = 50_000; i < 51_000; i++) map.get(address(i));
    });
    expect(read.length).toBeLessThan(300);
  });

  it('divides names with one long ending (regression: those of the services of all tenants shared a bucket)', () => {
    const name = (i: number): string => `tenant-${i}/kubernetes-dashboard`;
    const map = new SplitMap<number>();
    for (let i = 0; i < 20_000; i++) map.set(name(i), i);
    const read = bucketsOf(() => {
      for (let i = 0; i < 20_000; i += 20) map.get(name(i));
    });
    expect(new Set(read).size).toBeGreaterThan(10);
  });

  it('grows during an iteration, which visits each entry that exists all the time once', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 9000 }), fc.integer({ min: 1, max: 40 }), (size, perVisit) => {
        const map = new SplitMap<number>();
        for (let i = 0; i < size; i++) map.set(address(i), i);
        const visits = new Uint8Array(size);
        let next = size;
        for (const [, i] of map.entries()) {
          if (i < size) visits[i] = (visits[i] ?? 0) + 1;
          for (let n = 0; n < perVisit && next < 40_000; n++, next++) map.set(address(next), next);
        }
        expect(visits.every((count) => count === 1)).toBe(true);
      }),
      { numRuns: 30 },
    );
  });

  it('may change during an iteration: what is not deleted before it is reached is visited', () => {
    const map = new SplitMap<number>();
    for (let i = 0; i < 5000; i++) map.set(address(i), i);
    const seen = new Set<number>();
    for (const [key, i] of map.entries()) {
      expect(map.get(key)).toBe(i);
      seen.add(i);
      if (i % 2 === 0) map.delete(address(i + 1));
      if (seen.size <= 5000) map.set(address(100_000 + seen.size), 100_000 + seen.size);
    }
    for (let i = 0; i < 5000; i += 2) expect(seen.has(i)).toBe(true);
  });
});
