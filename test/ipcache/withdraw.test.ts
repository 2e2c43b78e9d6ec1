import fc from 'fast-check';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { PAGE_ROWS } from '../../src/columns/int32-rows.ts';
import { IPCache } from '../../src/ipcache/ipcache.ts';
import { RowReader } from '../../src/ipcache/row-reader.ts';
import type { Writer } from '../../src/ipcache/types.ts';
import { FoldingListener, foldEqualsDump, identityIsInverse } from './support/invariants.ts';
import { attributes, NaiveIPCache } from './support/naive-ipcache.ts';
import { apply, applyNaively, history, KEYS, type Operation, singles } from './support/operations.ts';

const writer: fc.Arbitrary<Writer> = fc.record({
  source: fc.constantFrom('kvstore', 'k8s', 'clustermesh'),
  owner: fc.constantFrom(undefined, 'baltic'),
});

/** Returns the writers of the claims on each key, strongest first. */
function claimsOf(cache: IPCache): unknown {
  return KEYS.map((key) =>
    (cache.explain(key)?.claims ?? [])
      .filter((claim) => claim.key === key)
      .map((claim) => [claim.source, claim.owner, attributes(claim)]),
  );
}

function claimsOfModel(model: NaiveIPCache): unknown {
  return KEYS.map((key) =>
    model.on(key).map(({ claim }) => [claim.source, claim.owner ?? '', attributes(claim)]),
  );
}

interface Interleaved {
  readonly by: Writer;
  readonly limit: number;
  /** Writes between the steps, one after each. */
  readonly between: readonly Operation[];
}

const interleaved: fc.Arbitrary<Interleaved> = fc.record({
  by: writer,
  limit: fc.integer({ min: 1, max: 3 }),
  between: singles,
});

/** Withdraws in steps and writes between them. Calls `verify` after each step and each write. */
function interleave(
  cache: IPCache,
  { by, limit, between }: Interleaved,
  verify: (written?: Operation) => void,
): void {
  const writes = between.values();
  for (const step of cache.withdrawSteps(by, limit)) {
    expect(step).toBeLessThanOrEqual(limit);
    verify();
    const next = writes.next();
    if (next.done) continue;
    apply(cache, next.value);
    verify(next.value);
  }
}

/** A cache with entries of one writer and of many others. */
function filled(entries: number, mine: (i: number) => boolean): IPCache {
  const cache = new IPCache();
  for (let i = 0; i < entries; i++) {
    const owner = mine(i) ? 'baltic' : 'atlantic';
    const ip = `10.${i >>> 16}.${(i >>> 8) & 255}.${i & 255}`;
    cache.upsert(ip, { identity: 256 + (i % 100), source: 'clustermesh', owner });
  }
  return cache;
}

const BALTIC: Writer = { source: 'clustermesh', owner: 'baltic' };

afterEach(() => {
  vi.restoreAllMocks();
});

describe('a withdrawal in steps', () => {
  it('ends like one in a single step after the concurrent writes', () => {
    fc.assert(
      fc.property(history, interleaved, (before, steps) => {
        const [cache, model] = [new IPCache(), new NaiveIPCache(true)];
        for (const operation of before) {
          apply(cache, operation);
          applyNaively(model, operation);
        }
        interleave(cache, steps, (written) => {
          if (written !== undefined) applyNaively(model, written);
        });
        model.withdraw(steps.by);
        expect(claimsOf(cache)).toEqual(claimsOfModel(model));
      }),
    );
  });

  it('is a sequence of batches after each of which the cache is consistent', () => {
    const modes = fc.record({ retainOverruled: fc.boolean(), maxEntries: fc.constantFrom(3, 100) });
    fc.assert(
      fc.property(history, interleaved, modes, (before, steps, options) => {
        const cache = new IPCache(options);
        const folded = new FoldingListener();
        cache.subscribe(folded);
        for (const operation of before) apply(cache, operation);
        interleave(cache, steps, () => {
          expect([
            ...folded.complaints,
            ...foldEqualsDump(cache, folded),
            ...identityIsInverse(cache),
          ]).toEqual([]);
        });
      }),
    );
  });

  it('leaves nothing of its writer, including waiting claims', () => {
    fc.assert(
      fc.property(history, writer, fc.boolean(), fc.constantFrom(1, 3, 100), (before, by, retain, room) => {
        const cache = new IPCache({ retainOverruled: retain, maxEntries: room });
        for (const operation of before) apply(cache, operation);
        interleave(cache, { by, limit: 2, between: [] }, () => {});
        const claims = [...KEYS.flatMap((key) => cache.explain(key)?.claims ?? []), ...cache.waiting()];
        expect(
          claims.filter(({ source, owner }) => source === by.source && owner === (by.owner ?? '')),
        ).toEqual([]);
      }),
    );
  });

  it('deletes at most 512 of 10,000 claims at a time', () => {
    const cache = filled(20_000, (i) => i % 2 === 0);
    const told: number[] = [];
    cache.subscribe({ onChanges: (changes) => told.push(changes.length) });
    told.length = 0;
    const steps = [...cache.withdrawSteps(BALTIC)];
    expect(Math.max(...steps)).toBe(512);
    expect(told).toEqual(steps);
    expect(steps.reduce((sum, step) => sum + step, 0)).toBe(10_000);
    expect(cache.status()).toMatchObject({ entries: 10_000, outcomes: { deleted: 10_000 } });
  });

  it('does not scan 20,000 entries at a time to find the last claim', () => {
    const cache = filled(20_000, (i) => i === 19_999);
    const looks = vi.spyOn(RowReader.prototype, 'writerID');
    const steps = cache.withdrawSteps(BALTIC, 50);
    let taken = 0;
    for (let next = steps.next(); next.done !== true; next = steps.next()) {
      expect(looks.mock.calls.length).toBeLessThanOrEqual(50 * 128 + 10);
      looks.mockClear();
      taken += next.value;
    }
    expect(taken).toBe(1);
  });

  it('scans the pages that have claims of its writer, and no page twice', () => {
    const pages = 20;
    const cache = filled(pages * PAGE_ROWS, (i) => i === 0 || i === pages * PAGE_ROWS - 1);
    const [first, last] = [...cache.entries()].filter(({ owner }) => owner === BALTIC.owner);
    const looks = vi.spyOn(RowReader.prototype, 'writerID');
    const looksOf = (action: () => unknown): number => {
      looks.mockClear();
      action();
      return looks.mock.calls.length;
    };
    cache.delete(first?.key ?? '', BALTIC);
    expect(looksOf(() => expect(cache.withdraw(BALTIC)).toBe(1))).toBeGreaterThanOrEqual(2 * PAGE_ROWS);
    cache.upsert(last?.key ?? '', { ...BALTIC, identity: 300 });
    const again = looksOf(() => expect(cache.withdraw(BALTIC)).toBe(1));
    expect(again).toBeGreaterThanOrEqual(PAGE_ROWS);
    expect(again).toBeLessThan(PAGE_ROWS + 10);
  });

  it('keeps overruled claims in maps that are never copied or scanned completely, however many there are', () => {
    const cache = filled(5 * PAGE_ROWS, () => true);
    const set = Map.prototype.set;
    let largest = 0;
    vi.spyOn(Map.prototype, 'set').mockImplementation(function (this: Map<unknown, unknown>, key, value) {
      set.call(this, key, value);
      largest = Math.max(largest, this.size);
      return this;
    });
    const addToSet = vi.spyOn(Set.prototype, 'add');
    for (const { key } of cache.entries()) cache.upsert(key, { source: 'generated', identity: 300 });
    expect(cache.status().overruledClaims).toBe(5 * PAGE_ROWS);
    expect(largest).toBeLessThanOrEqual(PAGE_ROWS);
    expect(addToSet).not.toHaveBeenCalled();
  });

  it('scans nothing if its writer has no claim', () => {
    const cache = filled(1000, () => false);
    const looks = vi.spyOn(RowReader.prototype, 'writerID');
    expect(cache.withdraw(BALTIC)).toBe(0);
    expect([...cache.withdrawSteps(BALTIC)]).toEqual([]);
    expect(looks).not.toHaveBeenCalled();
  });

  it('keeps the remainder if it is ended early, and a later one continues', () => {
    const cache = filled(20, () => true);
    for (const _ of cache.withdrawSteps(BALTIC, 8)) break;
    expect(cache.size).toBe(12);
    expect(cache.withdraw(BALTIC)).toBe(12);
    expect(cache.size).toBe(0);
  });

  it('rejects an invalid writer, and a step size of zero', () => {
    const cache = filled(2, () => true);
    expect([...cache.withdrawSteps({ source: 'nobody' as 'k8s' })]).toEqual([]);
    expect(cache.status().outcomes).toMatchObject({ invalid: 1 });
    expect(() => cache.withdrawSteps(BALTIC, 0).next()).toThrow('at least 1');
  });
});
