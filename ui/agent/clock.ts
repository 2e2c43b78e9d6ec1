/** Maximum ignored difference of clocks. The date of an answer has full seconds, and the answer takes some time. */
export const MAX_IGNORED_MS = 3_000;

let aheadMs = 0;

/** Compares the `date` of an answer of the agent with the clock of the browser. */
export function noteDate(date: string | null): void {
  const difference = Date.parse(date ?? '') - Date.now();
  if (!Number.isNaN(difference)) aheadMs = Math.abs(difference) > MAX_IGNORED_MS ? difference : 0;
}

/** Returns the milliseconds by which the agent's clock is ahead of the browser's; 0 if the difference is ignored. */
export function aheadOfBrowser(): number {
  return aheadMs;
}

/** Returns the current time of the agent's clock. Times in its answers must be compared with this time. */
export function agentNow(): number {
  return Date.now() + aheadMs;
}
