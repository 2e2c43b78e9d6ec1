/**
 * Milliseconds of processor time that `work` takes in this process. For tests of cost: unlike time on a clock it does
 * not grow while other processes keep the machine busy. Leave a factor of ten on either side nevertheless.
 */
export function cpuTime(work: () => void): number {
  const begun = process.cpuUsage();
  work();
  const { user, system } = process.cpuUsage(begun);
  return (user + system) / 1000;
}
