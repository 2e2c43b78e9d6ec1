/** One part of a round: its results by row name. */
export type Part<T> = () => Promise<Record<string, T>>;

/**
 * Runs every part once per round, every other round in reverse order, so that a slow minute of the machine or a grown
 * heap affects all parts equally. `begin` is called before each round.
 */
export async function interleave<T>(
  rounds: number,
  parts: readonly Part<T>[],
  begin: (round: number) => void = () => {},
): Promise<readonly Record<string, T>[]> {
  const all: Record<string, T>[] = [];
  for (let round = 0; round < rounds; round++) {
    begin(round);
    const order = round % 2 === 0 ? parts : [...parts].reverse();
    const measured: Record<string, T> = {};
    for (const part of order) Object.assign(measured, await part());
    all.push(measured);
  }
  return all;
}
