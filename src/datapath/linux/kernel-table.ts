import type { SyscallError } from './syscall/syscall-error.ts';

/** What is to be at a key: an item to add or to write over what is there, or nothing. */
export interface TableChange<Item> {
  readonly key: string;
  /** Undefined: the key is to be deleted. */
  readonly item: Item | undefined;
}

/** How full a map is. */
export interface MapUse {
  readonly name: string;
  readonly used: number;
  readonly capacity: number;
}

/**
 * Something in the kernel that is kept equal to what is desired: a map, the routes of a table. Keys are texts that a
 * person understands, such as `10.1.2.0/24`, and say all that it takes to delete.
 */
export interface KernelTable<Item> {
  readonly name: string;
  /** How many items there is room for; undefined without a limit. */
  readonly capacity?: number | undefined;
  /** Where an item takes entries of several maps: how full each of them is. */
  maps?(): readonly MapUse[];
  /** Changes of one call of `apply`, which block the event loop; by default, and at most, 256. */
  readonly chunk?: number | undefined;
  /**
   * What is there of ours, read while it is iterated. A key may come twice; the last one counts. Undefined is no item, but
   * the end of a piece of work that took as long as many of them.
   */
  dump(): Iterable<readonly [key: string, item: Item] | undefined>;
  equal(a: Item, b: Item): boolean;
  /** A small whole number. Upserts go by ascending, deletes by descending order; all upserts first. By default 0. */
  order?(key: string): number;
  /** Where there is no room for all, those of higher rank stay. Without it those that came first do. */
  rank?(key: string, item: Item): number;
  /**
   * Synchronous, in the order given. One outcome for each change: undefined, or why not. A delete of what is not there
   * has succeeded. What it throws is the outcome of all.
   */
  apply(changes: readonly TableChange<Item>[]): readonly (SyscallError | undefined)[];
  /** The item in words, without the key. */
  print(item: Item): string;
}

/** What is to be in a table: a `Map`, or a view of an engine. */
export interface DesiredItems<Item> {
  readonly size: number;
  get(key: string): Item | undefined;
  entries(): Iterable<readonly [key: string, item: Item]>;
}
