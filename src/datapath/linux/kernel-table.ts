import type { SyscallError } from './syscall/syscall-error.ts';

/** The desired item of a key: an item to add or replace, or none. */
export interface TableChange<Item> {
  readonly key: string;
  /** If undefined, the key is deleted. */
  readonly item: Item | undefined;
  /** True if the last change of the key failed. */
  readonly isRetry?: boolean | undefined;
}

/** A difference between a table and its desired content. */
export interface PlannedChange<Item> {
  readonly key: string;
  /** The current item; undefined if it is to be added. */
  readonly actual: Item | undefined;
  /** The desired item; undefined if it is to be deleted. */
  readonly desired: Item | undefined;
}

/**
 * The outcome of a change: undefined, or the error. `unfinished`: a part was applied, and the change must be applied
 * again in a later turn. A table with {@link KernelTable.rank} never returns `unfinished`.
 */
export type ApplyOutcome = SyscallError | 'unfinished' | undefined;

/** Number of used entries and capacity of a map. */
export interface MapUse {
  readonly name: string;
  readonly used: number;
  readonly capacity: number;
}

/**
 * A table in the kernel, kept equal to its desired content, such as a map or the routes of a routing table. Keys
 * are readable text, such as `10.1.2.0/24`, and sufficient to delete the item.
 */
export interface KernelTable<Item> {
  readonly name: string;
  /** Maximum number of items; undefined if there is no limit. */
  readonly capacity?: number | undefined;
  /** Returns the usage of each map if an item takes entries of several maps. */
  maps?(): readonly MapUse[];
  /** Weight at which a call of `apply`, which blocks the event loop, is full. Default and maximum: 256. */
  readonly chunk?: number | undefined;
  /** Returns the weight of a change, 1 or more. Default 1. */
  weight?(key: string, item: Item | undefined): number;
  /**
   * Yields the items of this program in the kernel, which it reads step by step. If a key is yielded twice, the last
   * item counts. `undefined` is no item: it marks the end of a step that took long, so that the caller may pause.
   */
  dump(): Iterable<readonly [key: string, item: Item] | undefined>;
  equal(a: Item, b: Item): boolean;
  /**
   * Returns the position of a key in the order of writes, a small integer. All upserts are applied first, in ascending
   * order, then deletes in descending order. More than 1,024 deletes that `whenDeletesAllowed` has delayed are applied
   * in several parts, each in this order. Default 0.
   */
  order?(key: string): number;
  /** Returns the rank of an item. A full table keeps items of higher rank; without ranks, the first items. */
  rank?(key: string, item: Item): number;
  /**
   * Applies the changes synchronously, in the given order. Returns one outcome per change. Deleting a missing key
   * succeeds. If it throws, the error is the outcome of all changes.
   */
  apply(changes: readonly TableChange<Item>[]): readonly ApplyOutcome[];
  /** Returns the item as text, without the key. */
  print(item: Item): string;
}

/** The desired content of a table: a `Map`, or a view of an engine. */
export interface DesiredItems<Item> {
  readonly size: number;
  get(key: string): Item | undefined;
  entries(): Iterable<readonly [key: string, item: Item]>;
}
