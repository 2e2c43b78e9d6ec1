/** Milliseconds of processor time since `begun`. */
function since(begun: NodeJS.CpuUsage): number {
  const { user, system } = process.cpuUsage(begun);
  return (user + system) / 1000;
}

/**
 * Milliseconds of processor time that `work` takes in this process. For tests of cost: unlike time on a clock it does
 * not grow while other processes keep the machine busy. Leave a factor of ten on either side nevertheless.
 */
export function cpuTime(work: () => void): number {
  const begun = process.cpuUsage();
  work();
  return since(begun);
}

/** As {@link cpuTime}, of work that takes turns. */
export async function cpuTimeInTurns(work: () => Promise<void>): Promise<number> {
  const begun = process.cpuUsage();
  await work();
  return since(begun);
}
