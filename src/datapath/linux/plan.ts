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

/** Returns the steps in the order of application: items that others depend on are added first and deleted last. */
export function orderPlan<Item>(
  { order }: Pick<KernelTable<Item>, 'order'>,
  steps: Iterable<PlannedChange<Item>>,
): readonly PlannedChange<Item>[] {
  const place = (step: PlannedChange<Item>): number => order?.(step.key) ?? 0;
  const all = [...steps];
  const upserts = all.filter(({ desired }) => desired !== undefined);
  const deletes = all.filter(({ desired }) => desired === undefined);
  return [...upserts.sort((a, b) => place(a) - place(b)), ...deletes.sort((a, b) => place(b) - place(a))];
}
