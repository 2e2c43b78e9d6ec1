import type { Failure } from '../../base/failure.ts';
import type { LatencyStatus } from '../../base/latency-histogram.ts';
import type { Unsubscribe } from '../../base/subscription.ts';
import type { SupervisorStatus } from '../../base/supervisor.ts';
import type { KvstoreErrorCode } from './errors.ts';
import type { KeyTable } from './key-table.ts';
import type { CallOptions, EndpointStatus, KeyValue, LeaseID, ResponseHeader } from './transport.ts';

/** Options of a listing. */
export interface ListOptions extends CallOptions {
  /** Omits keys last written before this revision. The kvstore scans all keys nevertheless. */
  readonly minModRevision?: number | undefined;
}

/** The result of a quorum read of one key, and the state of the store. */
export interface KeyRead {
  /** Undefined if the key does not exist. */
  readonly kv: KeyValue | undefined;
  /**
   * Its revision is that of the store, not of the key. No event received before the start of the read has a higher
   * revision.
   */
  readonly header: ResponseHeader;
}

/** Options of a write. */
export interface WriteOptions extends CallOptions {
  /** Writes only if this lock is held, else fails with `lock-lost`. */
  readonly ifLocked?: KvstoreLock | undefined;
  /**
   * Binds the key to the session of the client: the key expires `leaseSeconds` (15 minutes by default) after the last
   * keepalive. With `expires-first` the key expires earlier, before all other keys of the session.
   */
  readonly leased?: boolean | 'expires-first' | undefined;
  /**
   * If the outcome of this write is unknown (`deadline`, `unavailable`, an abort), the write cannot take effect after a
   * later fenced write of this backend was answered. Costs one key of the session for all fenced writes, and a second
   * call if a conditional write fails.
   */
  readonly fenced?: boolean | undefined;
}

/** A put of a key, or a delete if it has no value. */
export interface KeyWrite {
  readonly key: string;
  /** Must not change afterwards. */
  readonly value?: Uint8Array | undefined;
  /** True if the put may be omitted when the key already has this value and, if leased, the lease of this session. */
  readonly mayBeEqual?: boolean | undefined;
}

/** The result of a {@link KvstoreBackend.writeAll}. */
export interface WrittenAll {
  /** Revision of the store after the writes. */
  readonly revision: number;
  /** True if all puts were written; false if the puts with `mayBeEqual` were omitted. */
  readonly isComplete: boolean;
}

/**
 * Maximum number of writes of a {@link KvstoreBackend.writeAll}. etcd accepts 128 operations in a transaction
 * (`--max-txn-ops`), so more writes are sent as nested transactions of 64 writes. The CPU of a call without its writes
 * is 0.3 ms: 2.1 µs per write if it has 128, 0.7 µs if it has 384. With more, the turns of the event loop would be too
 * long.
 */
export const MAX_WRITES = 384;
/**
 * Maximum number of writes with `mayBeEqual` in a {@link KvstoreBackend.writeAll}. A leased one needs two comparisons,
 * so there are at most 62, and two more for the fence and a lock: 64, which leaves 64 operations for a nested
 * transaction.
 */
export const MAX_COMPARED_WRITES = 31;

/** Options and conditions of a delete. */
export interface DeleteOptions extends Omit<WriteOptions, 'leased'> {
  /** Deletes only if the key was last written at this revision. */
  readonly ifModRevision?: number | undefined;
}

/** A held lock. It is lost with its session; `ifLocked` guards writes against a loss. */
export interface KvstoreLock {
  /** The key of the holder, below the path of the lock. */
  readonly key: string;
  /** Create revision of `key`. */
  readonly revision: number;
  /** Fires if the lock is lost before it was released. */
  readonly lost: AbortSignal;
  /**
   * Releases the lock. Idempotent; never rejects. If the server is unreachable, the release is retried in the
   * background.
   */
  release(): Promise<void>;
}

/** A change of a key under a watched prefix. */
export interface WatchEvent {
  /**
   * `create`: the key was unknown to this watch; `modify`: it was known; `delete`: it was known and does not exist any
   * more. `list-done`, without a key, is delivered once in the life of a watch, after all keys that existed at its
   * start.
   */
  readonly type: 'create' | 'modify' | 'delete' | 'list-done';
  readonly key: string;
  /** Empty for `delete` and `list-done`. */
  readonly value: Uint8Array;
  /** Revision of the write. For a delete discovered by a listing, the revision of the listing. */
  readonly modRevision: number;
  /** @internal The lease of the key; undefined if it has none, or if the backend does not report it. */
  readonly lease?: LeaseID | undefined;
}

/** State of a watch. */
export type WatchState =
  /** Reading the existing keys. */
  | 'listing'
  /** Following changes. */
  | 'watching'
  /** Failed; will retry. */
  | 'waiting'
  /** The user may not read the prefix; retries slowly. */
  | 'forbidden'
  /** Ended by its signal or its reader. */
  | 'ended'
  /** Ended because the store was replaced or restored (`endOnDivergence`). */
  | 'diverged';

/** Options of a watch. */
export interface WatchOptions {
  /** Ends the watch when it aborts. */
  readonly signal?: AbortSignal | undefined;
  /**
   * Ends the watch in state `diverged`, without deletes, if the store was replaced or restored from a backup. By
   * default the watch lists again and deletes the missing keys, which is wrong while a new store is still being filled.
   */
  readonly endOnDivergence?: boolean | undefined;
  /** If true, only the key that equals the prefix is watched. It requires only the right to read this key. */
  readonly exactKey?: boolean | undefined;
  /**
   * @internal A table of keys that the watch shares with its reader, so that each key is stored once. Only one watch
   * may use it at a time. A backend may ignore it.
   */
  readonly keys?: KeyTable | undefined;
  /**
   * Called after each change of the state, and after each repeated failure, when `status()` is already updated.
   * Synchronous. Errors of the callback are ignored.
   */
  readonly onState?: ((state: WatchState) => void) | undefined;
}

/** Status of a watch. */
export interface WatchStatus {
  readonly prefix: string;
  readonly state: WatchState;
  /** Number of known keys. */
  readonly keys: number;
  /** All events before this revision were received. */
  readonly nextRevision: number;
  /** True after `list-done`. */
  readonly listed: boolean;
  /**
   * True if a stream has broken since all values were last compared: the store may have been restored, so values may be
   * outdated.
   */
  readonly isDoubtful: boolean;
  readonly listings: number;
  /** Number of followed streams. All except the first are reconnects. */
  readonly streams: number;
  readonly failures: number;
  readonly lastFailure: Failure | undefined;
  /** Bytes received and not yet read; bounded (I11). */
  readonly queuedBytes: number;
  /**
   * For each event of the stream, the time from its arrival until the reader had processed its batch. Events of lists
   * are not counted. While the reader is behind, the time counts from the arrival of the oldest event that was not
   * read.
   */
  readonly delays: LatencyStatus;
}

/**
 * A list-and-watch of one prefix (SEMANTICS 5). Iterate it once. Each item is a batch of at least one event. Promises:
 *
 * - Events of a key are in order.
 * - After `list-done` the delivered state equals the content of the prefix at some revision, which increases. This also
 *   holds over disconnects, compactions and restores.
 * - Writes of one transaction are in one batch, unless one of them was overwritten before it was read, or the batch
 *   would have more than 256 events.
 * - After a fault only differences are delivered: keys whose revision or value differs from the last delivered one.
 * - A slow reader receives only the last of several writes to a key, and the server is paused before the memory fills.
 *
 * A watch never fails: errors are retried and shown in `status()`. It ends when its signal fires or its reader leaves
 * the loop, and then delivers no deletes.
 */
export interface Watch extends AsyncIterable<readonly WatchEvent[]> {
  status(): WatchStatus;
}

/** Status of a backend. */
export interface BackendStatus {
  /** For display: `memory`, `etcd`. */
  readonly kind: string;
  /** False while the server is unreachable, by the result of the last call, watch or keepalive. */
  readonly connected: boolean;
  readonly clusterID: string | undefined;
  /** Number of answered calls of the transport, and of failed ones by code. Watch streams are not counted. */
  readonly requests: Readonly<Partial<Record<KvstoreErrorCode | 'ok', number>>>;
  readonly leases: number;
  readonly leasesLost: number;
  readonly watches: readonly WatchStatus[];
  /** False if the user has no right to fence writes (`cilium/.initlock/`). Writes are then not guarded. */
  readonly isFenced: boolean;
  /** Keepalives, and deletes of lock entries. */
  readonly background: SupervisorStatus;
  /** Number of errors thrown by listeners of lost leases. */
  readonly listenerFaults: number;
  readonly lastFailure: Failure | undefined;
}

/**
 * Receives the keys that were bound to a lost lease of the session, so that the writer puts them again. If the client
 * detects that the store was restored from a backup, all leases count as lost and are not kept alive. Keys that were
 * deleted after the backup then expire with the old leases.
 */
export type LeaseLostListener = {
  /** Prefixes that end in `/`, and whole keys. The listener receives only keys in these scopes. Default: all keys. */
  readonly scopes?: readonly string[];
  onLeaseLost(keys: readonly string[]): void;
  /**
   * Called if many leases are lost together. Their keys are then reported in several turns. `reported` resolves after
   * the last turn.
   */
  onLeasesLost?(reported: Promise<unknown>): void;
};

/** Limits retries of unreachable servers, for many clients in one process. */
export interface RetryTurns {
  /**
   * Resolves when it is the turn of the caller, or when the signal fires.
   *
   * @param downSince start of the outage, in monotonic time; recent outages may have priority
   */
  turn(downSince: number, signal: AbortSignal): Promise<void>;
  /** Called when a server has answered a retry in its turn. */
  succeeded(): void;
}

/**
 * The interface of a kvstore (SEMANTICS 5). Calls reject with a `KvstoreError` if the server is unreachable or refuses
 * them. Calls are not retried here, because the stores retry.
 */
export interface KvstoreBackend {
  /** Returns the key, by quorum; `undefined` if it does not exist. */
  get(key: string, options?: CallOptions): Promise<KeyValue | undefined>;
  /** Like {@link KvstoreBackend.get}, with the state of the store. */
  read(key: string, options?: CallOptions): Promise<KeyRead>;
  /**
   * Returns all keys with `prefix`, ascending, all at one revision. Prefixes should end in `/`. Fails with
   * `unavailable` if the store is restored from a backup during the call.
   */
  listPrefix(prefix: string, options?: ListOptions): Promise<readonly KeyValue[]>;
  /** Writes unconditionally; returns the revision of the write. */
  update(key: string, value: Uint8Array, options?: WriteOptions): Promise<number>;
  /**
   * Writes unless the key already has this value and, if leased, the lease of this session. Returns true if it wrote.
   */
  updateIfDifferent(key: string, value: Uint8Array, options?: WriteOptions): Promise<boolean>;
  /** Writes only if the key does not exist. Returns true if it wrote. */
  createOnly(key: string, value: Uint8Array, options?: WriteOptions): Promise<boolean>;
  /** Returns true if the key existed and the conditions held. */
  delete(key: string, options?: DeleteOptions): Promise<boolean>;
  /**
   * Puts and deletes up to `MAX_WRITES` distinct keys in one transaction, which costs little more than one write.
   * Up to `MAX_COMPARED_WRITES` of the puts may have `mayBeEqual`. These puts are omitted together, if the
   * kvstore has all their values. If the kvstore rejects one of the writes, nothing is written, and the error does not
   * name the key.
   */
  writeAll(writes: readonly KeyWrite[], options?: WriteOptions): Promise<WrittenAll>;
  /** Deletes all keys with `prefix`; returns their number. */
  deletePrefix(prefix: string, options?: Omit<DeleteOptions, 'ifModRevision'>): Promise<number>;
  /**
   * Waits for the lock `path`, in the protocol of etcd's Go client: each contender puts `<path>/<lease hex>`, and the
   * key with the lowest create revision holds the lock. If the call rejects, it leaves no key behind. Rejects with
   * `aborted` if the signal fires first. The lock of a dead holder expires after 25 s.
   */
  lock(path: string, options?: Pick<CallOptions, 'signal'>): Promise<KvstoreLock>;
  /**
   * See {@link Watch}. Without `exactKey` the prefix must end in `/`, because a watch of cluster `a` must never include
   * `ab`.
   */
  watch(prefix: string, options?: WatchOptions): Watch;
  /** From now on, watches wait for their turn before each retry of a server that remains unreachable. */
  retryInTurn(turns: RetryTurns): void;
  onLeaseLost(listener: LeaseLostListener): Unsubscribe;
  /**
   * @internal Adopts a lease of an earlier session and its keys, as if this session had written them. Resolves to false
   * if the lease has ended, has another TTL, or was lost by this session, or if adoptions have failed for a third of
   * the TTL. Deletes the fence of the earlier session, so that its delayed writes fail. Rejects if the server is
   * unreachable. A backend may omit this method; the keys are then written again.
   */
  adoptLease?(
    lease: LeaseID,
    keys: readonly string[],
    options?: Pick<CallOptions, 'signal'>,
  ): Promise<boolean>;
  /**
   * Returns the status of each endpoint, requested separately. An endpoint that is down has a status with `healthy`
   * false and an `error`; the call does not fail.
   */
  endpoints(options?: CallOptions): Promise<readonly EndpointStatus[]>;
  status(): BackendStatus;
  /**
   * Ends watches and stops keepalives. Unless `keepLeases`, revokes the leases, those of the keys that expire first
   * before the others. Idempotent; never rejects.
   */
  close(options?: { readonly keepLeases?: boolean }): Promise<void>;
}
