import type { ManualClock } from '../../base/support/manual-clock.ts';

/** Lets everything run that is ready: microtasks, and turns of the event loop that the code under test waits for. */
export async function settle(turns = 2): Promise<void> {
  for (let i = 0; i < turns; i++) await new Promise<void>((resolve) => setImmediate(resolve));
}

/** Moves the clock on alarm by alarm, and lets what each one starts run before the next. */
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
