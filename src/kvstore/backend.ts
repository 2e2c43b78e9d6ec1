import type { DelayStatus } from '../base/delay-counts.ts';
import type { Failure } from '../base/failure.ts';
import type { Unsubscribe } from '../base/subscription.ts';
import type { SupervisorStatus } from '../base/supervisor.ts';
import type { KvstoreErrorCode } from './errors.ts';
import type { CallOptions, EndpointStatus, KeyValue, ResponseHeader } from './transport.ts';

/** Which keys to list. */
export interface ListOptions extends CallOptions {
  /** Only those last written at this revision or later; the kvstore walks over all of them nevertheless. */
  readonly minModRevision?: number | undefined;
}

/** A key as a quorum sees it, and the store that holds it. */
export interface KeyRead {
  /** Undefined when the key does not exist. */
  readonly kv: KeyValue | undefined;
  /** Its revision is that of the store, not of the key: every event received before the read began is at or below it. */
  readonly header: ResponseHeader;
}

/** How a key is written. */
export interface WriteOptions extends CallOptions {
  /** Write only while this lock is held; otherwise nothing is written, and `lock-lost` is the error's code. */
  readonly ifLocked?: KvstoreLock | undefined;
  /**
   * Bind the key to the client's session: it goes when the client does (15 minutes after its last sign of life). `first`:
   * before all other keys of the session, so that whoever sees it knows that none of them has gone this way.
   */
  readonly leased?: boolean | 'first' | undefined;
  /**
   * Should the outcome of this call stay unknown (`deadline`, `unavailable`, an abort), it does not take effect any more
   * once a later fenced write of this backend was answered. Costs one key of the session's for all fenced writes, and
   * another call where the write is conditional and its condition does not hold.
   */
  readonly fenced?: boolean | undefined;
  /**
   * An `update` may be made in one transaction with others that say so, at one revision: many at a time cost little more than
   * one. `deadlineMs` is that of all writes then. Default false.
   */
  readonly together?: boolean | undefined;
}

/** Which key may be deleted. */
export interface DeleteOptions extends CallOptions {
  /** As in {@link WriteOptions}. */
  readonly ifLocked?: KvstoreLock | undefined;
  /** Only while the key was last written at this revision. */
  readonly ifModRevision?: number | undefined;
  /** As in {@link WriteOptions}. */
  readonly fenced?: boolean | undefined;
}

/** A lock that is held. It is lost with its session; `ifLocked` guards writes against that. */
export interface KvstoreLock {
  /** The key under the lock's path that says who holds it. */
  readonly key: string;
  /** Create revision of that key. */
  readonly revision: number;
  /** Fires when the lock is known to be lost before it was released. */
  readonly lost: AbortSignal;
  /** Gives the lock back. Idempotent; never rejects: what an unreachable server misses is sent later. */
  release(): Promise<void>;
}

/** What happened to a key under a watched prefix. */
export interface WatchEvent {
  /**
   * `create`: this watch did not know the key; `modify`: it did; `delete`: it did, and the key is gone.
   * `list-done`, without key, comes once in the life of a watch: what existed at its start has been delivered.
   */
  readonly type: 'create' | 'modify' | 'delete' | 'list-done';
  readonly key: string;
  /** Empty for `delete` and `list-done`. */
  readonly value: Uint8Array;
  /** Of the write that made the event; for a delete that a listing discovered, the revision of the listing. */
  readonly modRevision: number;
}

/** What a watch is doing. */
export type WatchState =
  /** Reading the keys that exist. */
  | 'listing'
  /** Following changes. */
  | 'watching'
  /** It has failed and will try again. */
  | 'waiting'
  /** The user may not read the prefix; tried again slowly. */
  | 'forbidden'
  /** Ended by its signal or by its reader. */
  | 'ended'
  /** Ended because the store is another one, or another past of the same (`endOnDivergence`). */
  | 'diverged';

/** How to watch. */
export interface WatchOptions {
  readonly signal?: AbortSignal | undefined;
  /**
   * End the watch, in state `diverged` and without deletes, when the store turns out to be another one or to
   * have been restored from a backup. By default it is listed anew, and what it lacks is deleted: wrong where
   * a new store is still being filled.
   */
  readonly endOnDivergence?: boolean | undefined;
  /**
   * Called when the watch has entered a state, or has failed once more; `status()` is up to date then. Synchronous; a
   * fault of it is ignored.
   */
  readonly onState?: ((state: WatchState) => void) | undefined;
}

/** A watch as data. */
export interface WatchStatus {
  readonly prefix: string;
  readonly state: WatchState;
  /** Keys known now. */
  readonly keys: number;
  /** Everything before this revision has been seen. */
  readonly nextRevision: number;
  /** Whether `list-done` has been reached. */
  readonly listed: boolean;
  readonly listings: number;
  readonly resumptions: number;
  readonly failures: number;
  readonly lastFailure: Failure | undefined;
  /** Bytes received and not yet read: bounded (I11). */
  readonly queuedBytes: number;
  /**
   * For each event of the stream (those of lists are not counted), how long after its arrival the reader had done with its
   * batch. While the reader is behind, events count from the arrival of the oldest that it had not taken.
   */
  readonly delays: DelayStatus;
}

/**
 * A list-and-watch of one prefix (SEMANTICS 5). Iterate it once; each item is a batch that is never empty.
 *
 * Promises: events of a key are in order; after `list-done` what was delivered equals the prefix at some revision,
 * and goes on to equal later and later ones; nothing is lost and nothing is invented over disconnects,
 * compactions and restores; writes of one transaction are in one batch unless one of them was overwritten
 * before it was read. After a fault a key may be delivered again as it is, where the server could not prove that
 * nothing had changed. A slow reader sees the last of several writes of a key only, and holds back the server
 * instead of filling memory.
 *
 * It never fails: what goes wrong is retried and shown in `status()`. It ends when its signal fires or its
 * reader leaves the loop, and then delivers no deletes.
 */
export interface Watch extends AsyncIterable<readonly WatchEvent[]> {
  status(): WatchStatus;
}

/** A backend as data. */
export interface BackendStatus {
  /** For people: `memory`, `etcd`. */
  readonly kind: string;
  /** Whether the last that was heard of the server, on a call, a watch or a keepalive, is not that it is out of reach. */
  readonly connected: boolean;
  readonly clusterID: string | undefined;
  /** How many calls of the transport were answered, and have failed with which code. Streams of watches are none. */
  readonly requests: Readonly<Partial<Record<KvstoreErrorCode | 'ok', number>>>;
  readonly leases: number;
  readonly leasesLost: number;
  readonly watches: readonly WatchStatus[];
  /** False when the user has no right to fence writes (`cilium/.initlock/`): they are not guarded then. */
  readonly isFenced: boolean;
  /** Keepalives, and locks that are being given up. */
  readonly background: SupervisorStatus;
  /** What listeners of lost leases have thrown. */
  readonly listenerFaults: number;
  readonly lastFailure: Failure | undefined;
}

/**
 * Receives the keys that were bound to a lease of the session when that is lost: the writer puts them again. A watch
 * that finds the store restored from a backup gives all leases up too: the backup brings back keys that were
 * deleted since, and kept alive they would stay for good.
 */
export type LeaseLostListener = { onLeaseLost(keys: readonly string[]): void };

/** Says when a server that is out of reach may be tried again: for many clients in one process. */
export interface RetryTurns {
  /** Resolves when it is the caller's turn, or the signal fires. */
  turn(signal: AbortSignal): Promise<void>;
  /** A server that was tried in its turn has answered. */
  succeeded(): void;
}

/**
 * A kvstore as the stores above see it (SEMANTICS 5). Calls reject with a `KvstoreError` when the server
 * cannot be reached or refuses; they are not retried here, the stores do that.
 */
export interface KvstoreBackend {
  /** The key now, by quorum; `undefined` when it does not exist. */
  get(key: string, options?: CallOptions): Promise<KeyValue | undefined>;
  /** As {@link get}, with what the answer says of the store. */
  read(key: string, options?: CallOptions): Promise<KeyRead>;
  /**
   * Every key that starts with `prefix`, ascending, all at one revision. End prefixes in `/`. Fails with `unavailable` when the
   * store is restored from a backup meanwhile.
   */
  listPrefix(prefix: string, options?: ListOptions): Promise<readonly KeyValue[]>;
  /** Writes, whatever was there; gives the revision of the write. */
  update(key: string, value: Uint8Array, options?: WriteOptions): Promise<number>;
  /** Writes unless the key already has this value and, if leased, this session's lease. True when it wrote. */
  updateIfDifferent(key: string, value: Uint8Array, options?: WriteOptions): Promise<boolean>;
  /** Writes only if the key does not exist. True when it wrote. */
  createOnly(key: string, value: Uint8Array, options?: WriteOptions): Promise<boolean>;
  /** Writes `key` only if the key `condition` exists. True when it wrote. */
  createIfExists(condition: string, key: string, value: Uint8Array, options?: WriteOptions): Promise<boolean>;
  /** True when the key existed, and the conditions held. */
  delete(key: string, options?: DeleteOptions): Promise<boolean>;
  /** Deletes every key that starts with `prefix`; gives their number. */
  deletePrefix(prefix: string, options?: Omit<DeleteOptions, 'ifModRevision'>): Promise<number>;
  /**
   * Waits for its turn for the lock `path`, in the protocol of etcd's Go client: `<path>/<lease hex>`, the
   * lowest create revision holds. A failure on the way rejects; nothing is left behind. Rejects with `aborted`
   * when the signal fires first. A holder that dies gives way after 25 s.
   */
  lock(path: string, options?: CallOptions): Promise<KvstoreLock>;
  /** See {@link Watch}. The prefix must end in `/`: a watch of cluster `a` must never see `ab`. */
  watch(prefix: string, options?: WatchOptions): Watch;
  /** From now on watches wait for their turn before they try again to reach a server that stays out of reach. */
  retryInTurn(turns: RetryTurns): void;
  onLeaseLost(listener: LeaseLostListener): Unsubscribe;
  /** The endpoints, each asked by itself: one that is down shows as that, and fails nothing. */
  endpoints(options?: CallOptions): Promise<readonly EndpointStatus[]>;
  status(): BackendStatus;
  /**
   * Ends watches, stops keepalives, gives back the leases unless `keepLeases`, first that of the keys that go first.
   * Idempotent, never rejects.
   */
  close(options?: { readonly keepLeases?: boolean }): Promise<void>;
}
