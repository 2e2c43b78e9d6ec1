import { expect, it } from 'vitest';
import { KvstoreRates } from '../../src/agent/kvstore-rates.ts';
import { RateLimit, type RateLimitOptions } from '../../src/base/rate-limit.ts';
import { ManualClock } from '../base/support/manual-clock.ts';
import { advance } from '../kvstore/support/settle.ts';

/** Counts the calls that a client with these rates makes in ten seconds. */
function callsInTenSeconds(rates: RateLimitOptions): () => Promise<number> {
  const clock = new ManualClock();
  const limit = new RateLimit(rates, clock);
  let calls = 0;
  const ask = async (): Promise<void> => {
    for (;;) {
      await limit.turn();
      calls++;
    }
  };
  void ask();
  return async () => {
    const before = calls;
    await advance(clock, 10_000);
    return calls - before;
  };
}

it('new rates apply to existing clients of remote etcds (SIGHUP)', async () => {
  const rates = new KvstoreRates({ qps: 2, maxInflight: 3 });
  const calls = callsInTenSeconds(rates.remote);
  await calls();
  expect(await calls()).toBe(20);
  rates.change({ qps: 5, maxInflight: 4 });
  await calls();
  expect(await calls()).toBe(50);
  expect([rates.remote.maxInflight, rates.local.maxInflight]).toEqual([4, 4]);
});

it('the bootstrap rate applies to the local etcd only', async () => {
  const rates = new KvstoreRates({ qps: 2, bootstrapQps: 10 });
  expect(rates.remote.bootstrapQps).toBeUndefined();
  rates.change({ qps: 2, bootstrapQps: 20 });
  expect([rates.local.bootstrapQps, rates.remote.bootstrapQps]).toEqual([20, undefined]);
  const calls = callsInTenSeconds(rates.remote);
  await calls();
  expect(await calls()).toBe(20);
});

it('a rate that a change omits gets its default; options given at the start are kept', () => {
  const given = { qps: 2, maxInflight: 3 };
  const rates = new KvstoreRates(given);
  rates.change({ qps: 4 });
  expect([rates.local.maxInflight, rates.remote.maxInflight, given.maxInflight]).toEqual([
    undefined,
    undefined,
    3,
  ]);
  expect(new KvstoreRates(undefined).remote.qps).toBeUndefined();
});
