import type { KeyRange, WatchedKeys } from '../codec/key-range.ts';

/**
 * A key with its value. `value` is immutable. It may be a view that keeps a whole message in memory, so copy it before
 * storing it.
 */
export interface KeyValue {
  /** See `bytes.ts` for keys that are not UTF-8. */
  readonly key: string;
  readonly value: Uint8Array;
  /** Revision of the put which created the key. */
  readonly createRevision: number;
  /** Revision of the last write. Revisions are below 2⁵³: etcd would need 28,000 years at 10,000 writes/s. */
  readonly modRevision: number;
  /** The lease of the key; undefined if it has none, or if the transport does not report it. */
  readonly lease?: LeaseID | undefined;
}

/** State of the server in every answer. */
export interface ResponseHeader {
  /** Identifies the cluster. Text, because ids of etcd have 64 bits. Watches check that it does not change. */
  readonly clusterID: string;
  /** Revision of the store. It may be later than the last event of a watch. */
  readonly revision: number;
  readonly raftTerm: number;
}

/** A lease, as the decimal text of the 64-bit id in etcd; `'0'` is none. */
export type LeaseID = string;

/** The lease id of keys without a lease. */
export const NO_LEASE: LeaseID = '0';

/** Limits of one call. */
export interface CallOptions {
  /** Aborts the call: it rejects with code `aborted`. The server may have applied a write. */
  readonly signal?: AbortSignal | undefined;
  /** Milliseconds after which the call fails with `deadline`. The default depends on the transport. */
  readonly deadlineMs?: number | undefined;
}

/** A read of some keys at one revision. */
export interface RangeRequest extends KeyRange {
  /** Maximum number of keys; 0 means all. */
  readonly limit?: number;
  /** Revision of the read; 0 (the default) means the current one, by quorum. */
  readonly revision?: number;
  /** Omits keys last written before this revision. `count` includes them. */
  readonly minModRevision?: number;
  /** Omits the values, which are then empty. */
  readonly keysOnly?: boolean;
}

/** The keys of a range, ascending. */
export interface RangeResponse {
  readonly header: ResponseHeader;
  readonly kvs: readonly KeyValue[];
  /** True if the limit truncated the answer. */
  readonly more: boolean;
  /** Number of keys in the range, regardless of the limit and `minModRevision`. */
  readonly count: number;
}

/** A condition of a transaction. An absent key has revisions 0, no lease, and no value. */
export type Compare =
  | { readonly key: string; readonly target: 'create-revision' | 'mod-revision'; readonly equals: number }
  | { readonly key: string; readonly target: 'value'; readonly equals: Uint8Array }
  | { readonly key: string; readonly target: 'lease'; readonly equals: LeaseID };

/** One write of a transaction. */
export type WriteOperation =
  | { readonly op: 'put'; readonly key: string; readonly value: Uint8Array; readonly lease: LeaseID }
  | { readonly op: 'delete'; readonly range: KeyRange };

/** Writes at one revision if all comparisons hold, else `otherwise`. */
export interface TxnRequest {
  readonly compare: readonly Compare[];
  readonly writes: readonly WriteOperation[];
  readonly otherwise?: readonly WriteOperation[];
}

/** Result of a transaction. */
export interface TxnResponse {
  readonly header: ResponseHeader;
  /** True if the comparisons held. */
  readonly succeeded: boolean;
  readonly deleted: number;
}

/**
 * A write, as a watch receives it. For a delete, `value` is undefined, and `modRevision` is the revision of the delete.
 */
export interface TransportEvent {
  readonly key: string;
  readonly value: Uint8Array | undefined;
  readonly modRevision: number;
}

/** Events of a prefix or key, from a revision on. */
export interface WatchRequest extends WatchedKeys {
  /** The first revision; 0 means all events after the header of {@link WatchObserver.onCreated}. */
  readonly startRevision: number;
}

/**
 * Receives the events of a watch stream, synchronously and in order. `onEnd` is called once, last. Nothing is called
 * after `cancel`.
 */
export interface WatchObserver {
  /**
   * The server has accepted the watch. The revision in the header is that of this server, which may be behind the
   * cluster.
   */
  onCreated(header: ResponseHeader): void;
  /**
   * Receives events in the order of their revisions. The revision in the header may be later than those of the events,
   * because etcd sends the revision of the store while a watch catches up. If `isPartial`, more events of the last
   * revision may follow. A transport delivers large answers in slices, which may split a revision. Each slice is
   * delivered in a separate turn, and none while the stream is paused.
   */
  onEvents(events: readonly TransportEvent[], header: ResponseHeader, isPartial: boolean): void;
  /**
   * Reports that all events up to and including the revision of the header were delivered. If `isRequested`, the report
   * answers `requestProgress`, and proves only that the stream is alive.
   */
  onProgress(header: ResponseHeader, isRequested: boolean): void;
  /** Receives the reason of the end of the stream. */
  onEnd(reason: unknown): void;
}

/** An open watch. */
export interface WatchStream {
  /**
   * Makes a quorum read at the server of the stream. Fails if the stream has ended before the answer arrives. A server
   * that is restored from a backup ends its streams, so these reads and the events of the stream are from one history.
   */
  range(request: RangeRequest, options?: CallOptions): Promise<RangeResponse>;
  /** Stops deliveries, except `onEnd`, until `resume`. When the buffers are full, the server stops sending. */
  pause(): void;
  resume(): void;
  /** Requests an `onProgress` with `isRequested`, to check the stream. */
  requestProgress(): void;
  /** Ends the stream, also on the server. Idempotent; `onEnd` is not called. */
  cancel(): void;
}

/** Health of one endpoint, as it reports it. */
export interface EndpointStatus {
  readonly endpoint: string;
  readonly healthy: boolean;
  readonly version?: string;
  readonly isLeader?: boolean;
  readonly error?: string;
}

/**
 * The interface to a kvstore server: requests in the terms of etcd; `memory/` and `etcd/` implement it. Every method
 * rejects only with a `KvstoreError`. A transport may reconnect, but it never resumes a watch, and never retries a
 * request, except once if etcd refuses its token. All handling of faults is above this interface.
 */
export interface Transport {
  range(request: RangeRequest, options?: CallOptions): Promise<RangeResponse>;
  txn(request: TxnRequest, options?: CallOptions): Promise<TxnResponse>;
  /** Never throws. Errors are passed to `observer.onEnd`, asynchronously. */
  watch(request: WatchRequest, observer: WatchObserver): WatchStream;
  /** Returns a new lease of `ttlSeconds`. */
  grantLease(ttlSeconds: number, options?: CallOptions): Promise<LeaseID>;
  /** Renews the lease. Returns its TTL in seconds. Fails with `lease-not-found` if the lease does not exist. */
  keepLeaseAlive(lease: LeaseID, options?: CallOptions): Promise<number>;
  /** Ends the lease and deletes its keys. Fails with `lease-not-found` if the lease does not exist. */
  revokeLease(lease: LeaseID, options?: CallOptions): Promise<void>;
  /** Returns the status of each endpoint, requested separately. */
  endpoints(options?: CallOptions): Promise<readonly EndpointStatus[]>;
  /** Breaks every stream, and fails every call with `closed`. Idempotent. */
  close(): Promise<void>;
}
