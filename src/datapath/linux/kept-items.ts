import type { KeptTable, KeptTableStatus } from './kept-table.ts';
import type { KernelTable, PlannedChange } from './kernel-table.ts';

/** A difference between a table and its desired content, as text. */
export interface PrintedStep {
  readonly table: string;
  readonly key: string;
  /** The item in the kernel; undefined if there is none. */
  readonly kernel: string | undefined;
  /** The desired item; undefined if there is none. */
  readonly cache: string | undefined;
}

/** The status of a table, with the number of repairs of items changed by others. */
export interface KeptItemsStatus extends KeptTableStatus {
  readonly repairs: number;
}

/** A {@link KeptTable}, without the type of its items. */
export interface KeptItems extends Disposable {
  readonly name: string;
  /**
   * True if opening the part creates the items. If false, items that are found initially come from an earlier process.
   */
  readonly isCreatedOnOpen?: boolean | undefined;
  /** Reads the items of an earlier process. Writes start afterwards. */
  adopt(): Promise<void>;
  /** Must be called when the inputs are complete: undesired items found initially are deleted. */
  allowDeletes(): void;
  /** Must be called when further inputs of initially found items may be complete; see `KeptTable.recheck`. */
  recheck(): void;
  /** Returns the current differences, in the order of their writes. */
  plan(): Promise<readonly PrintedStep[]>;
  /** Repairs changes by others. Resolves to the differences. Deletes may still wait; see `flushed`. */
  repair(): Promise<readonly PrintedStep[]>;
  /** Resolves when the changes pending now are applied; see `KeptTable.flushed`. */
  flushed(): Promise<void>;
  /** Number of desired items missing from the table. */
  missing(): number;
  status(): KeptItemsStatus;
}

/** Wraps a kept table and hides the type of its items. */
export function keptItems<Item>(
  table: Pick<KernelTable<Item>, 'name' | 'print'>,
  kept: KeptTable<Item>,
): KeptItems {
  const { name } = table;
  let repairs = 0;
  const text = (item: Item | undefined): string | undefined =>
    item === undefined ? undefined : table.print(item);
  const printed = async (steps: readonly PlannedChange<Item>[]): Promise<readonly PrintedStep[]> => {
    const all: PrintedStep[] = [];
    await kept.inTurns(steps, ({ key, actual, desired }) => {
      all.push({ table: name, key, kernel: text(actual), cache: text(desired) });
    });
    return all;
  };
  return {
    name,
    adopt: () => kept.adopt(),
    allowDeletes: () => kept.allowDeletes(),
    recheck: () => kept.recheck(),
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
