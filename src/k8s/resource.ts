import type { Failure } from '../base/failure.ts';

/**
 * An object of the Kubernetes API as a reflector hands it out. Its metadata has these four fields, as non-empty strings;
 * everything else is what the API server sent, and has not been checked. A reflector keeps the object of the last event
 * to tell what has gone: it is not to be changed.
 */
export interface KubernetesObject {
  readonly metadata: {
    readonly name: string;
    /** Absent for what is in no namespace. */
    readonly namespace?: string;
    /** Names one life of the object: made again under the same name, it has another. */
    readonly uid: string;
    /** Opaque: compared for equality, never ordered (K 4). */
    readonly resourceVersion: string;
    readonly [field: string]: unknown;
  };
  readonly [field: string]: unknown;
}

/** Which life of an object, and at which version. */
export type ObjectLife = Pick<KubernetesObject['metadata'], 'uid' | 'resourceVersion'>;

/** Who an object is, and no more: what a reflector may keep of it for a sink that remembers by itself what objects said. */
export function identified({ metadata: { uid, resourceVersion } }: KubernetesObject): ObjectLife {
  return { uid, resourceVersion }; // its reflector knows the name
}

/** What became of one object: it is new or another now, or it is gone. */
export type ResourceEvent =
  | { readonly type: 'put'; readonly object: KubernetesObject }
  /** With what was kept of the last state that is known, which may be older than the last that was (K 6). */
  | { readonly type: 'delete'; readonly object: KubernetesObject };

/** Which objects of an API server are followed. */
export interface ResourceKind {
  /** `''` is the core group, of Pods and Services. */
  readonly group: string;
  readonly version: string;
  /** As in the URL: `ciliumendpoints`. */
  readonly plural: string;
  readonly labelSelector?: string;
  readonly fieldSelector?: string;
}

/**
 * Receives what a reflector learns of one kind. It is called synchronously, one call after the other; what it throws is
 * counted and reported, and the reflector goes on.
 *
 * - Events of one object come in order; some states in between may never be seen (K 5). There is no order between objects.
 * - An object that was deleted and made again between two looks is a delete and a put, next to each other in one batch,
 *   even if no delete was seen (K 6).
 * - A put may say again what is known: compare what matters (K 10).
 */
export interface ResourceSink {
  /** At least one event. */
  apply(events: readonly ResourceEvent[]): void;
  /** Called once, when the first complete list has been handed over, which may be empty (K 8). */
  onListed(): void;
}

/** What a {@link FollowedResource} is doing. */
export type ResourceState =
  /** Asks for all objects. */
  | 'listing'
  | 'watching'
  /** Something has failed, and is tried again after a while. What is known stays. */
  | 'waiting'
  /** The server does not serve this kind: its CRD is not there. No error; looked for again every now and then. */
  | 'missing'
  /** The server refuses: `lastFailure` names the right that is to be granted. */
  | 'forbidden'
  | 'stopped';

/** One followed kind as data. */
export interface ResourceStatus {
  /** Plural, group and version: `ciliumendpoints.cilium.io/v2`, `pods/v1`. */
  readonly resource: string;
  readonly labelSelector: string | undefined;
  readonly fieldSelector: string | undefined;
  readonly state: ResourceState;
  /** Whether the first complete list has been handed over. Never falls back. */
  readonly listed: boolean;
  /** Objects that exist, as far as is known. */
  readonly objects: number;
  /** Puts and deletes handed over. */
  readonly events: number;
  /** Wall time of the last of them, milliseconds since the epoch. */
  readonly lastEventAt: number | undefined;
  /** Objects that could not be used: no name, or no uid. */
  readonly refused: number;
  readonly bookmarks: number;
  /** Lists that were completed: all but the first are relists. */
  readonly lists: number;
  /** Watches that were opened. */
  readonly watches: number;
  /**
   * Milliseconds since the server last said anything of this kind: what is known may be so old. `undefined` before the
   * first list.
   */
  readonly lagMs: number | undefined;
  readonly failures: number;
  readonly lastFailure: Failure | undefined;
}

/** Options of {@link ResourceSource.follow}. */
export interface FollowOptions {
  /** Ends it; nothing is handed over afterwards. */
  readonly signal?: AbortSignal | undefined;
  /**
   * What is kept in memory of an object that is handed out, to be handed out again when it is gone: called once for each,
   * before that. Its name, namespace, uid and resourceVersion must stay. Default: everything; see {@link identified}, of
   * which an object with a name is handed out, and no more.
   */
  readonly keep?: ((object: KubernetesObject) => KubernetesObject | ObjectLife) | undefined;
  /**
   * The fields that the sink reads, as paths: `status.networking`, with all that is in it; those of a list's elements
   * without a number: `spec.ports.port`. Others may be left out of objects, which saves their decoding. What
   * {@link KubernetesObject} names is always there. Default: all.
   */
  readonly fields?: readonly string[] | undefined;
  readonly onState?: ((state: ResourceState) => void) | undefined;
}

/** One kind that is being followed. */
export interface FollowedResource {
  status(): ResourceStatus;
  /**
   * Resolves once the first list has been handed over. Rejects when the signal fires, or when nothing of this kind has
   * arrived for `quietMs` (default: no limit): waiting goes by progress, not by a time for all (K 55). A kind that is
   * missing is waited for as well.
   */
  waitForListed(options?: { readonly signal?: AbortSignal; readonly quietMs?: number }): Promise<void>;
  /** Resolves when it has ended. Never rejects. */
  readonly stopped: Promise<void>;
}

/** Where the objects come from: the port between an API server's client and what its objects are for. */
export interface ResourceSource {
  /** Begins at once; never throws for what the server does. */
  follow(kind: ResourceKind, sink: ResourceSink, options?: FollowOptions): FollowedResource;
  /**
   * The first of `kinds` that the server serves, by discovery; `undefined` if none (K 13). Rejects if the server cannot
   * be asked.
   */
  firstServed(kinds: readonly ResourceKind[], signal?: AbortSignal): Promise<ResourceKind | undefined>;
}
