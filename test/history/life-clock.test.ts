import { expect, it } from 'vitest';
import type { Clock } from '../../src/base/clock.ts';
import { RunningLife } from '../../src/history/life-clock.ts';
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
