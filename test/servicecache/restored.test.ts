import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { createBackend } from '../../src/servicecache/backend.ts';
import type { ServiceCache } from '../../src/servicecache/service-cache.ts';
import type { ServiceID } from '../../src/servicecache/service-id.ts';
import { leastCpuTime } from '../base/support/cpu-time.ts';
import { FoldingListener } from './support/folding-listener.ts';
import { NaiveServiceCache } from './support/naive-service-cache.ts';
import { apply, CLUSTERS, history, IDS, OWN_CLUSTER } from './support/operations.ts';
import { text } from './support/plain.ts';
import { cacheOf, offer, SHOP, service, slice, transcript } from './support/scene.ts';

function restoredOf(cache: ServiceCache): ServiceCache {
  const next = cacheOf({ clusterName: OWN_CLUSTER });
  for (const part of cache.parts()) next.restorePart(part);
  return next;
}

function release(cache: ServiceCache, cluster: string, limit?: number): void {
  for (const _ of cache.withdrawRestoredSteps(cluster, limit));
}

function viewOf(cache: ServiceCache): string {
  const listener = new FoldingListener();
  cache.subscribe(listener)();
  return text(listener.view());
}

describe('services restored from a checkpoint', () => {
  it('equal the written ones', () => {
    fc.assert(
      fc.property(history, (operations) => {
        const cache = cacheOf({ clusterName: OWN_CLUSTER });
        for (const operation of operations) apply(cache, operation);
        const next = restoredOf(cache);
        for (const each of [cache, next]) each.markSynced();
        expect(viewOf(next)).toBe(viewOf(cache));
        expect(text([...next.parts()])).toBe(text([...cache.parts()]));
      }),
    );
  });

  it('leave nothing after the sources are complete, whatever was written in between', () => {
    const limits = fc.constantFrom(1, 2, undefined);
    fc.assert(
      fc.property(history, history, limits, (before, after, limit) => {
        const cache = cacheOf({ clusterName: OWN_CLUSTER });
        for (const operation of before) apply(cache, operation);
        const next = restoredOf(cache);
        const listener = new FoldingListener();
        next.subscribe(listener);
        const fresh = new NaiveServiceCache(OWN_CLUSTER, false);
        for (const operation of after) for (const each of [next, fresh]) apply(each, operation);
        for (const cluster of ['', ...CLUSTERS]) release(next, cluster, limit);
        for (const each of [next, fresh]) each.markSynced();
        expect(text(listener.view())).toBe(text(fresh.view()));
        expect(next.status()).toMatchObject(fresh.counts());
        expect(IDS.flatMap((id) => next.restoredFrom(id))).toEqual([]);
      }),
    );
  });

  it('are withdrawn in steps of few services if these have many backends (freeze: 128 services of any size)', () => {
    const cache = cacheOf();
    const backends = Array.from({ length: 1000 }, (_, i) =>
      createBackend({ address: `10.1.${i >> 8}.${i & 255}`, ports: [], cluster: 'c2' }),
    );
    for (let i = 0; i < 8; i++) {
      const id = { namespace: 'shop', name: `s${i}` };
      cache.updateService(service({ id, global: true }));
      cache.restorePart({ kind: 'offer', id, cluster: 'c2', backends });
    }
    expect([...cache.withdrawRestoredSteps('c2')]).toEqual([5, 3]);
  });

  it('cost the same in one service as in many (regression: the names of its restored parts were copied for each part)', async () => {
    const costOf = (idOf: (at: number) => ServiceID): Promise<number> =>
      leastCpuTime(() => {
        const cache = cacheOf();
        for (let at = 0; at < 8000; at++)
          cache.restorePart({ kind: 'slice', id: idOf(at), slice: slice(`a-${at}`, []) });
      });
    const inMany = await costOf((at) => ({ namespace: 'shop', name: `s${at}` }));
    expect(await costOf(() => SHOP)).toBeLessThan(20 * inMany);
  });

  const told = (): { cache: ServiceCache; lines: string[] } => {
    const cache = cacheOf();
    for (const part of [
      { kind: 'service', id: SHOP, service: service({ global: true }) } as const,
      { kind: 'slice', id: SHOP, slice: slice('a-1', ['10.0.0.1']) } as const,
    ])
      cache.restorePart(part);
    const old = cacheOf({ clusterName: 'other' });
    old.mergeExternalServiceUpdate(offer('east', ['10.9.0.1']));
    for (const part of old.parts()) cache.restorePart(part);
    const lines = transcript(cache);
    lines.length = 0;
    return { cache, lines };
  };

  it('are marked until each part is confirmed, and an equal write notifies no listener', () => {
    const { cache, lines } = told();
    expect(cache.restoredFrom(SHOP).toSorted()).toEqual(['', 'east']);
    expect(cache.updateService(service({ global: true }))).toBe('unchanged');
    expect(cache.updateEndpoints(slice('a-1', ['10.0.0.1']))).toBe('unchanged');
    expect(cache.restoredFrom(SHOP)).toEqual(['east']);
    expect(cache.mergeExternalServiceUpdate(offer('east', ['10.9.0.1']))).toBe('unchanged');
    expect(cache.restoredFrom(SHOP)).toEqual([]);
    for (const cluster of ['', 'east']) release(cache, cluster);
    expect(lines).toEqual([]);
  });

  it('are released in two passes: without a claim of Kubernetes, then without an offer of a cluster', () => {
    const { cache, lines } = told();
    cache.updateService(service({ global: true }));
    release(cache, '');
    release(cache, 'east');
    expect(lines).toEqual(['update shop/checkout east/10.9.0.1:8080', 'update shop/checkout']);
  });

  it('never replace a claim of a source', () => {
    const cache = cacheOf();
    cache.updateEndpoints(slice('a-1', ['10.0.0.2']));
    expect(cache.restorePart({ kind: 'slice', id: SHOP, slice: slice('a-1', ['10.0.0.1']) })).toBe(false);
    expect(cache.restoredFrom(SHOP)).toEqual([]);
  });

  it('are marked again if the batch that confirmed them is rolled back', () => {
    const { cache } = told();
    const fails = (): void =>
      cache.batch(() => {
        cache.updateEndpoints(slice('a-1', ['10.0.0.1']));
        throw new Error('no');
      });
    expect(fails).toThrow('no');
    release(cache, '');
    expect(cache.explain(SHOP)?.origins).toEqual([{ cluster: 'east', slice: '', backends: 1 }]);
  });
});
