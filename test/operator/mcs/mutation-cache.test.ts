import { describe, expect, it } from 'vitest';
import type { KubernetesObject } from '../../../src/k8s/resource.ts';
import { MutationCache } from '../../../src/operator/mcs/mutation-cache.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';

const object = (resourceVersion: string, uid = 'u1'): KubernetesObject => ({
  metadata: { namespace: 'shop', name: 'cart', uid, resourceVersion },
});
const KEY = 'services shop/cart';
const [old, written] = [object('1'), object('2')];

describe('the result of a write', () => {
  it('is the latest state until its event arrives, and not until another one does', () => {
    const cache = new MutationCache(new ManualClock());
    cache.set(KEY, 'u1', written, old);
    cache.observe('services', { type: 'put', object: old });
    cache.observe('serviceimports', { type: 'put', object: written });
    cache.observe('services', { type: 'delete', object: object('1', 'u0') });
    expect(cache.latest(KEY, old)).toBe(written);
    cache.observe('services', { type: 'put', object: written });
    expect([cache.latest(KEY, old), cache.waitMs(KEY)]).toEqual([old, 0]);
  });

  it('that is a delete is the latest state until the object with its uid is deleted', () => {
    const cache = new MutationCache(new ManualClock());
    cache.set(KEY, 'u1', undefined, old);
    cache.observe('services', { type: 'put', object: old });
    expect(cache.latest(KEY, old)).toBeUndefined();
    cache.observe('services', { type: 'delete', object: old });
    expect(cache.latest(KEY, old)).toBe(old);
  });

  it('is used for 10 s, or without limit if writes are only printed', () => {
    const clock = new ManualClock();
    const [cache, printed] = [new MutationCache(clock), new MutationCache(clock, Number.POSITIVE_INFINITY)];
    for (const one of [cache, printed]) one.set(KEY, 'u1', written, old);
    expect(cache.waitMs(KEY)).toBe(10_000);
    clock.advance(9_999);
    expect([cache.latest(KEY, old), cache.waitMs(KEY)]).toEqual([written, 1]);
    clock.advance(1);
    expect([cache.latest(KEY, old), cache.waitMs(KEY)]).toEqual([old, 0]);
    clock.advance(1_000_000);
    expect(printed.latest(KEY, old)).toBe(written);
  });

  it('that the watch has delivered before the answer is not recorded, and replaces an earlier one', () => {
    const cache = new MutationCache(new ManualClock());
    cache.set(KEY, 'u1', written, old);
    cache.set(KEY, 'u1', object('3'), object('3'));
    expect(cache.latest(KEY, old)).toBe(old);
    cache.set(KEY, 'u1', written, old);
    cache.clear();
    expect(cache.latest(KEY, old)).toBe(old);
  });
});
