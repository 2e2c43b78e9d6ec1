import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { IPCache } from '../../src/ipcache/ipcache.ts';
import type { IPCacheOptions } from '../../src/ipcache/status.ts';
import type { Claim, PrefixDeleteOptions } from '../../src/ipcache/types.ts';
import { type Operation, singles } from './support/operations.ts';

/** Writes of one kind in a row: claims, or deletes by one writer. */
type Run =
  | { readonly kind: 'upsert'; readonly keys: string[]; readonly claims: Claim[] }
  | { readonly kind: 'delete'; readonly keys: string[]; readonly by: PrefixDeleteOptions };

function runsOf(operations: readonly Operation[]): readonly Run[] {
  const runs: Run[] = [];
  for (const operation of operations) {
    const last = runs.at(-1);
    if (operation.op === 'upsert') {
      const run = last?.kind === 'upsert' ? last : { kind: 'upsert' as const, keys: [], claims: [] };
      if (run !== last) runs.push(run);
      run.keys.push(operation.at.text);
      run.claims.push(operation.claim);
    } else if (operation.op === 'delete') {
      const by = { ...operation.by, ifPod: operation.ifPod };
      const same = last?.kind === 'delete' && JSON.stringify(last.by) === JSON.stringify(by);
      if (same) last.keys.push(operation.at.text);
      else runs.push({ kind: 'delete', keys: [operation.at.text], by });
    }
  }
  return runs;
}

function oneByOne(cache: IPCache, run: Run): readonly unknown[] {
  if (run.kind === 'delete') return run.keys.map((key) => cache.delete(key, run.by));
  return run.keys.map((key, i) => cache.upsert(key, run.claims[i] as Claim));
}

function atOnce(cache: IPCache, run: Run): readonly unknown[] {
  return run.kind === 'delete' ? cache.deleteMany(run.keys, run.by) : cache.upsertMany(run.keys, run.claims);
}

/** A cache and all that it has told. */
function observed(options: IPCacheOptions): { readonly cache: IPCache; readonly told: unknown[] } {
  const cache = new IPCache(options);
  const told: unknown[] = [];
  cache.subscribe({ onChanges: (changes) => void told.push(['changes', changes]) });
  cache.subscribeOwners({ onOwnerChanges: (changes) => void told.push(['owners', changes]) });
  return { cache, told };
}

function stateOf(cache: IPCache): unknown {
  return [[...cache.entries({ includeShadowed: true })], [...cache.waiting()], cache.status()];
}

describe('many writes at once', () => {
  it.each([
    ['', {}],
    [' with room for three keys', { maxEntries: 3 }],
    [' where one claim a key is kept', { retainOverruled: false }],
  ])('equal single writes in order%s', (_, options) => {
    fc.assert(
      fc.property(singles, fc.boolean(), (operations, inBatch) => {
        const [one, many] = [observed(options), observed(options)];
        const within = (cache: IPCache, write: () => unknown): unknown =>
          inBatch ? cache.batch(write) : write();
        for (const run of runsOf(operations)) {
          const wanted = within(one.cache, () => oneByOne(one.cache, run));
          expect(within(many.cache, () => atOnce(many.cache, run))).toEqual(wanted);
        }
        expect(many.told).toEqual(one.told);
        expect(stateOf(many.cache)).toEqual(stateOf(one.cache));
      }),
    );
  });

  it('equal single writes for more keys than a block has, including invalid and repeated ones', () => {
    const keys = Array.from({ length: 1000 }, (_, i) =>
      i % 7 === 0 ? `nonsense ${i}` : `10.0.${i & 3}.${i % 250}`,
    );
    const claims = keys.map((_, i): Claim => ({ identity: i % 11 === 0 ? -1 : i, source: 'k8s' }));
    const [one, many] = [observed({}), observed({})];
    for (const run of [
      { kind: 'upsert', keys, claims },
      { kind: 'delete', keys: keys.slice(100, 900), by: { source: 'k8s' } },
      { kind: 'delete', keys: [], by: { source: 'k8s' } },
    ] as const satisfies readonly Run[]) {
      expect(atOnce(many.cache, run)).toEqual(oneByOne(one.cache, run));
    }
    expect(many.told).toEqual(one.told);
    expect(stateOf(many.cache)).toEqual(stateOf(one.cache));
  });

  it('reject each invalid claim, key or writer', () => {
    const cache = new IPCache();
    const claims = [undefined, { identity: 1, source: 'k8s' }, null] as unknown as Claim[];
    expect(cache.upsertMany(['10.0.0.1', '10.0.0.2', '10.0.0.3'], claims)).toEqual([
      'invalid',
      'applied',
      'invalid',
    ]);
    const keys = [undefined, '10.0.0.2', 7] as unknown as string[];
    expect(cache.deleteMany(keys, { source: 'nobody' as 'k8s' })).toEqual(['invalid', 'invalid', 'invalid']);
    expect(cache.deleteMany(keys, { source: 'k8s' })).toEqual(['invalid', 'applied', 'invalid']);
    expect(() => cache.upsertMany(['10.0.0.1'], [])).toThrow(/same length/);
  });

  it('may be written by one of their listeners, and continue', () => {
    const cache = new IPCache();
    const claim = { identity: 1, source: 'k8s' } as const;
    let told = 0;
    cache.subscribe({
      onChanges: () => {
        if (told++ === 0) cache.upsertMany(['fd00::1', 'fd00::2'], [claim, claim]);
      },
    });
    expect(cache.upsertMany(['10.0.0.1', '10.0.0.2'], [claim, claim])).toEqual(['applied', 'applied']);
    expect([...cache.entries()].map(({ key }) => key).sort()).toEqual([
      '10.0.0.1',
      '10.0.0.2',
      'fd00::1',
      'fd00::2',
    ]);
    expect(told).toBe(4);
  });
});
