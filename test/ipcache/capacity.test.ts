import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { IPCache } from '../../src/ipcache/ipcache.ts';
import type { Source } from '../../src/model/source.ts';
import { FoldingListener, foldEqualsDump, identityIsInverse } from './support/invariants.ts';
import { apply, history } from './support/operations.ts';

const claim = (source: Source, identity = 256): { source: Source; identity: number } => ({
  source,
  identity,
});

describe('a full cache', () => {
  it('admits waiting claims when there is room, the strongest source first, then by arrival', () => {
    const cache = new IPCache({ maxEntries: 1 });
    cache.upsert('10.0.0.1', claim('k8s'));
    expect(cache.upsert('10.0.0.2', claim('generated'))).toBe('capacity');
    expect(cache.upsert('10.0.0.3', claim('kvstore'))).toBe('capacity');
    expect(cache.upsert('10.0.0.4', claim('kvstore'))).toBe('capacity');
    expect(Array.from(cache.waiting(), ({ key }) => key)).toEqual(['10.0.0.3', '10.0.0.4', '10.0.0.2']);
    const admitted: (string | undefined)[] = [];
    for (const key of ['10.0.0.1', '10.0.0.3', '10.0.0.4', '10.0.0.2']) {
      const source = cache.get(key)?.source ?? 'unspec';
      expect(cache.delete(key, { source })).toBe('applied');
      admitted.push([...cache.entries()][0]?.key);
    }
    expect(admitted).toEqual(['10.0.0.3', '10.0.0.4', '10.0.0.2', undefined]);
    expect(cache.status()).toMatchObject({ entries: 0, waiting: 0, highWater: 1, pressure: 0 });
  });

  it('notifies listeners of removed and admitted entries together', () => {
    const cache = new IPCache({ maxEntries: 1 });
    cache.upsert('10.0.0.1', claim('k8s'));
    cache.upsert('10.0.0.2', claim('k8s'));
    const told: string[][] = [];
    cache.subscribe({
      onChanges: (changes) => told.push(changes.map(({ kind, prefix }) => `${kind} ${prefix}`)),
    });
    cache.delete('10.0.0.1', { source: 'k8s' });
    expect(told.at(-1)).toEqual(['delete 10.0.0.1/32', 'upsert 10.0.0.2/32']);
  });

  it('I8 reports a prefix once if its counterpart takes the room (regression: ipcache-nested-subscribe, F)', () => {
    const cache = new IPCache({ maxEntries: 1 });
    cache.upsert('10.0.0.1', claim('k8s', 300));
    expect(cache.upsert('10.0.0.1/32', claim('k8s', 400))).toBe('capacity');
    const deliveries: string[] = [];
    cache.subscribe({
      onChanges: (changes) =>
        deliveries.push(changes.map((c) => `${c.prefix}: ${c.old?.identity} to ${c.new?.identity}`).join()),
    });
    cache.delete('10.0.0.1', { source: 'k8s' });
    expect(deliveries).toEqual(['10.0.0.1/32: undefined to 300', '10.0.0.1/32: 300 to 400']);
  });

  it('forgets a waiting claim if its writer deletes or withdraws it', () => {
    const cache = new IPCache({ maxEntries: 1 });
    cache.upsert('10.0.0.1', claim('k8s'));
    cache.upsert('10.0.0.2', claim('k8s'));
    cache.upsert('10.0.0.3', claim('kvstore'));
    expect(cache.delete('10.0.0.2', { source: 'local' })).toBe('not-found');
    expect(cache.delete('10.0.0.2', { source: 'k8s' })).toBe('applied');
    expect(cache.withdraw({ source: 'kvstore' })).toBe(1);
    cache.delete('10.0.0.1', { source: 'k8s' });
    expect(cache.size).toBe(0);
  });

  it('accepts a claim on an existing key, and admits a waiting claim with its overruled ones', () => {
    const cache = new IPCache({ maxEntries: 1 });
    cache.upsert('10.0.0.1', claim('k8s'));
    expect(cache.upsert('10.0.0.1', claim('kvstore', 300))).toBe('applied');
    cache.upsert('10.0.0.2', claim('generated', 400));
    cache.upsert('10.0.0.2', claim('local', 500));
    cache.withdraw({ source: 'k8s' });
    cache.withdraw({ source: 'kvstore' });
    expect(cache.explain('10.0.0.2')?.claims.map(({ identity }) => identity)).toEqual([500, 400]);
  });

  it('limits the number of waiting claims and counts dropped ones', () => {
    const cache = new IPCache({ maxEntries: 1, maxWaiting: 1 });
    cache.upsert('10.0.0.1', claim('k8s'));
    cache.upsert('10.0.0.2', claim('k8s'));
    cache.upsert('10.0.0.3', claim('k8s'));
    expect(cache.status()).toMatchObject({ waiting: 1, dropped: 1, pressure: 1 });
  });

  it('restores the order of waiting claims if a batch throws that admitted or moved them', () => {
    const cache = new IPCache({ maxEntries: 1 });
    cache.upsert('10.0.0.1', claim('k8s'));
    for (const ip of ['10.0.0.2', '10.0.0.3', '10.0.0.4']) cache.upsert(ip, claim('k8s'));
    const before = [...cache.waiting()];
    const failing = (): void =>
      cache.batch(() => {
        cache.delete('10.0.0.2', { source: 'k8s' });
        cache.upsert('10.0.0.2', claim('k8s'));
        cache.upsert('10.0.0.3', claim('local'));
        expect(Array.from(cache.waiting(), ({ key }) => key)).toEqual([
          '10.0.0.3',
          '10.0.0.3',
          '10.0.0.4',
          '10.0.0.2',
        ]);
        throw new Error('taken back');
      });
    expect(failing).toThrow('taken back');
    expect([...cache.waiting()]).toEqual(before);
    cache.delete('10.0.0.1', { source: 'k8s' });
    expect(cache.get('10.0.0.2')).toBeDefined();
  });

  it('keeps its invariants, admits as much as fits, and undoes a batch that throws', () => {
    fc.assert(
      fc.property(history, fc.integer({ min: 1, max: 4 }), (operations, maxEntries) => {
        const cache = new IPCache({ maxEntries });
        const folded = new FoldingListener();
        cache.subscribe(folded);
        for (const operation of operations) {
          const before = [...cache.waiting()];
          const outcome = apply(cache, operation);
          if (outcome === 'threw') expect([...cache.waiting()]).toEqual(before);
          expect([
            ...folded.complaints,
            ...foldEqualsDump(cache, folded),
            ...identityIsInverse(cache),
          ]).toEqual([]);
          expect(cache.size).toBeLessThanOrEqual(maxEntries);
          if (cache.status().waiting > 0) expect(cache.size).toBe(maxEntries);
          for (const { key } of cache.waiting()) expect(cache.get(key)).toBeUndefined();
        }
      }),
    );
  });
});

/** A cache with room for one entry: `10.0.0.1` has it, `10.0.0.2` waits. */
function fullCache(): { readonly cache: IPCache; readonly told: unknown[] } {
  const cache = new IPCache({ maxEntries: 1 });
  const told: unknown[] = [];
  cache.subscribeOwners({
    onOwnerChanges: (changes) =>
      void told.push(...changes.map((one) => [one.key, one.previous?.source, one.current?.source])),
  });
  cache.upsert('10.0.0.1', claim('k8s'));
  cache.upsert('10.0.0.2', claim('generated'));
  return { cache, told };
}

describe('a waiting claim', () => {
  const keysOf = (cache: IPCache): readonly string[] => Array.from(cache.entries(), ({ key }) => key);

  it('is admitted at the end of the outermost batch, and owner listeners are notified', () => {
    const { cache, told } = fullCache();
    const seen: unknown[] = [];
    cache.batch(() => {
      cache.batch(() => cache.delete('10.0.0.1', { source: 'k8s' }));
      seen.push(keysOf(cache));
    });
    seen.push(keysOf(cache));
    expect(seen).toEqual([[], ['10.0.0.2']]);
    expect(told).toEqual([['10.0.0.2', undefined, 'generated']]);
  });

  it('is added to an entry of its key that was created in the meantime, and kept', () => {
    const { cache, told } = fullCache();
    cache.batch(() => {
      cache.delete('10.0.0.1', { source: 'k8s' });
      cache.upsert('10.0.0.2', claim('kvstore'));
    });
    expect([...cache.waiting()]).toEqual([]);
    expect(cache.explain('10.0.0.2')?.claims.map(({ source }) => source)).toEqual(['kvstore', 'generated']);
    expect(told).toEqual([]);
  });

  it('can be deleted by its writer only, also before it is admitted', () => {
    const { cache } = fullCache();
    cache.batch(() => {
      cache.delete('10.0.0.1', { source: 'k8s' });
      expect(cache.delete('10.0.0.2', { source: 'k8s' })).toBe('not-found');
      expect(cache.delete('10.0.0.2', { source: 'generated' })).toBe('applied');
    });
    expect([keysOf(cache), [...cache.waiting()]]).toEqual([[], []]);
  });

  it('may be limited to fewer than there is room for', () => {
    const cache = new IPCache({ maxEntries: 2 });
    for (const host of [1, 2, 3]) cache.upsert(`10.0.0.${host}`, claim('k8s'));
    cache.batch(() => ['10.0.0.1', '10.0.0.2'].map((key) => cache.delete(key, { source: 'k8s' })));
    expect(keysOf(cache)).toEqual(['10.0.0.3']);
  });

  it('counts as a step of a withdrawal', () => {
    const cache = new IPCache({ maxEntries: 4 });
    for (let host = 0; host < 8; host++) cache.upsert(`10.0.0.${host}`, claim('k8s'));
    expect([...cache.withdrawSteps({ source: 'k8s' }, 3)]).toEqual([3, 3, 2]);
  });
});

describe('status', () => {
  it('contains the fill level of the cache', () => {
    const pressures = [1, 2, 4, 5].map((keys) => {
      const cache = new IPCache({ maxEntries: 4 });
      for (let host = 0; host < keys; host++) cache.upsert(`10.0.0.${host}`, claim('k8s'));
      return cache.status().pressure;
    });
    expect(pressures).toEqual([0.25, 0.5, 1, 1]);
    expect(new IPCache().status()).toMatchObject({ maxEntries: 'unlimited', pressure: 0 });
    expect(new IPCache({ maxEntries: 4 }).status().maxEntries).toBe(4);
  });

  it('counts the outcomes of calls, and the rejections by reason', () => {
    const rejected: unknown[] = [];
    const cache = new IPCache({
      maxEntries: 1,
      onReject: ({ reason, at }) => void rejected.push([reason, at]),
    });
    for (const each of [claim('k8s'), claim('k8s'), claim('generated')]) cache.upsert('10.0.0.1', each);
    cache.upsert('10.0.0.2', claim('k8s'));
    cache.delete('10.0.0.1', { source: 'kvstore' });
    cache.delete('10.0.0.3', { source: 'k8s' });
    for (const by of [undefined, null, 7, { source: 'nobody' }])
      cache.delete('10.0.0.1', by as { source: 'k8s' });
    cache.withdraw({ source: 'nobody' as 'k8s' });
    cache.delete('10.0.0.1', { source: 'k8s' });
    expect(cache.status().outcomes).toEqual({
      applied: 1,
      unchanged: 1,
      overruled: 1,
      deleted: 1,
      capacity: 1,
      'not-found': 1,
      'not-owner': 1,
      invalid: 5,
    });
    expect(rejected).toEqual([
      ...[1, 2, 3].map(() => ['invalid-writer', '10.0.0.1']),
      ['unknown-source', '10.0.0.1'],
      ['unknown-source', 'withdraw'],
    ]);
  });

  it('counts keys by family, form and length, and their bytes', () => {
    const cache = new IPCache();
    cache.upsert('10.0.0.1', claim('k8s'));
    cache.upsert('10.0.0.1/32', claim('generated'));
    cache.upsert('10.0.0.0/8', claim('generated'));
    cache.upsert('fd00::/64', claim('generated'));
    const { ipv4, ipv6, bytes, shadowed, entriesBySource } = cache.status();
    expect(ipv4).toEqual({
      endpoints: 1,
      cidrs: { 8: 1, 32: 1 },
    });
    expect(ipv6).toEqual({ endpoints: 0, cidrs: { 64: 1 } });
    expect(shadowed).toBe(1);
    expect(entriesBySource).toEqual({ k8s: 1, generated: 3 });
    expect(bytes).toBeGreaterThan(0);
  });
});
