import type { ListenerResult } from '../base/subscription.ts';
import type { NumericIdentity } from '../model/numeric-identity.ts';
import type { Source } from '../model/source.ts';
import type { PortProtocol } from '../net/port.ts';

/** Ports of a pod by name. A `Map`, because an untrusted name could reach the prototype of an object. */
export type NamedPorts = ReadonlyMap<string, PortProtocol>;

/** The pod of an IP. The cache keeps the object; the caller must not change it afterwards. */
export interface K8sMetadata {
  readonly namespace: string;
  readonly podName: string;
  /** The pod's service account; absent or empty if unknown. */
  readonly serviceAccount?: string | undefined;
  readonly namedPorts?: NamedPorts | undefined;
}

/** A writer: a source, and an owner (such as a cluster or a node) if the source has several writers. */
export interface Writer {
  readonly source: Source;
  /** Defaults to `''`, which ranks first among owners of the same source. */
  readonly owner?: string | undefined;
}

/** The writer of a claim. `owner` is empty if there is none. */
export interface ClaimWriter {
  readonly source: Source;
  readonly owner: string;
}

/** The attributes that a writer assigns to a prefix (SEMANTICS 2.2). */
export interface Claim extends Writer {
  /** 0 to 2³²−1. */
  readonly identity: number;
  /** Address of the endpoint's node: the tunnel endpoint. Any spelling; stored in canonical form. */
  readonly hostIP?: string | undefined;
  /** 0 to 255; 0 (the default) means no encryption. */
  readonly encryptKey?: number | undefined;
  /** Metadata whose fields are all empty is treated as absent. */
  readonly k8s?: K8sMetadata | undefined;
}

/** The attributes of a prefix that listeners receive. Immutable. */
export interface IPCacheEntry {
  readonly identity: NumericIdentity;
  /** Canonical text. */
  readonly hostIP: string | undefined;
  readonly encryptKey: number;
  readonly k8s: K8sMetadata | undefined;
}

/** The effective entry of a key and its writer, as reads return it. Immutable. */
export interface KeyedEntry extends IPCacheEntry {
  /** Canonical key text: `10.1.2.3` for an endpoint, `10.1.2.0/24` for a CIDR. */
  readonly key: string;
  readonly source: Source;
  /** Empty if the claim has no owner. */
  readonly owner: string;
  /** True for a full-length CIDR that an endpoint IP hides from listeners and longest-prefix match. */
  readonly shadowed: boolean;
}

/**
 * The change of the visible entry of one prefix (SEMANTICS 2.2, rule 4), immutable and safe to keep. `old` is the entry
 * that the receiver already has. Entries do not name their writer: if only the writer of the effective claim changes,
 * there is no change (I3). See {@link OwnerListener}.
 */
export interface IPCacheChange {
  readonly kind: 'upsert' | 'delete';
  /** Canonical CIDR text, always with a length: `10.1.2.3/32`. */
  readonly prefix: string;
  /** Undefined if the prefix is new. */
  readonly old: IPCacheEntry | undefined;
  /** Undefined if the prefix was deleted. */
  readonly new: IPCacheEntry | undefined;
}

/**
 * Receives every change synchronously and in order, after the state changed. A call contains each prefix at most once.
 * On subscription it receives every visible entry as an `upsert` without `old`, then `onSynced`, then changes.
 *
 * A listener may read, write, subscribe and unsubscribe, also during its replay. Its writes are applied immediately and
 * delivered to all listeners after the current delivery; a replay is one delivery (SEMANTICS 9). It must be
 * synchronous: a returned promise is not awaited. Errors and rejected promises are counted, reported to
 * `onListenerFault`, and do not affect other listeners (I7).
 */
export interface IPCacheListener {
  onChanges(changes: readonly IPCacheChange[]): ListenerResult;
  /** Called when the replay is complete. */
  onSynced?(): ListenerResult;
  /** Called if a call of the replay threw. The subscription has ended. */
  onEnded?(): ListenerResult;
}

/** The change of a key's owner: here, the writer of the effective claim, that is its source and its owner. */
export interface OwnerChange {
  /** Canonical key text, as in {@link KeyedEntry}. */
  readonly key: string;
  /** Undefined if the key had no claim. */
  readonly previous: ClaimWriter | undefined;
  /** Undefined if the key has no claim any more. */
  readonly current: ClaimWriter | undefined;
}

/**
 * Receives the owner changes of **contested** keys (from their second writer until they have no claim), and of keys
 * that a waiting claim obtains. Other keys are not reported, so a listener costs nothing in the common case. The owner
 * may change although the attributes do not.
 */
export interface OwnerListener {
  onOwnerChanges(changes: readonly OwnerChange[]): ListenerResult;
}

/**
 * The outcome of a write. `applied`: the writer's claim is now effective. `unchanged`: it already was, with the same
 * attributes. `overruled`: a stronger claim is effective. `invalid`: the claim was rejected and counted; `status()`
 * describes it. `capacity`: the cache is full; the claim waits, or is dropped if `maxWaiting` keys wait already.
 */
export type UpsertOutcome = 'applied' | 'unchanged' | 'overruled' | 'invalid' | 'capacity';

/**
 * The outcome of a delete. `applied`: the claim was deleted. `not-found`: the key has no claim. `not-owner`: the key
 * has claims, but none of this writer (or none for the pod of `ifPod`). `invalid`: as in {@link UpsertOutcome}.
 */
export type DeleteOutcome = 'applied' | 'not-found' | 'not-owner' | 'invalid';

/** The writer whose claim is deleted, and a condition. */
export interface PrefixDeleteOptions extends Writer {
  /** Delete only if the claim names this pod, because the IP of a pod may have been reused before its delete. */
  readonly ifPod?: { readonly namespace: string; readonly podName: string } | undefined;
}

/** The rule by which the first claim of an {@link Explanation} was selected (I4). */
export type DecidingRule = 'only-claim' | 'source-precedence' | 'owner-name' | 'endpoint-over-cidr';

/** One claim on a prefix, as {@link Explanation} lists it. */
export interface ExplainedClaim extends KeyedEntry {
  /** True for the effective claim of its key. */
  readonly effective: boolean;
}

/** The claims on a prefix, strongest first, and the rule that selected the first one. */
export interface Explanation {
  /** Canonical CIDR text of the prefix. */
  readonly prefix: string;
  /** All claims on the endpoint IP, then those on the equal CIDR. The first one is visible. */
  readonly claims: readonly ExplainedClaim[];
  /** Undefined if the prefix has no claim. */
  readonly decidedBy: DecidingRule | undefined;
}
