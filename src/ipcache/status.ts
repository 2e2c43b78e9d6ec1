import type { FaultListener } from '../base/guard.ts';
import type { Rejection, RejectionStatus } from '../base/rejection.ts';
import type { Source } from '../model/source.ts';
import type { DeleteOutcome, UpsertOutcome } from './types.ts';

/** Options of an `IPCache`. */
export interface IPCacheOptions {
  /**
   * If true (the default), overruled claims are kept, and promoted when the stronger one is deleted. If false, a key
   * has one claim: overruled and overwritten claims are dropped, and the last writer of equal rank wins.
   */
  readonly retainOverruled?: boolean | undefined;
  /**
   * Maximum number of keys, shadowed ones included. A claim on a further key returns `capacity` and waits. Waiting
   * claims are admitted when keys are deleted, the strongest source first. Unlimited by default.
   */
  readonly maxEntries?: number | undefined;
  /** Maximum number of waiting keys. Claims on others are counted, not kept. Default: `maxEntries`, at least 65,536. */
  readonly maxWaiting?: number | undefined;
  /**
   * Seed of the hashes of addresses and pods. Pass a random number if untrusted parties choose them, so that they
   * cannot choose colliding ones. Omit it for reproducible runs.
   */
  readonly hashSeed?: number | undefined;
  /** Maximum entries in one replay call to a listener, at least 1. Default: 1,024. */
  readonly replayChunk?: number | undefined;
  /** Receives every rejected input, for logs. */
  readonly onReject?: ((rejection: Rejection) => void) | undefined;
  /** Receives the errors and rejected promises of listeners and of `onReject` (I7). */
  readonly onListenerFault?: FaultListener | undefined;
}

/** The counted outcomes of `upsert`, `delete` and `withdraw`. `deleted` counts deleted claims. */
export type CountedOutcome = UpsertOutcome | Exclude<DeleteOutcome, 'applied'> | 'deleted';

/** Key counts of one address family. */
export interface FamilyCounts {
  /** Endpoint IPs. */
  readonly endpoints: number;
  /** CIDRs by prefix length. Lengths without CIDRs are omitted. */
  readonly cidrs: Readonly<Record<string, number>>;
}

/** Counts and rejections of an `IPCache`, as plain data (I12). */
export interface IPCacheStatus {
  /** Keys, shadowed ones included. */
  readonly entries: number;
  /** Full-length CIDRs that an endpoint IP shadows. */
  readonly shadowed: number;
  /** Claims that are kept but not effective. */
  readonly overruledClaims: number;
  readonly maxEntries: number | 'unlimited';
  /** Maximum number of keys so far. */
  readonly highWater: number;
  /** Used fraction of `maxEntries`, 0 to 1; 0 if there is no limit. */
  readonly pressure: number;
  /** Keys whose claims wait for room. `IPCache.waiting` lists them. */
  readonly waiting: number;
  /** Claims that were dropped because too many keys waited. */
  readonly dropped: number;
  readonly ipv4: FamilyCounts;
  readonly ipv6: FamilyCounts;
  /** Memory of tables and rows in bytes, without metadata objects, overruled claims and snapshots. */
  readonly bytes: number;
  /** Effective entries per source. */
  readonly entriesBySource: Readonly<Partial<Record<Source, number>>>;
  /** Outcomes since the cache was created, including those of batches rolled back. */
  readonly outcomes: Readonly<Record<CountedOutcome, number>>;
  readonly rejections: RejectionStatus;
  readonly listeners: number;
  /** Faults of listeners and of `onReject`. */
  readonly listenerFaults: number;
  readonly revision: number;
}
