import type { FaultListener } from '../base/guard.ts';
import type { Rejection, RejectionStatus } from '../base/rejection.ts';
import type { Source } from '../identity/source.ts';
import type { DeleteOutcome, UpsertOutcome } from './types.ts';

/** How an `IPCache` is made. */
export interface IPCacheOptions {
  /**
   * Keep claims that a stronger one overrules, and promote them when it goes (the default). `false` gives the
   * classic single slot: what is overruled or overwritten is forgotten, the last writer of equal rank wins.
   */
  readonly retainOverruled?: boolean | undefined;
  /**
   * How many keys fit, shadowed ones included. A claim on one more gets `capacity` and waits: it is let in as room
   * appears, the strongest source first. No limit by default.
   */
  readonly maxEntries?: number | undefined;
  /** How many keys may wait for room; claims on further ones are dropped and counted. By default `maxEntries`, at least 65,536. */
  readonly maxWaiting?: number | undefined;
  /**
   * Seeds the hash of addresses. Give a random number where strangers choose addresses, so that they cannot choose
   * ones that collide; leave it out for runs that repeat exactly.
   */
  readonly hashSeed?: number | undefined;
  /** Most entries of one call in a replay, at least 1; 1024 by default. */
  readonly replayChunk?: number | undefined;
  /** Receives every rejected input, for logs. */
  readonly onReject?: ((rejection: Rejection) => void) | undefined;
  /** Receives what a listener, or `onReject`, has thrown or was rejected with (I7). */
  readonly onListenerFault?: FaultListener | undefined;
}

/** What calls of `upsert`, `delete` and `withdraw` came to; `deleted` counts claims taken away. */
export type CountedOutcome = UpsertOutcome | Exclude<DeleteOutcome, 'applied'> | 'deleted';

/** Keys of one address family. */
export interface FamilyCounts {
  /** Endpoint IPs. */
  readonly endpoints: number;
  /** CIDRs by prefix length; lengths without any are left out. */
  readonly cidrs: Readonly<Record<string, number>>;
}

/** Counts and rejections of an `IPCache`, as plain data (I12). */
export interface IPCacheStatus {
  /** Keys held, shadowed ones included. */
  readonly entries: number;
  /** Full-length CIDRs that an endpoint IP hides. */
  readonly shadowed: number;
  /** Claims kept while a stronger one is effective. */
  readonly overruledClaims: number;
  readonly maxEntries: number | 'unlimited';
  /** The most keys that were ever held at once. */
  readonly highWater: number;
  /** How full it is, 0 to 1; 0 when there is no limit. */
  readonly pressure: number;
  /** Keys whose claims wait for room; `IPCache.waiting` lists them. */
  readonly waiting: number;
  /** Claims that were dropped because too many waited already. */
  readonly dropped: number;
  readonly ipv4: FamilyCounts;
  readonly ipv6: FamilyCounts;
  /** Bytes held by tables and rows; metadata objects, overruled claims and snapshots not counted. */
  readonly bytes: number;
  /** Effective entries per source. */
  readonly entriesBySource: Readonly<Partial<Record<Source, number>>>;
  /** Outcomes since the cache was made; those of a batch that was taken back count too. */
  readonly outcomes: Readonly<Record<CountedOutcome, number>>;
  readonly rejections: RejectionStatus;
  readonly listeners: number;
  /** Faults of listeners and of `onReject`. */
  readonly listenerFaults: number;
  readonly revision: number;
}
