import type { DesiredItems, KernelTable } from './kernel-table.ts';

/** One step from the current to the desired content of a table. */
export interface PlannedChange<Item> {
  readonly key: string;
  /** The current item; undefined if it is to be added. */
  readonly actual: Item | undefined;
  /** The desired item; undefined if it is to be deleted. */
  readonly desired: Item | undefined;
}

/**
 * Yields the differences between a table and its desired content, unordered, and `undefined` for each equal item. Lazy:
 * one step per item of either.
 */
export function* differences<Item>(
  { equal }: Pick<KernelTable<Item>, 'equal'>,
  desired: DesiredItems<Item>,
  actual: ReadonlyMap<string, Item>,
): Generator<PlannedChange<Item> | undefined, void, void> {
  for (const [key, item] of desired.entries()) {
    const found = actual.get(key);
    const isSame = found !== undefined && equal(found, item);
    yield isSame ? undefined : { key, actual: found, desired: item };
  }
  for (const [key, item] of actual) {
    yield desired.get(key) === undefined ? { key, actual: item, desired: undefined } : undefined;
  }
}
