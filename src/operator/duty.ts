import type { Failure } from '../base/failure.ts';

/**
 * One task of the operator, with one row in the status.
 *
 * A failure of a duty does not affect other duties (OPERATOR 5). The duty counts its failures in its status, and
 * retries.
 */
export interface Duty {
  readonly name: string;
  /**
   * Runs until the signal fires. Rejects only if an assertion fails. Call it again only when the run has ended.
   */
  run(signal: AbortSignal): Promise<void>;
  status(): DutyStatus;
}

/**
 * The state of a duty. `off`: not enabled. `waiting`: not started yet, or waiting for an input. `ended`: its signal has
 * fired, or its work is done.
 */
export type DutyState = 'off' | 'waiting' | 'running' | 'ended';

/** A write made by a duty, or only printed in a dry run. */
export interface Action {
  readonly duty: string;
  /** Verb and object, such as `delete ciliumendpoints.cilium.io/v2 shop/web-0`. */
  readonly action: string;
  /**
   * Why the write is made, without a final period. If a collector makes it, with the rounds in which the object was
   * unused.
   */
  readonly reason: string;
  /** The outcome of an `ObjectWriter`, such as `done`, `conflict` or `dry-run`; `queued` for keys of the kvstore. */
  readonly outcome: string;
}

/** Status of a task of an operator. */
export interface DutyStatus {
  readonly name: string;
  readonly state: DutyState;
  readonly failures: number;
  readonly lastFailure: Failure | undefined;
  /** Why the duty waits, without a final period. Undefined if the reason is not known, or if it is `lastFailure`. */
  readonly waitsFor?: string | undefined;
  /** Present if the duty maintains keys of a kvstore. */
  readonly published?: PublishedKeys | undefined;
  /** Present if the duty works in rounds. */
  readonly rounds?: DutyRounds | undefined;
}

/** The keys of a duty in the kvstore. */
export interface PublishedKeys {
  /** True if the canary is in the kvstore. Without a canary: if the content is complete and no write is pending. */
  readonly synced: boolean;
  /** Number of desired keys. */
  readonly keys: number;
  /** Number of keys whose writes are pending. */
  readonly pending: number;
  /** True if pending writes have failed, and have not succeeded since. Absent if the duty does not publish objects. */
  readonly isFailing?: boolean | undefined;
  readonly writes: number;
  /** Number of rejected objects: no valid key or value exists for them. */
  readonly rejected: number;
}

/** The work of a duty in its rounds. */
export interface DutyRounds {
  readonly rounds: number;
  /** Number of marked objects after the last round. A later round deletes the still unused ones. */
  readonly marked: number;
  readonly deleted: number;
  /** Number of deletes in conflict with another writer. The next round checks them again. */
  readonly conflicts: number;
  /** Wall time of the start of the last round, in milliseconds since the epoch; undefined before the first. */
  readonly lastRoundAt: number | undefined;
  /** Wall time of the start of the next round, in milliseconds since the epoch; undefined if none is planned. */
  readonly nextRoundAt: number | undefined;
}
