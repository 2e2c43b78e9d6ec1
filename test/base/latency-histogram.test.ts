import fc from 'fast-check';
import { expect, it } from 'vitest';
import { LATENCY_BOUNDS_MS, LatencyHistogram, quantileBound } from '../../src/base/latency-histogram.ts';

it('returns the smallest bound that holds the share of all durations, of several histograms', () => {
  const durations = fc.array(fc.double({ min: 0, max: 40_000, noNaN: true }), { maxLength: 300 });
  fc.assert(
    fc.property(fc.array(durations, { maxLength: 3 }), fc.constantFrom(0.5, 0.99, 1), (lists, share) => {
      const histograms = lists.map((list) => {
        const histogram = new LatencyHistogram();
        for (const ms of list) histogram.add(ms);
        return histogram.status();
      });
      const all = lists.flat();
      const holds = (bound: number): boolean => all.filter((ms) => ms <= bound).length >= all.length * share;
      const expected = all.length === 0 ? undefined : (LATENCY_BOUNDS_MS.find(holds) ?? null);
      expect(quantileBound(histograms, share)).toBe(expected);
    }),
  );
});
