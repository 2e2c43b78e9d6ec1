import type { ListenerResult } from '../base/subscription.ts';
import type { NumericIdentity } from '../identity/numeric-identity.ts';
import type { Source } from '../identity/source.ts';
import type { PortProtocol } from '../net/port.ts';

/** Names of a pod's ports. A `Map`, so that no name from outside can reach a prototype. */
export type NamedPorts = ReadonlyMap<string, PortProtocol>;

/** The pod behind an IP. Not to be changed once it was handed in: the cache keeps the object itself. */
export interface K8sMetadata {
  readonly namespace: string;
  readonly podName: string;
  readonly namedPorts?: NamedPorts | undefined;
}

/** Who writes: a source and, where there are several of a kind, an owner such as a cluster or a node. */
export interface Writer {
  readonly source: Source;
  /** Defaults to `''`, which comes first among owners of equal source. */
  readonly owner?: string | undefined;
}

/** A writer as claims carry it: without owner it is `''`. */
export interface ClaimWriter {
  readonly source: Source;
  readonly owner: string;
}

/** What a writer says of a prefix (SEMANTICS 2.2). */
export interface Claim extends Writer {
  /** 0 to 2³²−1. */
  readonly identity: number;
  /** Address of the node where the endpoint runs: the tunnel endpoint. Any spelling; kept in canonical form. */
  readonly hostIP?: string | undefined;
  /** 0 to 255; 0 (the default) means no encryption. */
  readonly encryptKey?: number | undefined;
  /** All-empty metadata counts as none. */
  readonly k8s?: K8sMetadata | undefined;
}

/** What is where: the attributes that listeners receive. Immutable. */
export interface IPCacheEntry {
  readonly identity: NumericIdentity;
  /** Canonical text. */
  readonly hostIP: string | undefined;
  readonly encryptKey: number;
  readonly k8s: K8sMetadata | undefined;
}

/** The effective entry of a key with the writer whose claim it is, as reads give it. Immutable. */
export interface KeyedEntry extends IPCacheEntry {
  /** Canonical key text: `10.1.2.3` for an endpoint, `10.1.2.0/24` for a CIDR. */
  readonly key: string;
  readonly source: Source;
  /** `''` when the claim has no owner. */
  readonly owner: string;
  /** A full-length CIDR that an endpoint IP hides from listeners and longest-prefix match. */
  readonly shadowed: boolean;
}

/**
 * How the effective, visible entry of one prefix changed (SEMANTICS 2.2, 4). `old` is what this listener was
 * last given of the prefix. Complete and immutable: safe to keep. Whose claim it is, is not part of it: an entry
 * that only changes hands is no change (I3); see {@link OwnerListener}.
 */
export interface IPCacheChange {
  readonly kind: 'upsert' | 'delete';
  /** Canonical CIDR text, always with a length: `10.1.2.3/32`. */
  readonly prefix: string;
  /** Undefined when the prefix is new. */
  readonly old: IPCacheEntry | undefined;
  /** Undefined when the prefix is gone. */
  readonly new: IPCacheEntry | undefined;
}

/**
 * Receives every change, synchronously, after the state has changed, in order, each prefix at most once in a call. On
 * subscription it receives every visible entry as an `upsert` without `old`, then `onSynced`, then changes.
 *
 * It may read, write, subscribe and unsubscribe, also in its replay. What it writes applies at once, and is delivered to
 * everybody after the delivery under way; a replay is one delivery (SEMANTICS 9). It may not be asynchronous: a promise
 * that it returns is not awaited. What it throws, and the rejection of such a promise, is counted, reported to
 * `onListenerFault` and reaches no other listener (I7).
 */
export interface IPCacheListener {
  onChanges(changes: readonly IPCacheChange[]): ListenerResult;
  /** The replay is complete. */
  onSynced?(): ListenerResult;
  /** The replay was not completed, because a call of it threw: the subscription has ended. */
  onEnded?(): ListenerResult;
}

/** The key that changed hands. */
export interface OwnerChange {
  /** Canonical key text, as in {@link KeyedEntry}. */
  readonly key: string;
  /** Undefined when the key was free. */
  readonly previous: ClaimWriter | undefined;
  /** Undefined when the key is free now. */
  readonly current: ClaimWriter | undefined;
}

/**
 * Notified when a **contested** key changes hands: a key for which some claim has been overruled, or replaced by
 * another writer's, since it was free last; and when a claim that waited for room gets a key. An uncontested key that
 * comes and goes is not notified, so a listener costs nothing on the common path. Ownership may change where no attribute does.
 */
export interface OwnerListener {
  onOwnerChanges(changes: readonly OwnerChange[]): ListenerResult;
}

/**
 * What became of a write. `applied` and `unchanged`: the writer's claim is the effective one of its key.
 * `overruled`: a stronger claim is. `invalid`: rejected, nothing changed, counted and described in `status()`.
 * `capacity`: there was no room.
 */
export type UpsertOutcome = 'applied' | 'unchanged' | 'overruled' | 'invalid' | 'capacity';

/**
 * `applied`: the claim is gone. `not-found`: the key has no claim. `not-owner`: others claim it, not this
 * writer (or not any more for the pod of `ifPod`).
 */
export type DeleteOutcome = 'applied' | 'not-found' | 'not-owner' | 'invalid';

/** Whose claim to delete, and under which condition. */
export interface DeleteOptions extends Writer {
  /**
   * Delete only while the claim still names this pod: a late delete of a pod whose IP was reused must not take
   * the claim of the new pod.
   */
  readonly ifPod?: { readonly namespace: string; readonly podName: string } | undefined;
}

/** Why the first claim of an {@link Explanation} beats the others (I4). */
export type DecidingRule = 'only-claim' | 'source-precedence' | 'owner-name' | 'endpoint-over-cidr';

/** One claim on a prefix, as `explain` shows it. */
export interface ExplainedClaim extends KeyedEntry {
  /** Whether it is the effective claim of its own key. */
  readonly effective: boolean;
}

/** Who claims a prefix, strongest first, and why the first one won. */
export interface Explanation {
  /** Canonical CIDR text of the prefix. */
  readonly prefix: string;
  /** Every live claim on the endpoint IP and on the equal CIDR: the visible one first. */
  readonly claims: readonly ExplainedClaim[];
  /** Undefined when the prefix has no claim. */
  readonly decidedBy: DecidingRule | undefined;
}
