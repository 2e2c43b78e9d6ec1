import type { ManualClock } from './manual-clock.ts';

/** Turns of the event loop after which all work in this process waits for the clock. */
const TURNS = 10;

/** Advances the clock whenever all work waits for it, until it is stopped. */
export function letTimePass(clock: ManualClock): () => void {
  let stopped = false;
  let turns = 0;
  const turn = (): void => {
    if (stopped) return;
    turns++;
    const { nextAt } = clock;
    if (turns % TURNS === 0 && nextAt !== undefined) clock.advance(nextAt - clock.now());
    setImmediate(turn);
  };
  turn();
  return () => {
    stopped = true;
  };
}

/** Waits for a condition while the clock advances. Fails with `what` after some hundred timers. */
export async function untilTimeHasPassed(
  what: string,
  isSo: () => boolean | Promise<boolean>,
): Promise<void> {
  for (let turn = 0; turn < 300 * TURNS; turn++) {
    if (await isSo()) return;
    await new Promise((resolve) => setImmediate(resolve));
  }
  throw new Error(`never: ${what}`);
}
