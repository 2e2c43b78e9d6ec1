/** Shorter than the limit of a test (240 s), so that a failure names the missing condition. */
const PROGRESS_TIMEOUT_MS = 150_000;

/** Maximum time that is counted for one check, because a process that was suspended has made no progress. */
const MAX_CHECK_MS = 5_000;

/** Waits until `isSo` returns true, independent of the wall clock. Throws with `what` if that takes too long. */
export async function until(what: string, isSo: () => boolean | Promise<boolean>): Promise<void> {
  let waited = 0;
  for (let wait = 1; waited < PROGRESS_TIMEOUT_MS; ) {
    const begun = performance.now();
    if (await isSo()) return;
    await new Promise((resolve) => setTimeout(resolve, wait));
    waited += Math.min(performance.now() - begun, MAX_CHECK_MS);
    // Each check delays the awaited work, so the interval grows with the duration.
    wait = Math.max(Math.min(wait * 2, 50), Math.min(waited / 20, 250));
  }
  throw new Error(`never: ${what}`);
}
