import { beforeEach, describe, expect, it } from 'vitest';
import { ContestedKeys } from '../../../src/kvstore/stores/contested-keys.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';

describe('keys that another client changes', () => {
  let clock: ManualClock;
  let random: number;
  let putBack: [key: string, at: number][];
  let keys: ContestedKeys<string>;

  beforeEach(() => {
    clock = new ManualClock();
    random = 1;
    putBack = [];
    keys = new ContestedKeys({
      clock,
      random: () => random,
      putBack: (name) => putBack.push([name, clock.now()]),
    });
  });

  it('are restored immediately when deleted, and within a second when overwritten', () => {
    keys.recordDelete('a');
    keys.recordOverwrite('b');
    clock.advance(2000);
    expect(putBack).toEqual([
      ['a', 0],
      ['b', 1000],
    ]);
  });

  it('keep their delay if they are overwritten again', () => {
    keys.recordOverwrite('a');
    random = 0.1;
    keys.recordOverwrite('a');
    clock.advance(999);
    expect(putBack).toEqual([]);
    clock.advance(1);
    expect(putBack).toHaveLength(1);
  });

  it('are not restored if they are done or the store stops', () => {
    keys.recordOverwrite('a');
    keys.recordOverwrite('b');
    keys.cancel('a');
    keys.stop();
    expect(clock.pending).toBe(0);
    clock.advance(60_000);
    expect(putBack).toEqual([]);
  });

  it('are restored with a doubled delay each time, up to five minutes, until they were unchanged for ten', () => {
    for (let i = 0; i < 12; i++) {
      keys.recordDelete('a');
      clock.advance(300_000);
    }
    const delays = putBack.map(([, at], i) => (at - i * 300_000) / 1000);
    expect(delays).toEqual([0, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300].slice(0, delays.length));
    expect(delays.length).toBeGreaterThanOrEqual(11);
    clock.advance(900_000);
    const before = putBack.length;
    keys.recordDelete('a');
    expect(putBack.length).toBe(before + 1);
  });

  it('are forgotten after ten minutes, even if a key that was put back before them is put back again', () => {
    keys.recordDelete('a');
    clock.advance(1000);
    keys.recordDelete('b');
    clock.advance(300_000);
    keys.recordDelete('a');
    clock.advance(400_000);
    keys.recordDelete('b');
    expect(putBack.at(-1)).toEqual(['b', clock.now()]);
  });

  it('are restored immediately if they were forgotten since, because their row has another name', () => {
    keys.recordDelete('a');
    keys.forget('a');
    keys.recordDelete('a');
    expect(putBack).toEqual([
      ['a', 0],
      ['a', 0],
    ]);
  });
});
