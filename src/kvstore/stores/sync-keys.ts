import { Int32Rows, setWideAt, wideAt } from '../../columns/int32-rows.ts';
import { ObjectColumn } from '../../columns/object-column.ts';
import { SharedPages } from '../../columns/shared-pages.ts';
import { bytesOfCharacters, keyJoiner } from '../codec/bytes.ts';
import type { WatchEvent } from '../session/backend.ts';
import type { KeyTable } from '../session/key-table.ts';
import { charactersOfValue, valueLength } from '../session/table-event.ts';
import type { LeaseID } from '../session/transport.ts';
import { bytesOf } from '../session/wire-key-value.ts';

/** The row of a key, {@link CANARY}, or a number below it, of an {@link InheritedLease}. */
export type Job = number;

export const CANARY: Job = -1;

/* The states of a key, which may be combined. */

/** The owner wants the key. A key that is not wanted must not exist. */
export const WANTED = 1;
/** The kvstore is known to have a value that this store has written or adopted. */
export const STORED = 2;
/** The kvstore is known to have the wanted value. Only with {@link STORED}. */
export const UP_TO_DATE = 4;
/** The value in the kvstore is unknown. The next write compares first. */
export const UNKNOWN = 8;
/** The last write failed. It may have taken effect, so the next write compares first. */
export const FAILED = 16;
/** The kvstore has another value, or none. The next write does not compare. */
export const DIFFERENT = 32;
/** The wanted value has changed since the last write began. */
export const CHANGED = 64;
/** From the call that changes the key until its last write has settled, or its lease is adopted. */
export const PENDING = 128;
/** The key waits for the adoption of its lease: see {@link InheritedLease}. Only with {@link PENDING}. */
export const WAITING = 256;
/** The row has a state. */
const PRESENT = 512;

/** A lease under which an earlier session has left keys. */
export interface InheritedLease {
  readonly id: LeaseID;
  readonly job: Job;
  /** The rows of the keys that wait until the lease is adopted. The first `done` rows do not wait any more. */
  waiting: number[];
  done: number;
  /** True if the lease cannot be adopted. */
  isRefused: boolean;
}

/**
 * Columns of a row: the states above; the revision of a stored put whose event the watch has not delivered yet, plus
 * one, in two words; the number of puts that were stored before it.
 */
const STATES = 0;
const ECHO = 1;
const ORDER = 3;
const COLUMNS = 4;

const FIRST_ROWS = 16;

/** Objects by job. A `Map` of 100,000 entries takes milliseconds in one turn when it grows. */
export class JobColumn<T extends object> {
  readonly #byRow = new ObjectColumn<T>();
  readonly #others = new ObjectColumn<T>();

  get(job: Job): T | undefined {
    return job < 0 ? this.#others.get(CANARY - job) : this.#byRow.get(job);
  }

  set(job: Job, value: T | undefined): void {
    if (job < 0) this.#others.set(CANARY - job, value);
    else this.#byRow.set(job, value);
  }

  delete(job: Job): void {
    this.set(job, undefined);
  }
}

/**
 * The names of a writer that are wanted, queued, being written, or left by an earlier session: their states and values,
 * by the row of the name in a table that the writer shares with a watch of the prefix. A name needs no object on the
 * heap.
 *
 *     row    states │ revision of the awaited event │ order        wanted value │ inherited value
 */
export class SyncKeys {
  readonly table: KeyTable;
  readonly #joinKey: (name: Uint8Array, from: number, to: number) => string;
  readonly #rows = new Int32Rows(COLUMNS, new SharedPages(), FIRST_ROWS);
  /** The characters of the wanted values. */
  readonly #values = new ObjectColumn<string>();
  /** The characters of the values that an earlier session has left, and their leases, while leases are adopted. */
  #inherited = new ObjectColumn<string>();
  #inheritedLeases = new ObjectColumn<InheritedLease>();
  readonly #leases = new Map<LeaseID, InheritedLease>();
  readonly #leasesByJob: InheritedLease[] = [];
  #size = 0;
  #awaitedEchoes = 0;
  #echoes = 0;

  constructor(table: KeyTable, prefix: string) {
    this.table = table;
    this.#joinKey = keyJoiner(prefix);
  }

  get size(): number {
    return this.#size;
  }

  /** Returns the row of a name; -1 if the table does not have it. */
  rowOf(name: string): number {
    return this.table.find(bytesOf({ key: name }), 0);
  }

  nameAt(row: number): string {
    return this.table.nameAt(row) ?? '';
  }

  /** Returns the whole key of a row: the prefix and the name. */
  keyAt(row: number): string {
    return this.table.readName(row, this.#joinKey) ?? '';
  }

  /** Returns true if the row has a state; false if it is -1. */
  has(row: number): boolean {
    return this.is(row, PRESENT);
  }

  /** Returns the row of a name, with a new state if it has none. */
  ensure(name: string): number {
    const row = this.table.ensure(bytesOf({ key: name }), 0);
    if (!this.has(row)) this.add(row);
    return row;
  }

  /** Adds a state for a row without one. */
  add(row: number): void {
    this.table.setWritten(row, true);
    this.#rows.reserve(row);
    this.update(row, 0, PRESENT);
    this.#size++;
  }

  /** Removes a state that was not removed before. */
  delete(row: number): void {
    this.#values.set(row, undefined);
    this.disinherit(row);
    this.#rows.set(row, STATES, 0);
    this.stopAwaitingEcho(row);
    this.table.setWritten(row, false);
    this.#size--;
  }

  /** Returns true if one of the states is set. */
  is(row: number, states: number): boolean {
    return (this.#rows.get(row, STATES) & states) !== 0;
  }

  /** Clears states, then sets others. */
  update(row: number, cleared: number, states: number): void {
    const page = this.#rows.writablePageOf(row);
    const at = this.#rows.offsetOf(row) + STATES;
    page[at] = ((page[at] ?? 0) & ~cleared) | states;
  }

  set(row: number, states: number): void {
    this.update(row, 0, states);
  }

  /** Returns the number of bytes of the name and of the wanted value. */
  sizeOf(row: number): number {
    return this.table.nameLength(row) + (this.#values.get(row)?.length ?? 0);
  }

  /** Returns a copy of the wanted value; `undefined` if the key is not wanted. */
  wantedAt(row: number): Uint8Array | undefined {
    const value = this.#values.get(row);
    return value === undefined ? undefined : bytesOfCharacters(value);
  }

  /** Returns true if an event is a put of the wanted value. */
  hasValue(row: number, event: WatchEvent): boolean {
    const wanted = this.#values.get(row);
    if (event.type === 'delete' || wanted?.length !== valueLength(event)) return false;
    return wanted === charactersOfValue(event);
  }

  /** Sets the wanted value. */
  want(row: number, value: string): void {
    if (this.#values.get(row) === value) return;
    const inherited = this.#inherited.get(row);
    this.update(row, UP_TO_DATE, WANTED | CHANGED);
    this.#values.set(row, value === inherited ? inherited : value); // one text in memory
  }

  /** Records that the key must not exist. */
  unwant(row: number): void {
    this.update(row, WANTED | UP_TO_DATE, CHANGED);
    this.#values.set(row, undefined);
  }

  /** Records that an earlier session has left the value of an event. */
  inherit(row: number, event: WatchEvent): void {
    const wanted = this.#values.get(row);
    const value = charactersOfValue(event);
    const { lease } = event;
    this.#inherited.set(row, value === wanted ? wanted : value); // one text in memory
    this.#inheritedLeases.set(row, lease === undefined ? undefined : this.#inheritedLease(lease));
  }

  #inheritedLease(id: LeaseID): InheritedLease {
    let lease = this.#leases.get(id);
    if (lease === undefined) {
      lease = { id, job: CANARY - 1 - this.#leasesByJob.length, waiting: [], done: 0, isRefused: false };
      this.#leases.set(id, lease);
      this.#leasesByJob.push(lease);
    }
    return lease;
  }

  /** Returns the characters of the value that an earlier session has left; `undefined` if there is none. */
  inheritedAt(row: number): string | undefined {
    return this.#inherited.get(row);
  }

  /** Returns the lease under which an earlier session has left the wanted value; `undefined` if it has not. */
  leaseOfWanted(row: number): InheritedLease | undefined {
    const value = this.#values.get(row);
    return value !== undefined && value === this.#inherited.get(row)
      ? this.#inheritedLeases.get(row)
      : undefined;
  }

  leaseOf(job: Job): InheritedLease | undefined {
    return this.#leasesByJob[CANARY - 1 - job];
  }

  /** Forgets that an earlier session has left a value. */
  disinherit(row: number): void {
    this.#inherited.set(row, undefined);
    this.#inheritedLeases.set(row, undefined);
  }

  /** Forgets all values of earlier sessions. */
  disinheritAll(): void {
    this.#inherited = new ObjectColumn();
    this.#inheritedLeases = new ObjectColumn();
  }

  /** Returns the revision of a stored put whose event is awaited; `undefined` if there is none. */
  echoOf(row: number): number | undefined {
    const echo = wideAt(this.#rows.pageOf(row), this.#rows.offsetOf(row) + ECHO);
    return echo === 0 ? undefined : echo - 1;
  }

  /** Number of stored puts whose events are awaited. */
  get awaitedEchoes(): number {
    return this.#awaitedEchoes;
  }

  /** Number of stored puts whose events are or were awaited. */
  get echoes(): number {
    return this.#echoes;
  }

  /** Awaits the event of a stored put. No other event of the key may be awaited. */
  awaitEcho(row: number, revision: number): void {
    this.#awaitedEchoes++;
    this.#setEcho(row, revision + 1, this.#echoes++);
  }

  stopAwaitingEcho(row: number): void {
    if (this.echoOf(row) === undefined) return;
    this.#awaitedEchoes--;
    this.#setEcho(row, 0, 0);
  }

  #setEcho(row: number, echo: number, order: number): void {
    const page = this.#rows.writablePageOf(row);
    const at = this.#rows.offsetOf(row);
    setWideAt(page, at + ECHO, echo);
    page[at + ORDER] = order;
  }

  /**
   * Returns true if the event of a put is awaited, and was already when {@link SyncKeys.echoes} was `echoes`. Both
   * numbers are compared modulo 2³².
   */
  isEchoBefore(row: number, echoes: number): boolean {
    return this.echoOf(row) !== undefined && ((this.#rows.get(row, ORDER) - echoes) | 0) < 0;
  }

  /**
   * Iterates over the rows with a state. States may be added and deleted during the iteration: a deleted one is not
   * visited, and an added one may be.
   */
  *rows(): Generator<number, void, void> {
    for (let row = 0; row < this.table.limit; row++) if (this.has(row)) yield row;
  }

  /**
   * Calls `visit` with each row that has a state, like {@link SyncKeys.rows}, and frees the rows of keys that only an
   * ended watch knew. Yields after each `slice` rows.
   */
  *visit(slice: number, visit: (row: number) => void): Generator<void, void, void> {
    for (let row = 0; row < this.table.limit; row++) {
      if (this.has(row)) visit(row);
      else this.table.release(row);
      if ((row + 1) % slice === 0) yield;
    }
  }
}
