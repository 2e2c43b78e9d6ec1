import type { Failure } from '../../base/failure.ts';
import { onAbort } from '../../base/follow-signal.ts';
import {
  type FollowedResource,
  type KubernetesObject,
  objectVersion,
  type ResourceEvent,
  type ResourceKind,
  type ResourceSource,
} from '../../k8s/resource.ts';
import { resourceName } from '../../k8s/rest/resource-path.ts';
import { notServedText } from '../duty-report.ts';

/** Returns `namespace/name`, or `/name` if the object has no namespace. */
export function objectKey({ metadata: { namespace = '', name } }: KubernetesObject): string {
  return `${namespace}/${name}`;
}

/** Returns the uid and the version of an object, which together change with each write. */
export function versionOf({ metadata: { uid, resourceVersion } }: KubernetesObject): string {
  return `${uid} ${resourceVersion}`;
}

const TIMES = ['metadata.creationTimestamp', 'metadata.deletionTimestamp'];

interface Following {
  readonly resource: FollowedResource;
  readonly ended: AbortController;
}

/**
 * All objects of a kind as received from an API server, shared by the collectors. The kind is followed while a
 * collector runs. The objects may be outdated: use them to find candidates, and check each candidate by a quorum read
 * before it is deleted.
 */
export class ObservedKind<T extends KubernetesObject = KubernetesObject> {
  readonly kind: ResourceKind;
  readonly #source: ResourceSource;
  readonly #trim: (object: KubernetesObject) => T;
  readonly #fields: readonly string[] | undefined;
  readonly #objects = new Map<string, T>();
  readonly #listeners = new Set<(events: readonly ResourceEvent[]) => void>();
  #users = 0;
  #following: Following | undefined;

  /**
   * @param trim returns the part of an object to keep in memory
   * @param fields the decoded fields, in addition to times and identity: see `FollowOptions`. Default: all
   */
  constructor(
    source: ResourceSource,
    kind: ResourceKind,
    trim: (object: KubernetesObject) => T,
    fields?: readonly string[],
  ) {
    this.#source = source;
    this.kind = kind;
    this.#trim = trim;
    this.#fields = fields && [...TIMES, ...fields];
  }

  /** The objects, by {@link objectKey}. */
  get objects(): ReadonlyMap<string, T> {
    return this.#objects;
  }

  /** True if the server does not serve the kind because its CRD is missing. */
  get isMissing(): boolean {
    return this.#following?.resource.status().state === 'missing';
  }

  /** Follows the kind until the signals of all callers have fired. */
  follow(signal: AbortSignal): void {
    if (signal.aborted) return;
    this.#users++;
    this.#following ??= this.#start();
    onAbort(signal, () => {
      if (--this.#users > 0) return;
      this.#following?.ended.abort();
      this.#following = undefined;
      this.#objects.clear();
    });
  }

  /** Calls `listener` with each batch of events, and with an empty batch after each relist, until the signal fires. */
  listen(listener: (events: readonly ResourceEvent[]) => void, signal: AbortSignal): void {
    if (signal.aborted) return;
    this.#listeners.add(listener);
    onAbort(signal, () => this.#listeners.delete(listener));
  }

  /**
   * Returns the reason why the objects may be incomplete, without a final period. Returns `undefined` if the list is
   * complete and the watch runs (OPERATOR 24).
   */
  notReadyReason(): string | undefined {
    const name = resourceName(this.kind);
    if (this.#following === undefined) return `${name} is not watched`;
    const { state, listed, lastFailure } = this.#following.resource.status();
    if (state === 'missing') return notServedText(name);
    if (state === 'forbidden') return `${name}: ${failureText(lastFailure)}`;
    if (!listed)
      return `the list of ${name} is not complete${lastFailure === undefined ? '' : `: ${failureText(lastFailure)}`}`;
    return state === 'watching' ? undefined : `${name} is not watched: ${failureText(lastFailure)}`;
  }

  #start(): Following {
    const ended = new AbortController();
    const sink = {
      apply: (events: readonly ResourceEvent[]): void => this.#apply(events),
      onListed: (): void => {},
      onRelisted: (): void => this.#apply([]),
    };
    const options = { signal: ended.signal, keep: objectVersion, fields: this.#fields };
    return { resource: this.#source.follow(this.kind, sink, options), ended };
  }

  #apply(events: readonly ResourceEvent[]): void {
    for (const { type, object } of events) {
      if (type === 'put') this.#objects.set(objectKey(object), this.#trim(object));
      else this.#objects.delete(objectKey(object));
    }
    for (const listener of this.#listeners) listener(events);
  }
}

function failureText(failure: Failure | undefined): string {
  return failure?.message ?? 'the watch is being restarted';
}

/** The part of an {@link ObservedKind} used by a collector. */
export type ObservedObjects = Pick<ObservedKind, 'objects' | 'isMissing' | 'notReadyReason' | 'follow'>;

/** Returns a kind that also counts as complete, without objects, if its CRD is missing. */
export function optionalKind(kind: ObservedObjects): Pick<ObservedObjects, 'notReadyReason' | 'follow'> {
  return {
    follow: (signal) => kind.follow(signal),
    notReadyReason: () => (kind.isMissing ? undefined : kind.notReadyReason()),
  };
}
