import { isObject } from '../../net/fields.ts';
import { AgingTable } from '../aging-table.ts';
import type { ObjectName } from '../object-table.ts';
import type { KubernetesObject, ObjectVersion, ResourceEvent } from '../resource.ts';

function isNonEmptyString(value: unknown): value is string {
  return typeof value === 'string' && value !== '';
}

/**
 * Returns true if a value is an object with valid metadata: name, uid and resourceVersion, and namespace if present.
 * No API server stores version 0. A watch from version 0 repeats all objects, but omits the deletes of objects that are
 * gone.
 */
export function isKubernetesObject(value: unknown): value is KubernetesObject {
  if (!isObject(value)) return false;
  const { metadata } = value;
  if (!isObject(metadata)) return false;
  const { name, namespace, uid, resourceVersion } = metadata;
  if (namespace !== undefined && !isNonEmptyString(namespace)) return false;
  const isVersion = isNonEmptyString(resourceVersion) && resourceVersion !== '0';
  return isNonEmptyString(name) && isNonEmptyString(uid) && isVersion;
}

/**
 * The last put. After a lost connection, the watch continues if the server still has the object at this version.
 */
export interface LastPut {
  readonly name: string;
  readonly namespace: string | undefined;
  readonly uid: string;
  readonly version: string;
}

/** The part of an object kept in memory: the whole object, some of its fields, or only uid and version. */
export type Kept = KubernetesObject | ObjectVersion;

function isComplete(kept: Kept): kept is KubernetesObject {
  return 'metadata' in kept;
}

function versionOf(kept: Kept): ObjectVersion {
  return isComplete(kept) ? kept.metadata : kept;
}

/** Returns the object of a delete event: its last known state, as far as it is kept. */
function tombstone({ namespace = '', name }: ObjectName, kept: Kept): KubernetesObject {
  if (isComplete(kept)) return kept;
  return { metadata: namespace === '' ? { name, ...kept } : { name, namespace, ...kept } };
}

/**
 * The objects that a reflector has delivered, by name, and the version of their state. Each method receives data of the
 * server and returns the resulting events, or no events if the data is already known. A list arrives in parts between
 * {@link beginList} and {@link endList}, which deletes the objects that the list did not contain (KUBERNETES 6). An
 * incomplete list deletes nothing (KUBERNETES 10).
 */
export class KnownObjects {
  /** An object is old if the current list has not contained it yet. */
  readonly #objects = new AgingTable<Kept>();
  readonly #keep: (object: KubernetesObject) => Kept;
  #version = '';
  #lastPut: LastPut | undefined;

  /** @param keep returns the part of an object to keep */
  constructor(keep: (object: KubernetesObject) => Kept = (object) => object) {
    this.#keep = keep;
  }

  get size(): number {
    return this.#objects.size;
  }

  /** Returns the number of objects that the current list has contained. */
  get listed(): number {
    return this.#objects.fresh;
  }

  /** Returns the version at the start of the next watch; empty before the first list. */
  get version(): string {
    return this.#version;
  }

  /** Returns the last put; undefined if the last event was not a put. */
  get lastPut(): LastPut | undefined {
    return this.#lastPut;
  }

  /** Marks all objects as old, until the list contains them. */
  beginList(): void {
    this.#objects.age();
  }

  /** Applies an object of a list. */
  putListed(object: KubernetesObject): readonly ResourceEvent[] {
    const { metadata } = object;
    const known = this.#objects.get(metadata);
    const version = known && versionOf(known);
    const hasSameUid = version?.uid === metadata.uid;
    if (known !== undefined && hasSameUid && version?.resourceVersion === metadata.resourceVersion) {
      // Marks the object as listed. The key consists of the stored strings, so that the equal new ones are freed.
      this.#objects.set(isComplete(known) ? known.metadata : metadata, known);
      return [];
    }
    this.#objects.set(metadata, this.#keep(object));
    const put: ResourceEvent = { type: 'put', object };
    return known === undefined || hasSameUid
      ? [put]
      : [{ type: 'delete', object: tombstone(metadata, known) }, put];
  }

  /** Yields a delete for each object which is not in the list, and then sets `version`. */
  *endList(version: string): Generator<ResourceEvent, void, void> {
    for (const [name, kept] of this.#objects.oldEntries()) {
      this.#objects.delete(name);
      yield { type: 'delete', object: tombstone(name, kept) };
    }
    this.#version = version;
    this.#lastPut = undefined;
  }

  /** Applies a put of a watch. */
  put(object: KubernetesObject): readonly ResourceEvent[] {
    const { name, namespace, uid, resourceVersion: version } = object.metadata;
    this.#version = version;
    this.#lastPut = { name, namespace, uid, version };
    return this.putListed(object);
  }

  /**
   * Applies a delete of a watch, also during a streamed list. `object` is the last state of the deleted object.
   */
  delete(object: KubernetesObject): readonly ResourceEvent[] {
    const { metadata } = object;
    this.#version = metadata.resourceVersion;
    this.#lastPut = undefined; // a deleted object cannot show that the server has this history
    const known = this.#objects.get(metadata);
    // If the uid differs, the object was created again, and the delete of the earlier object was already delivered.
    if (known === undefined || versionOf(known).uid !== metadata.uid) return [];
    this.#objects.delete(metadata);
    return [{ type: 'delete', object: tombstone(metadata, known) }];
  }

  /** Applies a bookmark: all changes of this kind up to `version` were received. */
  advanceTo(version: string): void {
    this.#version = version;
  }

  /** Sets the version back to that of the last put, so that another server repeats all later changes. */
  backToLastPut(): void {
    this.#version = this.#lastPut?.version ?? this.#version;
  }
}
