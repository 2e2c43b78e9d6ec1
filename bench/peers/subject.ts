import type { Claim } from '../../src/ipcache/types.ts';

/**
 * Something that keeps what is known of IPs: the engine, or a peer to compare it with. Work comes in arrays, so that
 * each subject has loops of its own, which V8 compiles for it alone.
 */
export interface Subject {
  readonly size: number;
  /** How many changes its listener was told, where it has one. */
  readonly told: number;
  upsertAll(keys: readonly string[], claims: readonly Claim[]): void;
  /** Looks every key up exactly and says how many were there. */
  getAll(keys: readonly string[]): number;
  deleteAll(keys: readonly string[]): void;
}

/** A subject that finds the longest prefix of an address. */
export interface PrefixSubject extends Subject {
  /** Looks up the longest match of every address and says how many had one. */
  matchAll(addresses: readonly string[]): number;
}
