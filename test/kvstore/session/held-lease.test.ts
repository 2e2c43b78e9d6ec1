import { describe, expect, it } from 'vitest';
import { clockReading, HeldLease } from '../../../src/kvstore/session/held-lease.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';

const HOUR_MS = 3_600_000;

interface World {
  readonly clock: ManualClock;
  readonly lease: HeldLease;
}

/** A lease that was requested at 0, with a key bound to it. */
function world(ttlSeconds: number, exclusive?: boolean): World {
  const clock = new ManualClock();
  const lease = new HeldLease('7', clockReading(clock), { clock, random: () => 0.5, ttlSeconds, exclusive });
  lease.size = 1;
  return { clock, lease };
}

const fails = (): Promise<never> => Promise.reject(new Error('out of reach'));

describe('a held lease', () => {
  it.each([
    [undefined, 100_000],
    [false, 100_000],
    [true, 90_000],
  ])('of 100 s expires in time: exclusive %s after %i ms', (exclusive, ms) => {
    const { clock, lease } = world(100, exclusive);
    clock.advance(ms - 1);
    expect(lease.isExpired).toBe(false);
    clock.advance(1);
    expect(lease.isExpired).toBe(true);
  });

  it('expires by the wall clock only if it is exclusive; a wall clock that is set back is ignored', () => {
    for (const exclusive of [false, true]) {
      const { clock, lease } = world(100, exclusive);
      clock.setWallTimeBy(HOUR_MS);
      expect(lease.isExpired).toBe(exclusive);
      clock.setWallTimeBy(-2 * HOUR_MS);
      expect(lease.isExpired).toBe(false);
      clock.advance(100_000);
      expect(lease.isExpired).toBe(true);
    }
  });

  it('is due after a third of its time, immediately if the wall clock requires it, and never without a key', async () => {
    const { clock, lease } = world(100);
    expect(lease.dueIn).toBe(33_334);
    clock.advance(20_000);
    expect(lease.dueIn).toBe(13_334);
    clock.setWallTimeBy(HOUR_MS);
    expect(lease.dueIn).toBeLessThanOrEqual(0);
    await lease.renew(() => Promise.resolve(100));
    expect(lease.dueIn).toBe(33_334);
    lease.size = 0;
    expect(lease.dueIn).toBe(Number.POSITIVE_INFINITY);
  });

  it('is not due during a request, and its time counts from the request', async () => {
    const { clock, lease } = world(100);
    clock.advance(40_000);
    let answer = (): void => {};
    const asking = lease.renew(
      () =>
        new Promise<number>((resolve) => {
          answer = () => resolve(100);
        }),
    );
    expect(lease.dueIn).toBe(Number.POSITIVE_INFINITY);
    clock.advance(10_000);
    answer();
    await asking;
    expect(lease.dueIn).toBe(23_334);
    clock.advance(89_999);
    expect(lease.isExpired).toBe(false);
    clock.advance(1);
    expect(lease.isExpired).toBe(true);
  });

  it('counts with the TTL of the last answer, because the server may raise it (regression: expired too early)', async () => {
    const { clock, lease } = world(100);
    await lease.renew(() => Promise.resolve(150));
    expect(lease.dueIn).toBe(50_000);
    clock.advance(149_999);
    expect(lease.isExpired).toBe(false);
    clock.advance(1);
    expect(lease.isExpired).toBe(true);
  });

  it('is renewed within the requested TTL after an answer with a huge one (regression: never again)', async () => {
    const { clock, lease } = world(100);
    await lease.renew(() => Promise.resolve(2 ** 63));
    expect(lease.dueIn).toBe(100_000);
    clock.advance(300_000);
    expect(lease.isExpired).toBe(true);
  });

  it('is requested again after half a second on average, then after twice as long, at most five seconds', async () => {
    const { clock, lease } = world(100);
    clock.advance(40_000);
    const delays: number[] = [];
    for (let i = 0; i < 6; i++) {
      await expect(lease.renew(fails)).rejects.toThrow('out of reach');
      delays.push(lease.dueIn);
      clock.advance(lease.dueIn);
    }
    expect(delays).toEqual([250, 500, 1000, 2000, 2500, 2500]);
    await lease.renew(() => Promise.resolve(100));
    clock.advance(40_000);
    await expect(lease.renew(fails)).rejects.toThrow();
    expect(lease.dueIn).toBe(250); // earlier failures are forgotten
  });

  it.each([
    [100, undefined, 5000],
    [100, false, 5000],
    [12, false, 2000],
    [25, true, 1000],
    [100, true, 4000],
  ])(
    'of %i s is checked often, because the clock may be set: exclusive %s every %i ms',
    (ttl, exclusive, ms) => {
      const { clock, lease } = world(ttl, exclusive);
      expect(lease.checkIn).toBe(ms);
      clock.advance(Math.ceil((ttl * 1000) / 3) - 10);
      expect(lease.checkIn).toBe(10); // the keepalive is due earlier
      lease.size = 0;
      expect(lease.checkIn).toBe(ttl * 1000);
    },
  );
});
