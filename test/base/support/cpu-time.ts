/** Returns the milliseconds of processor time since `begun`. */
function since(begun: NodeJS.CpuUsage): number {
  const { user, system } = process.cpuUsage(begun);
  return (user + system) / 1000;
}

/**
 * Returns the milliseconds of processor time of `work` in this process, for tests of cost. Unlike wall time, it does
 * not depend on other processes. Allow a factor of ten on either side nevertheless.
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

/**
 * Returns the smallest processor time of three attempts: the first one also compiles, and each may collect the garbage
 * of earlier tests. If the caller asserts a limit, it passes it as `limit`: attempts then end when one is below it, and
 * there are up to ten.
 */
export async function leastCpuTime(work: () => unknown, limit = 0): Promise<number> {
  let least = Number.POSITIVE_INFINITY;
  for (let attempt = 0; attempt < (limit > 0 ? 10 : 3) && !(least < limit); attempt++)
    least = Math.min(least, await cpuTimeInTurns(async () => void (await work())));
  return least;
}

/** Ratio of the sizes. The cost of linear work grows by it, that of quadratic work by its square. */
const FACTOR = 16;

/** Growth that callers assert to be less than. */
const LIMIT = 6;

/** Growth that needs no further attempt. */
const CLEARLY_LINEAR = 3;

const ATTEMPTS = 3;
/** If the growth is not below the limit after these, another process may use the cache of the processor. */
const MAX_ATTEMPTS = 20;

/**
 * Returns the growth of the cost of `work` per item, from `items` to sixteen times as many: 1 to 3 if the cost is
 * linear, because few items fit into the cache of the processor; 8 to 16 if it is quadratic. Both are measured in this
 * process, one after the other and for the same number of items, because a slow machine and a collection of garbage
 * then change both. Each has the smallest cost of up to three attempts, or of up to twenty if it is not less than 6.
 * Assert less than 6.
 */
export async function growthPerItem(
  items: number,
  work: (items: number) => void | Promise<void>,
): Promise<number> {
  await work(items); // compiled before it is measured
  let few = Number.POSITIVE_INFINITY;
  let many = Number.POSITIVE_INFINITY;
  const isDone = (attempt: number): boolean =>
    many / few < CLEARLY_LINEAR || (attempt >= ATTEMPTS && many / few < LIMIT) || attempt >= MAX_ATTEMPTS;
  for (let attempt = 0; !isDone(attempt); attempt++) {
    many = Math.min(many, await cpuTimeInTurns(async () => work(FACTOR * items)));
    few = Math.min(
      few,
      await cpuTimeInTurns(async () => {
        for (let time = 0; time < FACTOR; time++) await work(items);
      }),
    );
  }
  return many / few;
}
