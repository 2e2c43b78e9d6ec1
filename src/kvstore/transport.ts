import type { KeyRange } from './key-range.ts';

/*
 * The transport port: what a kvstore server can do, in etcd's terms and no more. Everything that has to be
 * right under faults (listing, watching, leases, locks, stores) is written once, above this port; a transport
 * only carries requests. `memory/` and `etcd/` implement it.
 *
 * Every method rejects with a `KvstoreError` and with nothing else. A transport may reconnect below, but it
 * never retries a request and never resumes a watch: it reports, and the driver decides.
 */

/**
 * A key with its value. `value` is never changed once it was handed out; it may be a view that pins the whole
 * message it came in, so copy what is kept for long.
 */
export interface KeyValue {
  /** See `bytes.ts` for keys that are not UTF-8. */
  readonly key: string;
  readonly value: Uint8Array;
  /** Revision of the write that created the key. */
  readonly createRevision: number;
  /** Revision of its last write. Revisions are below 2⁵³: etcd would need 28,000 years at 10,000 writes/s. */
  readonly modRevision: number;
}

/** What every answer says of the server that gave it. */
export interface ResponseHeader {
  /** Identifies the cluster; text, because etcd's are 64 bits. Pinned by the watch driver. */
  readonly clusterID: string;
  /** The store's revision when it answered: not necessarily the last one that a watch has delivered. */
  readonly revision: number;
  readonly raftTerm: number;
}

/** A lease, as the decimal text of etcd's 64-bit id; `'0'` is none. */
export type LeaseID = string;

/** The lease id of keys that have none. */
export const NO_LEASE: LeaseID = '0';

/** Limits of one call. */
export interface CallOptions {
  readonly signal?: AbortSignal | undefined;
  /** Milliseconds after which the call fails with `deadline`. Each transport has its default. */
  readonly deadlineMs?: number | undefined;
}

/** A read of some keys at one revision. */
export interface RangeRequest extends KeyRange {
  /** At most so many keys; 0 means all. */
  readonly limit?: number;
  /** Read as of this revision; 0 (the default) means now, by quorum. */
  readonly revision?: number;
  /** Leave out keys last written before this revision. `count` includes them. */
  readonly minModRevision?: number;
  /** Values come back empty. */
  readonly keysOnly?: boolean;
}

/** The keys that were read, ascending. */
export interface RangeResponse {
  readonly header: ResponseHeader;
  readonly kvs: readonly KeyValue[];
  /** Whether the limit has cut the answer. */
  readonly more: boolean;
  /** How many keys the range holds in all, whatever limit and `minModRevision` say. */
  readonly count: number;
}

/** A condition of a transaction. An absent key has revisions 0 and is different from every value and lease. */
export type Compare =
  | { readonly key: string; readonly target: 'create-revision' | 'mod-revision'; readonly equals: number }
  | { readonly key: string; readonly target: 'exists' }
  | { readonly key: string; readonly target: 'value'; readonly equals: Uint8Array }
  | { readonly key: string; readonly target: 'lease'; readonly equals: LeaseID };

/** One write of a transaction. */
export type WriteOperation =
  | { readonly op: 'put'; readonly key: string; readonly value: Uint8Array; readonly lease: LeaseID }
  | { readonly op: 'delete'; readonly range: KeyRange };

/** Writes that happen together, at one revision, if every comparison holds; else `otherwise` happens. */
export interface TxnRequest {
  readonly compare: readonly Compare[];
  readonly writes: readonly WriteOperation[];
  readonly otherwise?: readonly WriteOperation[];
}

/** What a transaction did. */
export interface TxnResponse {
  readonly header: ResponseHeader;
  /** Whether the comparisons held. */
  readonly succeeded: boolean;
  /** How many keys its deletes removed. */
  readonly deleted: number;
}

/** A write that a watch saw. `value` is undefined for a delete, and then `modRevision` is the delete's own. */
export interface TransportEvent {
  readonly key: string;
  readonly value: Uint8Array | undefined;
  readonly modRevision: number;
}

/** Events of a prefix, from a revision on. */
export interface WatchRequest {
  readonly prefix: string;
  /** The first revision wanted; 0: everything after the revision of {@link WatchObserver.onCreated}'s header. */
  readonly startRevision: number;
}

/**
 * Receives what happens on a watch stream; synchronous, in order. `onEnd` is called once, last; nothing is called
 * after `cancel`.
 */
export interface WatchObserver {
  /** The server has accepted the watch, as of its own revision, which may lag behind the cluster's. */
  onCreated(header: ResponseHeader): void;
  /**
   * Events in revision order. The header may be ahead of the events: during catch-up etcd puts the store's
   * revision there while it has sent only a part. With `partial`, more events of the last revision follow.
   */
  onEvents(events: readonly TransportEvent[], header: ResponseHeader, partial: boolean): void;
  /** Nothing happened up to and including the header's revision, unless `requested`: then it proves liveness only. */
  onProgress(header: ResponseHeader, requested: boolean): void;
  /** The stream has ended, and why. `compacted` carries no revision: the driver lists again. */
  onEnd(reason: unknown): void;
}

/** An open watch. */
export interface WatchStream {
  /**
   * A read on the very server that the stream is of, by quorum. It fails if the stream has ended when the answer is
   * there: a server that is restored from a backup ends its streams, so what is read this way and what the stream
   * delivers are of one history.
   */
  range(request: RangeRequest, options?: CallOptions): Promise<RangeResponse>;
  /** Delivers nothing until `resume`, except `onEnd`; the server is held back once the buffers between are full. */
  pause(): void;
  resume(): void;
  /** Asks for an `onProgress` with `requested`, to see whether the stream lives. */
  requestProgress(): void;
  /** Ends the stream for good, on the server too. Idempotent; `onEnd` is not called. */
  cancel(): void;
}

/** A server's health as one endpoint tells it. */
export interface EndpointStatus {
  readonly endpoint: string;
  readonly healthy: boolean;
  readonly version?: string;
  readonly isLeader?: boolean;
  readonly dbSizeBytes?: number;
  readonly error?: string;
}

/** See the head of this file. */
export interface Transport {
  range(request: RangeRequest, options?: CallOptions): Promise<RangeResponse>;
  txn(request: TxnRequest, options?: CallOptions): Promise<TxnResponse>;
  /** Never throws: what goes wrong is passed to `observer.onEnd`, asynchronously. */
  watch(request: WatchRequest, observer: WatchObserver): WatchStream;
  /** A new lease of `ttlSeconds`. */
  grantLease(ttlSeconds: number, options?: CallOptions): Promise<LeaseID>;
  /** Seconds that the lease now has; fails with `lease-not-found` when it is gone. */
  keepLeaseAlive(lease: LeaseID, options?: CallOptions): Promise<number>;
  /** Ends the lease and deletes its keys; fails with `lease-not-found` when it is gone. */
  revokeLease(lease: LeaseID, options?: CallOptions): Promise<void>;
  /** The endpoints one by one, each asked by itself. */
  endpoints(options?: CallOptions): Promise<readonly EndpointStatus[]>;
  /** Breaks every stream and fails every call with `closed`. Idempotent. */
  close(): Promise<void>;
}
