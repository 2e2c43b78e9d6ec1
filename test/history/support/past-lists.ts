import { type CauseGroup, CauseGroups } from '../../../src/history/causes.ts';
import type { History } from '../../../src/history/history.ts';

/** Resolves to the items of all slices. */
export async function itemsOf<T>(slices: AsyncIterable<readonly T[]>): Promise<T[]> {
  const items: T[] = [];
  for await (const slice of slices) items.push(...slice);
  return items;
}

/** Resolves to the changes within a second of a wall time, grouped by cause, the largest group first. */
export async function groupsAround(
  { past }: History,
  when: number,
  options: Parameters<CauseGroups['sorted']>[0] = {},
): Promise<readonly CauseGroup[]> {
  const groups = new CauseGroups();
  for (const record of await itemsOf(past.records({ from: when - 1000, to: when + 1000 })))
    groups.add(record);
  return groups.sorted(options);
}
