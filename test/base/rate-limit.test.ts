import { getEventListeners } from 'node:events';
import { describe, expect, it } from 'vitest';
import { RateLimit } from '../../src/base/rate-limit.ts';
import { advance, settle } from '../kvstore/support/settle.ts';
import { growthPerItem } from './support/cpu-time.ts';
import { ManualClock } from './support/manual-clock.ts';

/** Requests `count` turns at the same time. Returns the times at which they were granted. */
function ask(limit: RateLimit, clock: ManualClock, count: number): number[] {
  const at: number[] = [];
  for (let i = 0; i < count; i++) void limit.turn().then(() => at.push(clock.now()));
  return at;
}

describe('a rate limit', () => {
  it('admits the calls of one second immediately, and the others one by one', async () => {
    const clock = new ManualClock();
    const at = ask(new RateLimit({ qps: 10 }, clock), clock, 13);
    await advance(clock, 1000);
    expect(at).toEqual([...new Array(10).fill(0), 100, 200, 300]);
  });

  it('keeps the rate over time, also for sequential callers', async () => {
    const clock = new ManualClock();
    const limit = new RateLimit({ qps: 10 }, clock);
    let turns = 0;
    const asking = (async () => {
      while (clock.now() < 5000) {
        await limit.turn();
        turns++;
      }
    })();
    await advance(clock, 6000);
    await asking;
    expect(turns).toBe(10 + 50);
  });

  it('is higher until the writes of the start are done', async () => {
    const clock = new ManualClock();
    const limit = new RateLimit({ qps: 1, bootstrapQps: 100 }, clock);
    const first = ask(limit, clock, 100);
    await settle();
    expect(first).toHaveLength(100);
    limit.endBootstrap();
    const then = ask(limit, clock, 3);
    await advance(clock, 3000);
    expect(then).toEqual([10, 1010, 2010]);
  });

  it('applies a limit that is set after calls without a limit', async () => {
    const clock = new ManualClock();
    const options: { qps?: number } = {};
    const limit = new RateLimit(options, clock);
    expect(ask(limit, clock, 100)).toEqual([]);
    await settle();
    options.qps = 10;
    const at = ask(limit, clock, 12);
    await advance(clock, 1000);
    expect(at).toEqual([...new Array(10).fill(0), 100, 200]);
  });

  it('applies changed options from the next turn', async () => {
    const clock = new ManualClock();
    const options = { qps: 1, maxInflight: 1 };
    const limit = new RateLimit(options, clock);
    const at = ask(limit, clock, 4);
    await advance(clock, 500);
    options.qps = 10;
    await advance(clock, 2000);
    expect(at).toEqual([0, 1000, 1100, 1200]);

    let running = 0;
    const ends: (() => void)[] = [];
    const call = (): Promise<void> => {
      running++;
      return new Promise<void>((resolve) => void ends.push(resolve)).then(() => void running--);
    };
    const calls = Array.from({ length: 6 }, () => limit.run(call));
    await settle();
    expect(running).toBe(1);
    options.maxInflight = 3;
    ends.shift()?.();
    await settle();
    expect(running).toBe(3);
    options.maxInflight = 2;
    ends.shift()?.();
    await settle();
    expect(running).toBe(2);
    options.maxInflight = 9;
    const late = limit.run(call);
    while (ends.length > 0) {
      ends.shift()?.();
      await settle();
    }
    await advance(clock, 1000);
    for (const end of ends) end();
    await Promise.all([...calls, late]);
  });

  it('notifies a caller that aborts', async () => {
    const clock = new ManualClock();
    const limit = new RateLimit({ qps: 1 }, clock);
    await limit.turn();
    const controller = new AbortController();
    const waiting = limit.turn(controller.signal);
    controller.abort();
    await expect(waiting).rejects.toMatchObject({ code: 'aborted' });
  });

  it('serves in order if some callers abort (regression: later callers went first)', async () => {
    const clock = new ManualClock();
    const limit = new RateLimit({ qps: 10 }, clock);
    for (let i = 0; i < 10; i++) await limit.turn();
    const controller = new AbortController();
    const gone = [1, 2, 3].map(() => limit.turn(controller.signal).catch(() => 'gone'));
    const at = ask(limit, clock, 2);
    controller.abort();
    await Promise.all(gone);
    const late = ask(limit, clock, 1);
    await advance(clock, 1000);
    expect([at, late]).toEqual([[100, 200], [300]]);
  });

  it('serves in order if the rate rises (regression: later callers went first)', async () => {
    const clock = new ManualClock();
    const limit = new RateLimit({ qps: 100, bootstrapQps: 1 }, clock);
    const before = ask(limit, clock, 4);
    limit.endBootstrap();
    const after = ask(limit, clock, 1);
    await advance(clock, 2000);
    expect([before, after]).toEqual([[0, 1000, 1010, 1020], [1030]]);
  });

  it('leaves no timer and no listener after all callers aborted', async () => {
    const clock = new ManualClock();
    const limit = new RateLimit({ qps: 1, maxInflight: 2 }, clock);
    await limit.turn();
    const controller = new AbortController();
    const calls = [1, 2, 3].map(() => limit.run(() => Promise.resolve(), controller.signal));
    await settle();
    controller.abort();
    for (const call of calls) await expect(call).rejects.toMatchObject({ code: 'aborted' });
    expect(getEventListeners(controller.signal, 'abort')).toEqual([]);
    expect(clock.nextAt).toBeUndefined();
  });

  it('limits the concurrent calls, and admits the next as soon as one ends', async () => {
    const limit = new RateLimit({ maxInflight: 2 }, new ManualClock());
    const over: (() => void)[] = [];
    const call = (): Promise<void> => new Promise((resolve) => over.push(resolve));
    const calls = [1, 2, 3, 4].map(() => limit.run(call));
    await settle();
    expect(over).toHaveLength(2);
    over[0]?.();
    await settle();
    expect(over).toHaveLength(3);
    for (const end of over) end();
    await settle();
    over[3]?.();
    await Promise.all(calls);
  });

  it('allows as many concurrent calls as its rate per second, and at least one', async () => {
    for (const [qps, expected] of [
      [3, 3],
      [0.1, 1],
    ] as const) {
      const clock = new ManualClock();
      const limit = new RateLimit({ qps, bootstrapQps: 1000 }, clock);
      let underWay = 0;
      for (let i = 0; i < 10; i++) {
        void limit.run(() => {
          underWay++;
          return new Promise<void>(() => {});
        });
      }
      await advance(clock, 60_000);
      expect(underWay).toBe(expected);
    }
  });

  it('frees the place of a failed call; an aborted caller is notified and not admitted', async () => {
    const limit = new RateLimit({ maxInflight: 1 }, new ManualClock());
    let fail = (): void => {};
    const first = limit.run(
      () =>
        new Promise<never>((_resolve, reject) => {
          fail = () => reject(new Error('it failed'));
        }),
    );
    const controller = new AbortController();
    let made = false;
    const second = limit.run(async () => {
      made = true;
    }, controller.signal);
    const third = limit.run(() => Promise.resolve('third'));
    controller.abort();
    await expect(second).rejects.toMatchObject({ code: 'aborted' });
    await settle();
    fail();
    await expect(first).rejects.toThrow('it failed');
    expect(await third).toBe('third');
    expect(made).toBe(false);
  });

  it('admits 160,000 callers at a constant cost for each', async () => {
    const growth = await growthPerItem(10_000, async (callers) => {
      const limit = new RateLimit({ maxInflight: 1 }, new ManualClock());
      let turns = 0;
      const call = (): Promise<number> => Promise.resolve(turns++);
      await Promise.all(Array.from({ length: callers }, () => limit.run(call)));
      expect(turns).toBe(callers);
    });
    expect(growth).toBeLessThan(6);
  });
});
