import type { Claim } from '../../src/ipcache/types.ts';

/**
 * A cache of IPs: the engine, or a peer for comparison. Work is passed in arrays, so that each subject has its own
 * loops, which V8 compiles separately.
 */
export interface Subject {
  readonly size: number;
  /** Number of changes that its listener received, if it has one. */
  readonly changes: number;
  upsertAll(keys: readonly string[], claims: readonly Claim[]): void;
  /** Looks up every key exactly and returns the number of hits. */
  getAll(keys: readonly string[]): number;
  deleteAll(keys: readonly string[]): void;
}

/** A subject that finds the longest prefix of an address. */
export interface PrefixSubject extends Subject {
  /** Looks up the longest match of every address and returns the number of hits. */
  matchAll(addresses: readonly string[]): number;
}
