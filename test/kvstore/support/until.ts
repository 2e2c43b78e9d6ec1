/** Of the 300 s that a test has: what must happen at all may take long on a machine with much else to do. */
const PATIENCE_MS = 200_000;

/** Waits until it is so, whatever the system's time is set to; fails with `what` when that takes too long. */
export async function until(what: string, isSo: () => boolean | Promise<boolean>): Promise<void> {
  const end = performance.now() + PATIENCE_MS;
  for (let wait = 1; performance.now() < end; wait = Math.min(wait * 2, 50)) {
    if (await isSo()) return;
    await new Promise((resolve) => setTimeout(resolve, wait));
  }
  throw new Error(`never: ${what}`);
}
