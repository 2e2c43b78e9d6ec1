import type { EntryTable, WorkEntry } from '../../base/work-queue.ts';
import type { LeaseID } from '../session/transport.ts';
import type { Canary } from './canary.ts';
import type { ContestedKey } from './contested-keys.ts';

export type Job = SyncKey | Canary;

/**
 * The entries of the queue, each a field of its job. A `Map` of 100,000 entries takes milliseconds in one turn when it
 * grows.
 */
export const JOB_ENTRIES: EntryTable<Job> = {
  get: (job) => job.entry,
  set: (job, entry) => {
    job.entry = entry;
  },
  delete: (job) => {
    job.entry = undefined;
  },
};

/** The state of a name that is wanted, queued, being written, or left by an earlier session. */
export class SyncKey implements ContestedKey {
  readonly name: string;
  /** The row of the name in the table of the keys. */
  readonly row: number;
  /** The characters of the value that the owner wants; undefined if the key must not exist. */
  wanted: string | undefined;
  /**
   * The characters of the value that is known to be in the kvstore; undefined if unknown, or if the key does not exist.
   */
  stored: string | undefined;
  /** True if the value in the kvstore is unknown. The next write compares first. */
  isUnknown = false;
  /** True if the last write failed. It may have taken effect, so the next write compares first. */
  hasFailed = false;
  /** True if the kvstore has another value, or none. The next write does not compare. */
  isDifferent = false;
  isWriting = false;
  /** The last event that the watch delivered since the start of the put. */
  watchedWrite: { readonly isDesired: boolean; readonly modRevision: number } | undefined;
  /** Revision of a stored put whose event the watch has not delivered yet; undefined if there is none. */
  echoRevision: number | undefined;
  /** Number of puts that were stored before the put with `echoRevision`. */
  order = 0;
  /** True from the call that queues the key until its last write has settled. */
  isPending = false;
  /** The entry of the queue while the key is due or worked on. */
  entry: WorkEntry<Job> | undefined;
  history: ContestedKey['history'];
  /** The value that an earlier session has left, while its leases are adopted. */
  inherited: { readonly value: string; readonly lease: LeaseID | undefined } | undefined;

  constructor(name: string, row: number) {
    this.name = name;
    this.row = row;
  }
}

/** Returns true if the kvstore is known to have the wanted value. Always false for a key that must not exist. */
export function isLanded({ wanted, stored }: SyncKey): boolean {
  return wanted !== undefined && wanted === stored;
}
