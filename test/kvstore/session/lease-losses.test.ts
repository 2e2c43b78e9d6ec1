import { describe, expect, it } from 'vitest';
import { DeliveryQueue } from '../../../src/base/delivery-queue.ts';
import { CallbackGuard } from '../../../src/base/guard.ts';
import type { Unsubscribe } from '../../../src/base/subscription.ts';
import { LeaseLosses } from '../../../src/kvstore/session/lease-losses.ts';

describe('a listener of lost leases', () => {
  const losses = new LeaseLosses(new DeliveryQueue(new CallbackGuard()));
  const subscribe = (...scopes: readonly string[]): { keys: string[]; losing: number; end: Unsubscribe } => {
    const state = { keys: [] as string[], losing: 0 };
    const end = losses.subscribe({
      ...(scopes.length === 0 ? {} : { scopes }),
      onLeaseLost: (keys) => state.keys.push(...keys),
      onLeasesLost: () => state.losing++,
    });
    return Object.assign(state, { end });
  };

  it('receives the keys of its scopes: folders, whole keys, or all', () => {
    const [all, a, both] = [subscribe(), subscribe('p/a/'), subscribe('p/', 'canary')];
    losses.notifyLeaseLost(['p/a/1', 'p/ab/2', 'canary', 'p/', 'canary/3', '/4']);
    expect(all.keys).toEqual(['p/a/1', 'p/ab/2', 'canary', 'p/', 'canary/3', '/4']);
    expect(a.keys).toEqual(['p/a/1']);
    expect(both.keys).toEqual(['p/a/1', 'p/ab/2', 'p/', 'canary']);
    losses.notifyLeasesLost(Promise.resolve());
    expect([all.losing, a.losing, both.losing]).toEqual([1, 1, 2]);
    for (const { end } of [all, a, both]) end();
    losses.notifyLeaseLost(['p/a/1', 'canary']);
    expect([all.keys.length, a.keys.length, both.keys.length]).toEqual([6, 1, 4]);
  });

  it('of another prefix costs a lost key nothing (regression: each store examined each key)', () => {
    let calls = 0;
    const stores = Array.from({ length: 1000 }, (_, i) =>
      losses.subscribe({
        scopes: [`p/${i}/`],
        onLeaseLost: (keys) => {
          calls++;
          expect(keys).toEqual(['p/7/a', 'p/7/b']);
        },
      }),
    );
    losses.notifyLeaseLost(['p/7/a', 'p/x/a', 'p/7/b']);
    expect(calls).toBe(1);
    for (const end of stores) end();
  });
});
