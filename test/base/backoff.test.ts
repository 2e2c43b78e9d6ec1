import { describe, expect, it } from 'vitest';
import { backoffDelay } from '../../src/base/backoff.ts';

describe('the delay before the next attempt', () => {
  const delays = (random: number, minMs?: number): number[] =>
    [1, 2, 3, 4, 1000].map((failures) =>
      backoffDelay(failures, { minMs, baseMs: 100, capMs: 500 }, () => random),
    );

  it('is random up to a bound that doubles with each failure up to the cap', () => {
    expect(delays(0)).toEqual([0, 0, 0, 0, 0]);
    expect(delays(0.5)).toEqual([50, 100, 200, 250, 250]);
    expect(delays(1)).toEqual([100, 200, 400, 500, 500]);
  });

  it('has the minimum as a fixed part', () => {
    expect(delays(0, 30)).toEqual([30, 30, 30, 30, 30]);
    expect(delays(1, 30)).toEqual([130, 230, 430, 530, 530]);
  });
});
