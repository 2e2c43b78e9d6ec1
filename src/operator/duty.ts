import type { Failure } from '../base/failure.ts';

/**
 * One task that an operator does for its cluster: one file, one switch, one row in the status.
 *
 * A duty fails alone (OPERATOR 5): its failures are counted in its status and retried, and the other duties continue.
 */
export interface Duty {
  readonly name: string;
  /** Runs until the signal fires. Rejects only if an assertion is broken. Runs once at a time; may be run again afterwards. */
  run(signal: AbortSignal): Promise<void>;
  status(): DutyStatus;
}

/**
 * The state of a duty. `off`: not switched on. `waiting`: not running yet, or waiting for a dependency. `ended`: its signal has fired, or its work
 * is done.
 */
export type DutyState = 'off' | 'waiting' | 'running' | 'ended';

/** A write that a duty made, or would have made in a dry run. */
export interface Action {
  readonly duty: string;
  /** `delete ciliumendpoints.cilium.io/v2 shop/web-0`. */
  readonly action: string;
  /** Reason without a final period, with the rounds that found the object. */
  readonly reason: string;
  /** `done`, `conflict`, `not-found`, `dry-run` … */
  readonly outcome: string;
}

/** The status of a duty. */
export interface DutyStatus {
  readonly name: string;
  readonly state: DutyState;
  readonly failures: number;
  readonly lastFailure: Failure | undefined;
  /** Present if the duty maintains keys of a kvstore. */
  readonly published?: PublishedKeys | undefined;
  /** Present if the duty works in rounds. */
  readonly rounds?: DutyRounds | undefined;
}

/** The keys that a duty maintains in the kvstore. */
export interface PublishedKeys {
  /** True if all desired keys are in the kvstore, and the canary if there is one. */
  readonly synced: boolean;
  /** Number of desired keys. */
  readonly keys: number;
  /** Number of keys whose writes are pending. */
  readonly pending: number;
  readonly writes: number;
  /** Number of objects from which no key can be made. */
  readonly refused: number;
}

/** The work of a duty in its rounds. */
export interface DutyRounds {
  readonly rounds: number;
  /** Number of objects found in the last round. They are deleted if the next round still finds them. */
  readonly marked: number;
  readonly deleted: number;
  /** Number of deletes that conflicted with another writer. The next round checks them again. */
  readonly conflicts: number;
  /** Wall time of the start of the last round; undefined before the first. */
  readonly lastRoundMs: number | undefined;
  /** Wall time of the start of the next round; undefined if none is planned. */
  readonly nextRoundMs: number | undefined;
}
