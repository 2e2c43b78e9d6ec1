/** Differences up to this are ignored: the date of an answer has full seconds, and an answer takes a while. */
const IGNORED_MS = 3_000;

let aheadMs = 0;

/** Compares the `date` of an answer of the agent with the clock of the browser. */
export function noteDate(date: string | null): void {
  const difference = Date.parse(date ?? '') - Date.now();
  if (!Number.isNaN(difference)) aheadMs = Math.abs(difference) > IGNORED_MS ? difference : 0;
}

/** Returns how far the clock of the agent is ahead of that of the browser, in milliseconds; 0 if they are equal. */
export function aheadOfBrowser(): number {
  return aheadMs;
}

/** Returns the time of the agent, with which its times must be compared. */
export function agentNow(): number {
  return Date.now() + aheadMs;
}
