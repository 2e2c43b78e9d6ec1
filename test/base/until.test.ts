import { expect, it, vi } from 'vitest';
import { until } from './support/until.ts';

it('a wait of a test continues after its process was suspended for minutes (regression: it failed at once)', async () => {
  const now = performance.now.bind(performance);
  let checks = 0;
  await until('the third check', () => {
    if (++checks === 1) vi.spyOn(performance, 'now').mockImplementation(() => now() + 600_000);
    return checks === 3;
  });
  expect(checks).toBe(3);
});

it('a wait of a test fails with the condition that is never met', async () => {
  vi.useFakeTimers();
  try {
    const waiting = expect(until('a miracle', () => false)).rejects.toThrow('never: a miracle');
    await vi.advanceTimersByTimeAsync(151_000);
    await waiting;
  } finally {
    vi.useRealTimers();
  }
});
