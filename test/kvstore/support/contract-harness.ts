import type { Clock } from '../../../src/base/clock.ts';
import type { KvstoreBackend } from '../../../src/kvstore/session/backend.ts';

/** A key and its value, as tests write them. */
export type Entry = readonly [key: string, value: string];

/** A client of the kvstore under test. The test controls its link to the server. */
export interface ContractClient {
  readonly backend: KvstoreBackend;
  /** Breaks every connection; new ones work. */
  cut(): Promise<void>;
  /** Breaks every connection and refuses new ones until `up`. */
  down(): Promise<void>;
  /** Drops all data in both directions until `up`. */
  blackHole(): Promise<void>;
  up(): Promise<void>;
  /** Breaks the connection of the next watch soon after its first events, in the middle of its catch-up. */
  cutNextCatchUp(): Promise<void>;
  /** Breaks the next watch as soon as the server has accepted it. */
  cutAfterCreated(): Promise<void>;
  /** Invalidates the token of the client. */
  expireToken(): Promise<void>;
  /** Withdraws the client's permission to read `prefix` until `allow`. */
  forbid(prefix: string): Promise<void>;
  allow(prefix: string): Promise<void>;
  /** Expires every lease of the client on the server. */
  loseLeases(): Promise<void>;
  /** Number of open connections and streams: none after `backend.close()`. */
  openStreams(): number;
  close(): Promise<void>;
}

/** What a test needs of its server in addition to being empty. */
export interface OpenOptions {
  /** Members of the cluster, default 1; a cluster of three can lose its leader. */
  readonly members?: number;
  /** Users, rights and tokens: needed for `expireToken` and `forbid`. */
  readonly auth?: boolean;
}

/** A kvstore server under test, and the faults that a test can cause. */
export interface ContractKvstore {
  readonly name: string;
  /**
   * The clock that `until` advances or waits on. Everything that a test runs besides the client must use it.
   */
  readonly clock: Clock;
  /** @param options.leaseSeconds lifetime of leased keys, default 60 */
  client(options?: { leaseSeconds?: number }): Promise<ContractClient>;
  /** Writes many keys, with transactions of the maximum size. */
  load(entries: readonly Entry[]): Promise<void>;
  put(key: string, value: string): Promise<void>;
  remove(key: string): Promise<void>;
  /** Writes all entries in one transaction; `undefined` deletes. */
  together(entries: readonly (readonly [string, string | undefined])[]): Promise<void>;
  /** Returns the current content of the server. */
  content(prefix: string): Promise<Map<string, string>>;
  /** Compacts all history until now. */
  compact(): Promise<void>;
  /** Saves the state. The returned function restores it: revisions go back. */
  backup(): Promise<() => Promise<void>>;
  /** Kills the server, and starts it again. */
  restart(): Promise<void>;
  loseLeader(): Promise<void>;
  electLeader(): Promise<void>;
  /** Waits until the condition holds; fails if that takes too long. A fake clock advances meanwhile. */
  until(what: string, isSo: () => boolean | Promise<boolean>): Promise<void>;
  /** Lets this time pass. */
  pass(ms: number): Promise<void>;
  dispose(): Promise<void>;
}
