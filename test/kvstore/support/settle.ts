import type { ManualClock } from '../../base/support/manual-clock.ts';

/**
 * Runs everything that is ready: microtasks, and turns of the event loop for which the code under test waits.
 */
export async function settle(turns = 2): Promise<void> {
  for (let i = 0; i < turns; i++) await new Promise<void>((resolve) => setImmediate(resolve));
}

/** Advances the clock alarm by alarm, and runs the work of each before the next. */
export async function advance(clock: ManualClock, ms: number): Promise<void> {
  const end = clock.now() + ms;
  await settle();
  for (let next = clock.nextAt; next !== undefined && next <= end; next = clock.nextAt) {
    clock.advance(next - clock.now());
    await settle();
  }
  clock.advance(end - clock.now());
  await settle();
}
