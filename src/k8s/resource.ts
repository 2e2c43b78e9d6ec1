import { checkArgument, OBJECT, objectWith } from '../base/arguments.ts';
import type { Failure } from '../base/failure.ts';

/**
 * An object of the Kubernetes API from a reflector. The four fields of its metadata are checked: they are non-empty
 * strings. All other fields are unchecked. The object must not be changed, because a reflector may keep it for the
 * delete event.
 */
export interface KubernetesObject {
  readonly metadata: {
    readonly name: string;
    /** Absent if the object is cluster-scoped. */
    readonly namespace?: string;
    /** If an object is deleted and created again, it has another uid. */
    readonly uid: string;
    /** Opaque. Compared for equality, never ordered (KUBERNETES 4). */
    readonly resourceVersion: string;
    readonly [field: string]: unknown;
  };
  readonly [field: string]: unknown;
}

/** The uid and version of an object. */
export type ObjectVersion = Pick<KubernetesObject['metadata'], 'uid' | 'resourceVersion'>;

const VERSIONED = objectWith({ metadata: OBJECT });

/**
 * Returns the part of an object that a reflector must keep at least. Pass it as `keep` if the sink stores the values of
 * objects itself.
 */
export function objectVersion(object: KubernetesObject): ObjectVersion {
  checkArgument('objectVersion: object', object, VERSIONED);
  const { uid, resourceVersion } = object.metadata;
  return { uid, resourceVersion }; // the reflector has the name
}

/** An object whose value was read from bytes: its name and version, and the value. */
export class ScannedObject<T> implements KubernetesObject {
  readonly metadata: KubernetesObject['metadata'];
  readonly value: T;
  readonly [field: string]: unknown;

  constructor(metadata: KubernetesObject['metadata'], value: T) {
    this.metadata = metadata;
    this.value = value;
  }
}

/** Reads objects of one kind from the bytes of an API server. */
export interface ObjectScanner<T = unknown> {
  /** Returns the object at `bytes[from]`, or undefined if the general decoder must read it. */
  scan(bytes: Uint8Array, from: number): ScannedObject<T> | undefined;
  /** Index after the object; at least the length of the bytes if they end within the object. */
  readonly end: number;
}

/** A change of an object. A put has a new or changed object. */
export type ResourceEvent =
  | { readonly type: 'put'; readonly object: KubernetesObject }
  /**
   * A delete. Its object is the part that `keep` returned for the last known version, which may not be the last version
   * that existed (KUBERNETES 6).
   */
  | { readonly type: 'delete'; readonly object: KubernetesObject };

/** Selects objects of an API server. */
export interface ResourceKind {
  /** Empty for the core group (Pods, Services). */
  readonly group: string;
  readonly version: string;
  /** Name in URLs: `ciliumendpoints`. */
  readonly plural: string;
  readonly labelSelector?: string | undefined;
  readonly fieldSelector?: string | undefined;
}

/**
 * Receives the changes of one kind. Calls are synchronous and do not overlap. If a call throws, the error is counted
 * and reported, and the reflector continues.
 *
 * - Events of an object arrive in order, but states may be skipped (KUBERNETES 5). There is no order between objects.
 * - If an object was deleted and created again between two observations, the sink receives a delete and a put, adjacent
 *   in one batch, even if the reflector received no delete (KUBERNETES 6).
 * - A put may repeat a known state, so that the sink must compare the fields that it uses (KUBERNETES 10).
 */
export interface ResourceSink {
  /** Applies at least one event. */
  apply(events: readonly ResourceEvent[]): void;
  /** Called once, after the first complete list was delivered. The list may be empty (KUBERNETES 8). */
  onListed(): void;
  /** Called after each later complete list. Objects that existed only between two watches have no event. */
  onRelisted?(): void;
}

/** State of a {@link FollowedResource}. */
export type ResourceState =
  /** Requests all objects. */
  | 'listing'
  | 'watching'
  /** Waits after a failure. Known objects stay. */
  | 'waiting'
  /** The server does not serve this kind because the CRD is missing. Not an error; retried with backoff. */
  | 'missing'
  /** The server refused the request; `lastFailure` has the right to grant. */
  | 'forbidden'
  | 'stopped';

/** Status of one followed kind. */
export interface ResourceStatus {
  /** Plural, group and version: `ciliumendpoints.cilium.io/v2`, `pods/v1`. */
  readonly resource: string;
  readonly labelSelector: string | undefined;
  readonly fieldSelector: string | undefined;
  readonly state: ResourceState;
  /** True after the first complete list was delivered. Never becomes false again. */
  readonly listed: boolean;
  /** Number of known objects. */
  readonly objects: number;
  /** Number of delivered puts and deletes. */
  readonly events: number;
  /** Wall time of the last event in milliseconds since the epoch. */
  readonly lastEventAt: number | undefined;
  /** Number of rejected objects, for example without a name or uid. */
  readonly rejected: number;
  readonly bookmarks: number;
  /** The resource version up to which the server's changes were delivered. Undefined before the first list. */
  readonly resourceVersion: string | undefined;
  /** Number of complete lists; all except the first are relists. */
  readonly lists: number;
  /** Number of opened watches. */
  readonly watches: number;
  /**
   * Milliseconds since the server last sent data of this kind, which is the maximum age of the known state. Undefined
   * before the first list.
   */
  readonly lagMs: number | undefined;
  /**
   * Milliseconds since a list or watch failed, during which no changes were received. Undefined while a watch is open,
   * and before the first list.
   */
  readonly behindMs: number | undefined;
  /** Milliseconds until the next attempt after a failure. Undefined if the reflector does not wait. */
  readonly retryInMs: number | undefined;
  readonly failures: number;
  readonly lastFailure: Failure | undefined;
}

/** Options of {@link ResourceSource.follow}. */
export interface FollowOptions {
  /** Ends the reflector. Nothing is delivered afterwards. */
  readonly signal?: AbortSignal | undefined;
  /**
   * Returns the part of an object that the reflector keeps in memory for the delete event. Called once per put, before
   * the put is delivered. The part must contain name, namespace, uid and resourceVersion. If it is the result of
   * {@link objectVersion}, the delete event has only these four fields. Default: the whole object.
   */
  readonly keep?: ((object: KubernetesObject) => KubernetesObject | ObjectVersion) | undefined;
  /**
   * The fields that the sink reads, as paths. A path such as `status.networking` includes all content of the field.
   * Elements of lists have no index: `spec.ports.port`. Other fields may be missing, because they are not decoded; the
   * fields of {@link KubernetesObject} are always present. Default: all fields.
   */
  readonly fields?: readonly string[] | undefined;
  /**
   * @internal Reads objects before the general decoder; the sink then receives some objects as a
   * {@link ScannedObject}. Requires {@link objectVersion} as `keep`. Default: none.
   */
  readonly scanner?: ObjectScanner | undefined;
  /** Called when the state changes. */
  readonly onState?: ((state: ResourceState) => void) | undefined;
}

/** A followed kind. */
export interface FollowedResource {
  status(): ResourceStatus;
  /**
   * Resolves when the first list was delivered. Rejects if the signal fires, or if no data of this kind has arrived for
   * `quietMs` (default: no limit). The limit starts again at each progress (KUBERNETES 55). If the server does not
   * serve the kind, waits until it does.
   */
  waitForListed(options?: { readonly signal?: AbortSignal; readonly quietMs?: number }): Promise<void>;
  /** Resolves when the reflector has ended. Never rejects. */
  readonly stopped: Promise<void>;
}

/** The interface between the client of an API server and the consumers of its objects. */
export interface ResourceSource {
  /** Starts to list and watch a kind, immediately. Errors of the server are retried, never thrown. */
  follow(kind: ResourceKind, sink: ResourceSink, options?: FollowOptions): FollowedResource;
  /**
   * Returns the first of `kinds` that the server serves, by discovery, or undefined if it serves none (KUBERNETES 13).
   * Rejects if the server is unreachable.
   */
  firstServed(kinds: readonly ResourceKind[], signal?: AbortSignal): Promise<ResourceKind | undefined>;
}

/** A source that must not be called, for a feed whose caller passes the objects directly to the sinks of the kinds. */
export const NO_SOURCE: ResourceSource = {
  follow: () => {
    throw new Error('this source follows nothing');
  },
  firstServed: async () => undefined,
};
