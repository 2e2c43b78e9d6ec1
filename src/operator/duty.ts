import type { Failure } from '../base/failure.ts';

/**
 * One thing that an operator does for its cluster: a file, a switch, a row in the status.
 *
 * A duty fails alone (OPERATOR 5): what goes wrong is counted in its status and tried again, and the other duties go on.
 */
export interface Duty {
  readonly name: string;
  /** Does it until the signal fires; rejects only where an assertion is broken. Once at a time; it may be run again afterwards. */
  run(signal: AbortSignal): Promise<void>;
  status(): DutyStatus;
}

/** `off`: not switched on. `waiting`: it is not running yet, or waits for what it needs. `ended`: its signal has fired, or all of it is done. */
export type DutyState = 'off' | 'waiting' | 'running' | 'ended';

/** A duty as data. */
export interface DutyStatus {
  readonly name: string;
  readonly state: DutyState;
  readonly failures: number;
  readonly lastFailure: Failure | undefined;
  /** Of a duty that keeps keys of a kvstore. */
  readonly published?: PublishedKeys | undefined;
  /** Of a duty that works in rounds. */
  readonly rounds?: DutyRounds | undefined;
}

/** What a duty keeps in the kvstore. */
export interface PublishedKeys {
  /** Everything is there that its inputs ask for, and the canary says so, where there is one. */
  readonly synced: boolean;
  /** Keys that are to exist. */
  readonly keys: number;
  /** Keys that the kvstore does not yet hold as they are to be. */
  readonly pending: number;
  readonly writes: number;
  /** Objects from which no key can be made. */
  readonly refused: number;
}

/** What a duty has done in its rounds. */
export interface DutyRounds {
  readonly rounds: number;
  /** Found in the last round, and to be deleted if the next one still finds it. */
  readonly marked: number;
  readonly deleted: number;
  /** Deletes that another writer forestalled: looked at again in the next round. */
  readonly conflicts: number;
  /** Wall time at which the last round began; undefined before the first. */
  readonly lastRoundMs: number | undefined;
  /** Wall time at which the next round begins; undefined while none is planned. */
  readonly nextRoundMs: number | undefined;
}
