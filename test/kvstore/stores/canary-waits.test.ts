import { describe, expect, it } from 'vitest';
import { CanaryWaits } from '../../../src/kvstore/stores/canary-waits.ts';

describe('who waits for a canary', () => {
  const waiting = (waits: CanaryWaits, ...names: readonly string[]): { over: boolean } => {
    const state = { over: false };
    void waits.add(names).then(() => {
      state.over = true;
    });
    return state;
  };

  it('waits for all names that were not settled when it asked', async () => {
    const waits = new CanaryWaits();
    const [two, one] = [waiting(waits, 'a', 'b'), waiting(waits, 'a')];
    expect(waits.due()).toHaveLength(0);
    waits.settled('a');
    expect(waits.landed(waits.due())).toBe(true);
    await Promise.resolve();
    expect([two.over, one.over]).toEqual([false, true]);
    waits.settled('b');
    expect(waits.landed(waits.due())).toBe(true);
    await Promise.resolve();
    expect([two.over, waits.due().length]).toEqual([true, 0]);
  });

  it('waits for one more canary when a name is touched while one is written', async () => {
    const waits = new CanaryWaits();
    const early = waiting(waits);
    const due = waits.due();
    waits.touched('a');
    expect([waits.landed(due), waits.due().length]).toEqual([false, 0]);
    await Promise.resolve();
    expect(early.over).toBe(false);
    waits.settled('a');
    expect(waits.landed(waits.due())).toBe(true);
    await Promise.resolve();
    expect(early.over).toBe(true);
  });

  it('is told only of a canary that was written after it had asked', () => {
    const waits = new CanaryWaits();
    const due = waits.due();
    const late = waiting(waits);
    expect([waits.landed(due), late.over, waits.due().length]).toEqual([false, false, 1]);
  });
});
