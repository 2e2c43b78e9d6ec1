/** Returns a number from 0 to `options` - 1. */
export type Choose = (options: number) => number;

/**
 * Runs a world once for each sequence of choices. The world must be deterministic. Returns the number of
 * sequences.
 */
export async function explore(run: (choose: Choose) => Promise<void>): Promise<number> {
  const path: number[] = [];
  for (let ways = 1; ; ways++) {
    const options: number[] = [];
    await run((count) => {
      const at = options.push(count) - 1;
      path[at] ??= 0;
      return path[at];
    });
    path.length = options.length;
    while (path.length > 0 && (path.at(-1) ?? 0) + 1 >= (options[path.length - 1] ?? 0)) path.pop();
    const last = path.pop();
    if (last === undefined) return ways;
    path.push(last + 1);
  }
}
