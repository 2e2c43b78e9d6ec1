import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Source } from '../../src/identity/source.ts';
import { IPCache } from '../../src/ipcache/ipcache.ts';
import { FoldingListener, foldEqualsDump, identityIsInverse } from './support/invariants.ts';
import { apply, history } from './support/operations.ts';

const claim = (source: Source, identity = 256): { source: Source; identity: number } => ({
  source,
  identity,
});

describe('a full cache', () => {
  it('lets in what waits as room appears, the strongest source first, then by arrival', () => {
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

  it('tells listeners of what leaves and what comes in together', () => {
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

  it('I8 names a prefix once where its counterpart takes the room (regression: ipcache-nested-subscribe, F)', () => {
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

  it('forgets what waits when its writer deletes or withdraws it', () => {
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

  it('takes a claim on a key that it holds, and lets what it overruled in with a key', () => {
    const cache = new IPCache({ maxEntries: 1 });
    cache.upsert('10.0.0.1', claim('k8s'));
    expect(cache.upsert('10.0.0.1', claim('kvstore', 300))).toBe('applied');
    cache.upsert('10.0.0.2', claim('generated', 400));
    cache.upsert('10.0.0.2', claim('local', 500));
    cache.withdraw({ source: 'k8s' });
    cache.withdraw({ source: 'kvstore' });
    expect(cache.explain('10.0.0.2')?.claims.map(({ identity }) => identity)).toEqual([500, 400]);
  });

  it('bounds what waits and counts what it had to drop', () => {
    const cache = new IPCache({ maxEntries: 1, maxWaiting: 1 });
    cache.upsert('10.0.0.1', claim('k8s'));
    cache.upsert('10.0.0.2', claim('k8s'));
    cache.upsert('10.0.0.3', claim('k8s'));
    expect(cache.status()).toMatchObject({ waiting: 1, dropped: 1, pressure: 1 });
  });

  it('gives what waits its place back when a batch throws that let it in or moved it', () => {
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

  it('keeps its invariants, holds as much as fits, and a batch that throws leaves nothing behind', () => {
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

describe('status', () => {
  it('counts keys by family, form and length, and the bytes they take', () => {
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
