/** Returns the milliseconds of processor time since `begun`. */
function since(begun: NodeJS.CpuUsage): number {
  const { user, system } = process.cpuUsage(begun);
  return (user + system) / 1000;
}

/**
 * Returns the milliseconds of processor time of `work` in this process, for tests of cost. Unlike wall time, it does not depend
 * on other processes. Allow a factor of ten on either side nevertheless.
 */
export function cpuTime(work: () => void): number {
  const begun = process.cpuUsage();
  work();
  return since(begun);
}

/** Like {@link cpuTime}, for asynchronous work. */
export async function cpuTimeInTurns(work: () => Promise<void>): Promise<number> {
  const begun = process.cpuUsage();
  await work();
  return since(begun);
}

/** Ratio of the sizes. The cost of linear work grows by it, that of quadratic work by its square. */
const FACTOR = 8;

/**
 * Returns the growth of the cost of `work` per item, from `items` to eight times as many: about 1 if the cost is linear, about 8 if it is
 * quadratic. Both are measured in this process, one after the other, so that neither a slow machine nor other processes
 * change the result. Assert less than 3.
 */
export async function growthPerItem(
  items: number,
  work: (items: number) => void | Promise<void>,
): Promise<number> {
  const best = async (count: number): Promise<number> => {
    let ms = Number.POSITIVE_INFINITY;
    for (let round = 0; round < 2; round++) ms = Math.min(ms, await cpuTimeInTurns(async () => work(count)));
    return ms;
  };
  await work(items); // compiled before it is measured
  return (await best(FACTOR * items)) / (await best(items)) / FACTOR;
}
