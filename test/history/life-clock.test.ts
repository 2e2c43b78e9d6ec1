import fc from 'fast-check';
import { expect, it } from 'vitest';
import type { Clock } from '../../src/base/clock.ts';
import { LifeClock, RunningLife } from '../../src/history/life-clock.ts';
import { ManualClock } from '../base/support/manual-clock.ts';

it.each([1, 9])(
  'the wall times of a life are right if the process was interrupted at its first %i looks at the clock (regression: they were late)',
  (interruptions) => {
    const clock = new ManualClock();
    let looks = 0;
    const time: Clock = {
      now: () => clock.now(),
      wallTime: () => {
        if (looks++ < interruptions) clock.advance(15);
        return clock.wallTime();
      },
      after: (ms, callback) => clock.after(ms, callback),
    };
    const life = new RunningLife(time);
    clock.advance(100);
    expect(life.clock.wallOf(life.now())).toBe(clock.wallTime());
  },
);

/** A {@link LifeClock} that keeps all pieces. */
class NaiveClock {
  readonly #pieces: { readonly ms: number; readonly offset: number; readonly sinceMs: number }[];

  constructor(pieces: LifeClock['pieces']) {
    this.#pieces = [...pieces];
  }

  observe(ms: number, offset: number, sinceMs: number): void {
    this.#pieces.push({ ms, offset, sinceMs });
  }

  timesOf(wall: number): readonly number[] {
    return this.#pieces.flatMap(({ offset, sinceMs }, index) => {
      const at = wall - offset;
      const end = this.#pieces[index + 1]?.ms ?? Number.POSITIVE_INFINITY;
      return (index === 0 || at >= sinceMs) && at < end ? [at] : [];
    });
  }

  /** Returns the lowest and the highest wall time between two times of the life. */
  wallBounds(fromMs: number, toMs: number): { readonly from: number; readonly to: number } {
    const inside = this.#pieces.filter(({ ms }) => ms > fromMs && ms <= toMs);
    const starts = inside.map(({ ms, offset }) => ms + offset);
    const ends = [fromMs, ...inside.map(({ ms }) => ms)].map((from, index) => {
      const end = inside[index]?.ms ?? toMs;
      return this.wallOf(from) + (end - from);
    });
    return { from: Math.min(this.wallOf(fromMs), ...starts), to: Math.max(...ends) };
  }

  wallOf(ms: number): number {
    return ms + (this.#pieces.findLast((piece) => piece.ms <= ms)?.offset ?? 0);
  }
}

const steps = fc.array(
  fc.record({
    pause: fc.integer({ min: 1, max: 2000 }),
    step: fc.oneof(fc.integer({ min: -60, max: 90 }), fc.integer({ min: -50_000, max: 50_000 })),
  }),
  { minLength: 300, maxLength: 400 },
);

it('a clock that is stepped each minute of days has few pieces (regression: it had one for each step)', () => {
  const clock = new LifeClock([{ ms: 0, offset: 0, sinceMs: 0 }]);
  const minutes = 5000;
  for (let minute = 1; minute <= minutes; minute++) {
    clock.observe(minute * 60_000 - 1000, minute * 60_000 - 1000 + (minute - 1) * 50);
    clock.observe(minute * 60_000, minute * (60_000 + 50));
  }
  expect(clock.pieces.length).toBeLessThanOrEqual(256);
  const errors = clock.pieces.map(({ low = 0, high = 0 }) => high - low);
  expect(Math.max(...errors)).toBeLessThan((4 * minutes * 50) / 128);
  const hourAgo = (minutes - 60) * 60_000 + 30_000;
  expect(clock.timesOf(clock.wallOf(hourAgo))).toEqual([hourAgo]);
  expect(clock.isUnclear(hourAgo)).toBe(false);
});

it('after merges of pieces, the certain times of a clock are those without merges', () => {
  let certain = 0;
  fc.assert(
    fc.property(steps, fc.array(fc.integer({ min: 0, max: 400_000 }), { minLength: 50 }), (list, walls) => {
      const clock = new LifeClock([{ ms: 0, offset: 0, sinceMs: 0 }]);
      const naive = new NaiveClock(clock.pieces);
      let ms = 0;
      let offset = 0;
      for (const { pause, step } of list) {
        const sinceMs = ms + Math.ceil(0.9 * pause);
        clock.observe(sinceMs, sinceMs + offset);
        ms += pause;
        offset += step;
        if (clock.observe(ms, ms + offset) === 0) offset -= step;
        else naive.observe(ms, offset, sinceMs);
      }
      for (const at of walls) {
        const wall = naive.wallOf(at);
        const [time, ...others] = clock.timesOf(wall);
        if (time === undefined || others.length > 0 || clock.isUnclear(time)) continue;
        expect(naive.timesOf(wall)).toEqual([time]);
        expect(clock.wallOf(time)).toBe(wall);
        certain++;
      }
      for (const time of walls)
        if (!clock.isUnclear(time)) expect(clock.wallOf(time)).toBe(naive.wallOf(time));
      // Regression: the offsets of merged pieces were ignored, so that changes of that time were not found.
      for (const [index, time] of walls.entries()) {
        expect(clock.lowestWall(time)).toBeLessThanOrEqual(
          naive.wallBounds(time, Number.MAX_SAFE_INTEGER).from,
        );
        const to = time + (walls[index + 1] ?? 0);
        const [bounds, exact] = [clock.wallBounds(time, to), naive.wallBounds(time, to)];
        expect([bounds.from <= exact.from, bounds.to >= exact.to]).toEqual([true, true]);
      }
    }),
    { numRuns: 100, endOnFailure: true }, // 400 steps take minutes to shrink
  );
  expect(certain).toBeGreaterThan(100);
});
