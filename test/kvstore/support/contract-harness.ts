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

/** A kvstore server under test, and everything that can happen to it. */
export interface ContractKvstore {
  readonly name: string;
  /** The clock that `until` advances or waits on. What a test runs beside the client must use it, too. */
  readonly clock: Clock;
  /** @param options.leaseSeconds life of leased keys, default 60 */
  client(options?: { leaseSeconds?: number }): Promise<ContractClient>;
  /** Writes many keys, each transaction as large as the server takes. */
  load(entries: readonly Entry[]): Promise<void>;
  put(key: string, value: string): Promise<void>;
  remove(key: string): Promise<void>;
  /** Writes all entries in one transaction; `undefined` deletes. */
  together(entries: readonly (readonly [string, string | undefined])[]): Promise<void>;
  /** What the server holds now. */
  content(prefix: string): Promise<Map<string, string>>;
  /** Forgets all history up to now. */
  compact(): Promise<void>;
  /** Saves the state; the function returned restores it: revisions go back. */
  backup(): Promise<() => Promise<void>>;
  /** Stops the server as if killed, and starts it again. */
  restart(): Promise<void>;
  loseLeader(): Promise<void>;
  electLeader(): Promise<void>;
  /** Waits until it is so; fails when it takes too long. On a fake clock, time goes on meanwhile. */
  until(what: string, isSo: () => boolean | Promise<boolean>): Promise<void>;
  /** Lets time pass. */
  pass(ms: number): Promise<void>;
  dispose(): Promise<void>;
}
