import { ObjectColumn } from '../../columns/object-column.ts';
import type { KeyTable } from '../session/key-table.ts';
import { bytesOf } from '../session/wire-key-value.ts';
import { SyncKey } from './sync-key.ts';

/** The states of the keys of a writer, by the row of the key in a table that it shares with a watch of the prefix. */
export class SyncKeys {
  readonly table: KeyTable;
  readonly #states = new ObjectColumn<SyncKey>();
  #size = 0;

  constructor(table: KeyTable) {
    this.table = table;
  }

  get size(): number {
    return this.#size;
  }

  /** Returns the row of a name; -1 if the table does not have it. */
  rowOf(name: string): number {
    return this.table.find(bytesOf({ key: name }), 0);
  }

  get(name: string): SyncKey | undefined {
    return this.at(this.rowOf(name));
  }

  /** Returns the state in a row; `undefined` if there is none, or if the row is -1. */
  at(row: number): SyncKey | undefined {
    return row < 0 ? undefined : this.#states.get(row);
  }

  /** Returns the state of a name, a new one if it has none. */
  ensure(name: string): SyncKey {
    const row = this.rowOf(name);
    return this.at(row) ?? this.add(name, row);
  }

  /**
   * Adds a state for a name without one.
   *
   * @param row see {@link SyncKeys.rowOf}
   */
  add(name: string, row: number): SyncKey {
    const at = row < 0 ? this.table.add(bytesOf({ key: name }), 0) : row;
    const key = new SyncKey(name, at);
    this.table.setWritten(at, true);
    this.#states.set(at, key);
    this.#size++;
    return key;
  }

  /** Removes a state that was not removed before. */
  delete({ row }: SyncKey): void {
    this.#states.set(row, undefined);
    this.table.setWritten(row, false);
    this.#size--;
  }

  /**
   * Iterates over the states in any order. States may be added and deleted during the iteration: a deleted one is not
   * visited, and an added one may be.
   */
  *values(): Generator<SyncKey, void, void> {
    for (let row = 0; row < this.table.limit; row++) {
      const key = this.#states.get(row);
      if (key !== undefined) yield key;
    }
  }

  /**
   * Calls `visit` with each state, like {@link SyncKeys.values}, and frees the rows of keys that only an ended watch
   * knew. Yields after each `slice` rows.
   */
  *visit(slice: number, visit: (key: SyncKey) => void): Generator<void, void, void> {
    for (let row = 0; row < this.table.limit; row++) {
      const key = this.#states.get(row);
      if (key === undefined) this.table.release(row);
      else visit(key);
      if ((row + 1) % slice === 0) yield;
    }
  }
}
