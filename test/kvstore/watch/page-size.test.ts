import { describe, expect, it } from 'vitest';
import { PageSize } from '../../../src/kvstore/watch/page-size.ts';

const LIMITS = { firstPageKeys: 100, pageKeys: 1000 };

/** Returns the sizes of consecutive full pages that arrive after these times, in milliseconds. */
function sizesAfter(times: readonly number[], limits: typeof LIMITS = LIMITS): readonly number[] {
  const size = new PageSize(limits);
  return times.map((ms) => {
    size.recordPage(size.keys, 0, ms);
    return size.keys;
  });
}

describe('the size of pages', () => {
  it('starts small, and never exceeds its maximum', () => {
    expect(new PageSize(LIMITS).keys).toBe(100);
    expect(new PageSize({ firstPageKeys: 100, pageKeys: 7 }).keys).toBe(7);
  });

  it('is eight times as large after a quick page, up to the maximum', () => {
    expect(sizesAfter([0, 125, 125])).toEqual([800, 1000, 1000]);
  });

  it('is chosen for one second, after a page that took about that', () => {
    expect(sizesAfter([500, 1000, 2000, 1250])).toEqual([200, 200, 100, 80]);
  });

  it('is at least a quarter after a slow page, and at least one after many', () => {
    expect(sizesAfter([60_000, 60_000, 60_000, 60_000, 60_000])).toEqual([25, 6, 1, 1, 1]);
  });

  it('stays the same after a quick page that was not full, because the range was small', () => {
    const size = new PageSize(LIMITS);
    size.recordPage(3, 0, 500);
    expect(size.keys).toBe(100);
    size.recordPage(90, 0, 10); // quick for nine in ten: a larger page would be quick, too
    expect(size.keys).toBe(800);
    size.recordPage(300, 0, 1000);
    expect(size.keys).toBe(300);
    size.recordPage(1, 0, 1000);
    expect(size.keys).toBe(75);
  });

  it('is chosen for 16 MiB, because the message of a page is copied in one turn', () => {
    const MiB = 1 << 20;
    const size = new PageSize(LIMITS);
    const sizes = [4, 16, 24, 256, 12].map((bytes) => {
      size.recordPage(size.keys, bytes * MiB, 1);
      return size.keys;
    });
    expect(sizes).toEqual([400, 400, 266, 66, 88]);
    size.recordPage(8, 32 * MiB, 1); // not full, but large
    expect(size.keys).toBe(22);
    size.recordPage(8, 4 * MiB, 1); // not full, and light
    expect(size.keys).toBe(32);
  });

  it('is a quarter after a failed page', () => {
    const size = new PageSize(LIMITS);
    size.recordFailure();
    expect(size.keys).toBe(25);
    for (let i = 0; i < 9; i++) size.recordFailure();
    expect(size.keys).toBe(1);
    size.recordPage(1, 0, 1);
    expect(size.keys).toBe(8);
  });

  it('does not grow beyond a size that was too large before, and is at least one', () => {
    const size = new PageSize(LIMITS);
    expect([size.shrink(), size.keys]).toEqual([true, 25]);
    size.recordPage(25, 0, 1);
    expect(size.keys).toBe(25);
    expect([size.shrink(), size.keys]).toEqual([true, 7]);
    expect([size.shrink(), size.keys]).toEqual([true, 2]);
    expect([size.shrink(), size.keys]).toEqual([true, 1]);
    expect([size.shrink(), size.keys]).toEqual([false, 1]);
  });
});
