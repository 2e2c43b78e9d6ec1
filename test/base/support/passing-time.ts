import type { ManualClock } from './manual-clock.ts';

/** Turns of the event loop in which all that was begun in this process has come to wait for time. */
const TURNS = 10;

/** Lets time pass as soon as everything waits for it, until it is told to stop. */
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

/** Waits until it is so while time passes; fails with `what` after some hundred things that were waited for. */
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
