import { isObject } from '../../net/fields.ts';
import { AgingTable } from '../aging-table.ts';
import type { ObjectName } from '../object-table.ts';
import type { KubernetesObject, ObjectLife, ResourceEvent } from '../resource.ts';

function isName(value: unknown): value is string {
  return typeof value === 'string' && value !== '';
}

/** Whether a decoded value is an object that can be followed: the four fields of its metadata are what they must be. */
export function isKubernetesObject(value: unknown): value is KubernetesObject {
  if (!isObject(value)) return false;
  const { metadata } = value;
  if (!isObject(metadata)) return false;
  const { name, namespace, uid, resourceVersion } = metadata;
  if (namespace !== undefined && !isName(namespace)) return false;
  return isName(name) && isName(uid) && isName(resourceVersion);
}

/** Where a watch may go on after a failure: an object that the server must have at this version (see `prove`). */
export interface Anchor {
  readonly name: string;
  readonly namespace: string | undefined;
  readonly uid: string;
  readonly version: string;
}

/** What is kept of an object: all of it or a part, or only which life it is. */
export type Kept = KubernetesObject | ObjectLife;

function isWhole(kept: Kept): kept is KubernetesObject {
  return 'metadata' in kept;
}

function lifeOf(kept: Kept): ObjectLife {
  return isWhole(kept) ? kept.metadata : kept;
}

/** That of an object that has been handed out, as it is handed out again. */
function keptObject({ namespace = '', name }: ObjectName, kept: Kept): KubernetesObject {
  if (isWhole(kept)) return kept;
  return { metadata: namespace === '' ? { name, ...kept } : { name, namespace, ...kept } };
}

/**
 * What a reflector has handed out, by name, and up to which version. Each method gives the events that follow from what
 * the server says: none for what is known. A list is said piece by piece, between {@link beginList} and
 * {@link endList}; the end deletes what it did not have (K 6). One that breaks off deletes nothing (K 10).
 */
export class KnownObjects {
  /** Old is what the list under way has not said yet. */
  readonly #objects = new AgingTable<Kept>();
  readonly #keep: (object: KubernetesObject) => Kept;
  #version = '';
  #anchor: Anchor | undefined;

  /** @param keep what is kept of an object */
  constructor(keep: (object: KubernetesObject) => Kept = (object) => object) {
    this.#keep = keep;
  }

  get size(): number {
    return this.#objects.size;
  }

  /** A watch goes on after it; empty before the first list. */
  get version(): string {
    return this.#version;
  }

  /** `undefined` unless the last event was a put. */
  get anchor(): Anchor | undefined {
    return this.#anchor;
  }

  beginList(): void {
    this.#objects.age();
  }

  listed(object: KubernetesObject): readonly ResourceEvent[] {
    return this.#put(object);
  }

  /** The events that the list's silence means, one at a time; `version` holds once all are taken. */
  *endList(version: string): Generator<ResourceEvent, void, void> {
    for (const [name, kept] of this.#objects.old()) {
      this.#objects.delete(name);
      yield { type: 'delete', object: keptObject(name, kept) };
    }
    this.#version = version;
    this.#anchor = undefined;
  }

  /** A watch says that the object is so. */
  put(object: KubernetesObject): readonly ResourceEvent[] {
    const { name, namespace, uid, resourceVersion: version } = object.metadata;
    this.#version = version;
    this.#anchor = { name, namespace, uid, version };
    return this.#put(object);
  }

  /** A watch, or a list that begins one, says that the object, last seen so, is gone. */
  delete(object: KubernetesObject): readonly ResourceEvent[] {
    const { metadata } = object;
    this.#version = metadata.resourceVersion;
    this.#anchor = undefined; // an earlier put proves nothing of this delete
    const known = this.#objects.get(metadata);
    // Another life of the same name: its delete has been said already.
    if (known === undefined || lifeOf(known).uid !== metadata.uid) return [];
    this.#objects.delete(metadata);
    return [{ type: 'delete', object: keptObject(metadata, known) }];
  }

  /** A bookmark: nothing of this kind has happened up to there. */
  progress(version: string): void {
    this.#version = version;
  }

  /** The server has the anchor: what has happened after it is to be said once more, for the server may be another one. */
  backToAnchor(): void {
    this.#version = this.#anchor?.version ?? this.#version;
  }

  #put(object: KubernetesObject): readonly ResourceEvent[] {
    const { metadata } = object;
    const known = this.#objects.get(metadata);
    const life = known && lifeOf(known);
    const isSame = life?.uid === metadata.uid;
    if (known !== undefined && isSame && life?.resourceVersion === metadata.resourceVersion) {
      this.#objects.set(isWhole(known) ? known.metadata : metadata, known); // it is there
      return [];
    }
    this.#objects.set(metadata, this.#keep(object));
    const put: ResourceEvent = { type: 'put', object };
    return known === undefined || isSame
      ? [put]
      : [{ type: 'delete', object: keptObject(metadata, known) }, put];
  }
}
