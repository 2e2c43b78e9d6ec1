import { ObjectColumn } from '../../columns/object-column.ts';
import type { KeyWrite, WatchEvent } from '../session/backend.ts';
import type { ContestedKeys } from './contested-keys.ts';
import {
  CHANGED,
  DIFFERENT,
  FAILED,
  type Job,
  STORED,
  type SyncKeys,
  UNKNOWN,
  UP_TO_DATE,
} from './sync-keys.ts';

/** A write that is about to be sent, or was sent. */
export interface Attempt extends KeyWrite {
  readonly row: number;
  /** Undefined if the key is deleted. */
  readonly value: Uint8Array | undefined;
  /** True if the kvstore may already have the value. */
  readonly mayBeEqual: boolean;
  /**
   * True if the watch has delivered the value that the kvstore may already have, so that no event of it will follow.
   * False after a failed write, which may have taken effect.
   */
  readonly wasDelivered: boolean;
  /** The last event that the watch has delivered since the start of the put. */
  watched: WatchEvent | undefined;
}

/** Unknown: the revision of a put by another client, or by a failed write of this one. */
const UNKNOWN_REVISION = 0;

/**
 * Compares the events of a watch with the writes of a store. An event of a wanted key is the *echo* of a put, the event
 * of an earlier write, or a change by another client, which is reported to {@link ContestedKeys}.
 *
 *     begin ─► the put runs: the last event is kept ─► recordLanded: compared with it, or its echo is awaited
 *                                                                                         │
 *     receiveEvent: the echo, an earlier event, or a change of another client ◄───────────┘
 */
export class OwnWrites {
  readonly #keys: SyncKeys;
  readonly #contested: ContestedKeys<Job>;
  readonly #isLeased: boolean;
  /** The puts that are being written, by row. */
  readonly #running = new ObjectColumn<Attempt>();
  /** Set by the owner: true if the watch has read the prefix and follows its changes, so that it shows each delete. */
  isWatching = false;

  /** @param isLeased true if the keys are bound to leases */
  constructor(keys: SyncKeys, contested: ContestedKeys<Job>, isLeased: boolean) {
    this.#keys = keys;
    this.#contested = contested;
    this.#isLeased = isLeased;
  }

  /** Returns true while a put of the key runs. */
  isRunning(row: number): boolean {
    return this.#running.get(row) !== undefined;
  }

  /** Returns true if the kvstore may have the wanted value of a key. */
  mayBeEqual(row: number): boolean {
    const isUnknown = this.#keys.is(row, UNKNOWN | FAILED);
    return isUnknown || (!this.#isLeased && !this.#keys.is(row, STORED | DIFFERENT));
  }

  /** Begins a write. Events that the watch delivers from now on are compared with it. */
  begin(row: number): Attempt {
    const keys = this.#keys;
    const value = keys.wantedAt(row);
    const attempt: Attempt = {
      row,
      key: keys.keyAt(row),
      value,
      mayBeEqual: this.mayBeEqual(row),
      wasDelivered: this.isWatching && !keys.is(row, FAILED),
      watched: undefined,
    };
    keys.disinherit(row);
    keys.update(row, DIFFERENT | FAILED | UNKNOWN | STORED | UP_TO_DATE | CHANGED, 0);
    this.#running.set(row, value === undefined ? undefined : attempt);
    this.#contested.cancel(row);
    return attempt;
  }

  /** Records failed writes. They may have taken effect, so the values in the kvstore are unknown. */
  recordFailed(attempts: readonly Attempt[]): void {
    for (const { row } of attempts) {
      if (this.#keys.is(row, STORED)) continue;
      this.#running.set(row, undefined);
      this.#keys.set(row, FAILED);
    }
  }

  /**
   * Records that the writes of a transaction have landed.
   *
   * @param isComplete false if those were omitted whose values the kvstore had
   */
  recordLanded(attempts: readonly Attempt[], revision: number, isComplete: boolean): void {
    for (const attempt of attempts)
      this.#recordLanded(attempt, isComplete || !attempt.mayBeEqual ? revision : undefined);
  }

  /**
   * Records that a put has landed.
   *
   * @param revision of the write; undefined if the kvstore had the wanted value
   */
  #recordLanded({ row, value, wasDelivered, watched }: Attempt, revision?: number): void {
    const keys = this.#keys;
    if (value === undefined) return;
    const isChanged = keys.is(row, CHANGED);
    keys.update(row, UP_TO_DATE, isChanged ? STORED : STORED | UP_TO_DATE);
    this.#running.set(row, undefined);
    keys.stopAwaitingEcho(row);
    if (isChanged) return; // written again soon
    if (watched !== undefined && watched.modRevision >= (revision ?? UNKNOWN_REVISION)) {
      const isDesired = watched.modRevision === revision || keys.hasValue(row, watched);
      if (!isDesired) this.#contested.recordOverwrite(row); // by another client, after us
    } else if (revision !== undefined || !wasDelivered) {
      keys.awaitEcho(row, revision ?? UNKNOWN_REVISION);
    }
  }

  /** Records that the kvstore has the wanted value of a key under a lease that was adopted. */
  recordAdopted(row: number): void {
    const keys = this.#keys;
    keys.disinherit(row);
    keys.update(row, DIFFERENT | CHANGED, STORED | UP_TO_DATE);
    this.#contested.cancel(row);
    keys.stopAwaitingEcho(row);
    if (!this.isWatching) keys.awaitEcho(row, UNKNOWN_REVISION);
  }

  /** Receives an event of a wanted key. */
  receiveEvent(row: number, event: WatchEvent): void {
    const keys = this.#keys;
    const { type, modRevision } = event;
    const attempt = this.#running.get(row);
    if (attempt !== undefined) {
      attempt.watched = event;
      return;
    }
    if (!keys.is(row, STORED)) return; // written soon
    const echoAt = keys.echoOf(row);
    const isEcho = modRevision === echoAt && keys.is(row, UP_TO_DATE);
    const isDesired = isEcho || keys.hasValue(row, event);
    if (echoAt !== undefined && modRevision < echoAt) return; // replaced already
    keys.stopAwaitingEcho(row);
    if (isDesired) this.#contested.cancel(row);
    else if (type === 'delete' && echoAt !== UNKNOWN_REVISION) this.#contested.recordDelete(row);
    else this.#contested.recordOverwrite(row);
  }
}
