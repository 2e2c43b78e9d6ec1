import { describe, expect, it } from 'vitest';
import type { ChangeBatch } from '../../src/ipcache/change-reader.ts';
import { IPCache } from '../../src/ipcache/ipcache.ts';
import { growthPerItem } from '../base/support/cpu-time.ts';

async function next(reader: AsyncIterator<ChangeBatch, undefined>): Promise<ChangeBatch> {
  const { value } = await reader.next();
  return value ?? expect.fail('the reader has ended');
}

describe('a reader of changes', () => {
  it('that is too far behind is resynced instead of an unbounded queue (I11)', async () => {
    const cache = new IPCache();
    const reader = cache.changes();
    await next(reader);
    const waiting = next(reader);
    cache.upsert('192.0.2.1', { identity: 1, source: 'kvstore' });
    await waiting;
    cache.batch(() => {
      for (let i = 0; i < 70_000; i++) {
        cache.upsert(`10.${i >>> 16}.${(i >>> 8) & 255}.${i & 255}`, { identity: 256, source: 'kvstore' });
      }
    });
    const batch = await next(reader);
    expect(batch.kind === 'resync' && batch.snapshot.size).toBe(70_001);
  });
});

it('many claims on one key cost time linear in their number: to set, change and delete', async () => {
  const growth = await growthPerItem(128, (count) => {
    const cache = new IPCache();
    const claims = Array.from(
      { length: count },
      (_, index) => ({ source: 'clustermesh', owner: `a/${(index * 7919) % 65_536}`, identity: 1 }) as const,
    );
    for (const claim of claims) cache.upsert('10.0.0.1', claim);
    for (const claim of claims) cache.upsert('10.0.0.1', { ...claim, identity: 2 });
    expect(cache.status()).toMatchObject({ overruledClaims: count - 1 });
    for (const claim of claims) cache.delete('10.0.0.1', claim);
    expect(cache.size).toBe(0);
  });
  expect(growth).toBeLessThan(6);
});

it('many claims that wait for one key cost time linear in their number: to set, change, admit and delete', async () => {
  const growth = await growthPerItem(128, (count) => {
    const cache = new IPCache({ maxEntries: 1 });
    const claims = Array.from(
      { length: count },
      (_, index) => ({ source: 'clustermesh', owner: `a/${(index * 7919) % 65_536}`, identity: 1 }) as const,
    );
    cache.upsert('10.0.0.2', { source: 'kvstore', identity: 1 });
    cache.batch(() => {
      for (const claim of claims) cache.upsert('10.0.0.1', claim);
      for (const claim of claims) cache.upsert('10.0.0.1', { ...claim, identity: 2 });
    });
    expect(cache.status()).toMatchObject({ entries: 1, waiting: 1 });
    for (const claim of claims.slice(1)) cache.delete('10.0.0.1', claim);
    for (const claim of claims) cache.upsert('10.0.0.1', claim);
    cache.delete('10.0.0.2', { source: 'kvstore' });
    expect(cache.status()).toMatchObject({ overruledClaims: count - 1, waiting: 0 });
  });
  expect(growth).toBeLessThan(6);
});
