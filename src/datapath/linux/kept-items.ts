import type { KeptTable, KeptTableStatus } from './kept-table.ts';
import type { KernelTable } from './kernel-table.ts';
import type { PlannedChange } from './plan.ts';

/** Where a table differs from what is desired, in words. */
export interface PrintedStep {
  readonly table: string;
  readonly key: string;
  /** What the kernel has; undefined when it has nothing. */
  readonly kernel: string | undefined;
  /** What is desired; undefined when nothing is. */
  readonly cache: string | undefined;
}

/** How a table stands, and how many of its items others had changed that were put right. */
export interface KeptItemsStatus extends KeptTableStatus {
  readonly repairs: number;
}

/** A table of the kernel that is kept equal to what is desired, whatever its items are. */
export interface KeptItems extends Disposable {
  readonly name: string;
  /** Reads what an earlier process has left; writing begins after that. */
  adopt(): Promise<void>;
  /** The inputs are complete: what was found at the start and is not desired goes. */
  allowDeletes(): void;
  /** Where it differs now, in the order in which it would be written. */
  plan(): Promise<readonly PrintedStep[]>;
  /** Puts right what others have changed; resolves to what has differed. */
  repair(): Promise<readonly PrintedStep[]>;
  /** Resolves once nothing waits for its turn. */
  flushed(): Promise<void>;
  /** Items that are not there and should be. */
  missing(): number;
  status(): KeptItemsStatus;
}

/** A kept table without the type of its items. */
export function keptItems<Item>(
  table: Pick<KernelTable<Item>, 'name' | 'print'>,
  kept: KeptTable<Item>,
): KeptItems {
  const { name } = table;
  let repairs = 0;
  const text = (item: Item | undefined): string | undefined =>
    item === undefined ? undefined : table.print(item);
  const printed = (steps: readonly PlannedChange<Item>[]): readonly PrintedStep[] =>
    steps.map(({ key, actual, desired }) => ({
      ...{ table: name, key },
      ...{ kernel: text(actual), cache: text(desired) },
    }));
  return {
    name,
    adopt: () => kept.adopt(),
    allowDeletes: () => kept.allowDeletes(),
    plan: async () => printed(await kept.plan()),
    repair: async () => {
      const steps = await kept.repair();
      repairs += steps.length;
      return printed(steps);
    },
    flushed: () => kept.flushed(),
    missing: () => kept.missing(),
    status: () => ({ ...kept.status(), repairs }),
    [Symbol.dispose]: () => kept[Symbol.dispose](),
  };
}
