import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { systemClock } from '../../src/base/system-clock.ts';

const DAY_MS = 86_400_000;

describe('a timer of months', () => {
  const fired = vi.fn();

  beforeEach(() => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    fired.mockClear();
  });

  afterEach(() => void vi.useRealTimers());

  it('fires in time (regression: immediately, because timers of Node overflow after 24 days)', () => {
    systemClock.after(60 * DAY_MS, fired);
    vi.advanceTimersByTime(60 * DAY_MS - 1);
    expect(fired).not.toHaveBeenCalled();
    vi.advanceTimersByTime(1);
    expect(fired).toHaveBeenCalledOnce();
    expect(vi.getTimerCount()).toBe(0);
  });

  it('can be cancelled at any time', () => {
    const timer = systemClock.after(60 * DAY_MS, fired);
    vi.advanceTimersByTime(40 * DAY_MS);
    timer.cancel();
    expect(vi.getTimerCount()).toBe(0);
  });

  it('without end never fires', () => {
    const timer = systemClock.after(Number.POSITIVE_INFINITY, fired);
    vi.advanceTimersByTime(60 * DAY_MS);
    expect(fired).not.toHaveBeenCalled();
    timer.cancel();
  });
});

it('a timer without a reference stays without one after 24 days', () => {
  const start = vi.spyOn(globalThis, 'setTimeout');
  const timer = systemClock.after(60 * DAY_MS, () => {});
  timer.unref?.();
  const [renew] = start.mock.lastCall ?? [];
  renew?.();
  const handles = start.mock.results.map(({ value }) => value as NodeJS.Timeout);
  expect(handles.map((handle) => handle.hasRef())).toEqual([false, false]);
  timer.cancel();
  for (const handle of handles) clearTimeout(handle);
  start.mockRestore();
});

it('a timer whose time has passed starts without a negative delay (regression: Node.js 22 and later print a warning)', () => {
  const start = vi.spyOn(globalThis, 'setTimeout');
  systemClock.after(-0.5, () => {}).cancel();
  expect(start.mock.lastCall?.[1]).toBe(0);
  start.mockRestore();
});
