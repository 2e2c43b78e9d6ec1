import { isDeepStrictEqual } from 'node:util';
import type { Clock } from '../../base/clock.ts';
import { isObject } from '../../net/fields.ts';
import type { KubernetesObject } from '../resource.ts';
import { StatusError } from './api-status.ts';
import { jsonPatch, mergePatch } from './json-patch.ts';
import type { ObjectStore } from './object-store.ts';
import { type ResourceType, typeMeta } from './resource-types.ts';

/** An object, or its status. */
export interface ObjectAddress {
  readonly type: ResourceType;
  readonly namespace: string | undefined;
  readonly name: string;
  /** `status`, or `undefined` for the object itself. */
  readonly subresource: 'status' | undefined;
}

type PlainFields = Readonly<Record<string, unknown>>;

/** Returns the key of a resource in the store. All versions of its API have the same one. */
export function resourceKey({ group, plural }: Pick<ResourceType, 'group' | 'plural'>): string {
  return `${group}/${plural}`;
}

/** Returns the key of an object within its resource. */
function objectKey(namespace: string | undefined, name: string): string {
  return namespace === undefined ? name : `${namespace}/${name}`;
}

function fieldsOf(value: unknown, what: string): PlainFields {
  if (isObject(value)) return value;
  throw new StatusError('BadRequest', `${what} must be an object`);
}

/**
 * Returns the field `managedFields` of an object after a write by `manager`; unchanged if `manager` is undefined. Only
 * the names of the managers are stored.
 */
function managedFieldsAfter(previous: unknown, manager: string | undefined): PlainFields {
  const known = Array.isArray(previous) ? previous : [];
  const isKnown = known.some((entry) => isObject(entry) && entry['manager'] === manager);
  const all = manager === undefined || isKnown ? known : [...known, { manager, operation: 'Update' }];
  return all.length === 0 ? {} : { managedFields: all };
}

/** Throws if the object has another `apiVersion` or `kind` than the path. Both may be missing. */
function checkType(type: ResourceType, object: PlainFields): void {
  for (const [name, expected] of Object.entries(typeMeta(type))) {
    const given = object[name];
    if (given !== undefined && given !== expected)
      throw new StatusError(
        'BadRequest',
        `the ${name} of the object is ${JSON.stringify(given)}, but the path is of ${expected}`,
      );
  }
}

/** Returns an object with the fields that a write keeps: name, uid, version, and a status that has its own path. */
function withServerFields(
  type: ResourceType,
  wanted: PlainFields & { readonly metadata: PlainFields },
  current: KubernetesObject,
  manager: string | undefined,
): PlainFields {
  const { uid, creationTimestamp, resourceVersion, name, namespace, managedFields } = current.metadata;
  const kept = { uid, creationTimestamp, resourceVersion, name };
  return {
    ...wanted,
    ...(type.hasStatus === true ? { status: current['status'] } : {}),
    metadata: {
      ...wanted.metadata,
      ...managedFieldsAfter(managedFields, manager),
      ...kept,
      ...(namespace === undefined ? {} : { namespace }),
    },
  };
}

/** Creates, replaces, patches and deletes objects with the conflicts and preconditions of an API server. */
export class ObjectWrites {
  readonly #store: ObjectStore;
  readonly #clock: Pick<Clock, 'wallTime'>;
  /** Counter of UIDs. They are unique, also after a restore. */
  #uids = 0;

  constructor(store: ObjectStore, clock: Pick<Clock, 'wallTime'>) {
    this.#store = store;
    this.#clock = clock;
  }

  get(address: ObjectAddress): KubernetesObject {
    const { type, namespace, name } = address;
    const found = this.#store.get(resourceKey(type), objectKey(namespace, name));
    if (found !== undefined) return found;
    throw new StatusError('NotFound', `${type.plural} "${name}" not found`);
  }

  /** @param manager the field manager of the request, also in the other methods */
  create(
    type: ResourceType,
    namespace: string | undefined,
    body: unknown,
    manager?: string,
  ): KubernetesObject {
    const { status, ...fields } = fieldsOf(body, 'the object');
    checkType(type, fields);
    const given = fieldsOf(fields['metadata'], 'metadata');
    const { name, namespace: givenNamespace = namespace } = given;
    if (typeof name !== 'string' || !/^[a-z0-9]([-a-z0-9.:]*[a-z0-9])?$/.test(name))
      throw new StatusError('Invalid', `metadata.name: Invalid value: ${JSON.stringify(name)}`);
    if (givenNamespace !== namespace)
      throw new StatusError(
        'BadRequest',
        'the namespace of the object does not match the namespace on the request',
      );
    const key = objectKey(namespace, name);
    if (this.#store.get(resourceKey(type), key) !== undefined)
      throw new StatusError('AlreadyExists', `${type.plural} "${name}" already exists`);
    const metadata = {
      ...given,
      ...(namespace === undefined ? {} : { namespace }),
      name,
      uid: `00000000-0000-4000-8000-${(++this.#uids).toString(16).padStart(12, '0')}`,
      creationTimestamp: `${new Date(this.#clock.wallTime()).toISOString().slice(0, 19)}Z`,
      resourceVersion: '',
      ...managedFieldsAfter(undefined, manager),
    };
    const content =
      type.hasStatus === true ? fields : { ...fields, ...(status === undefined ? {} : { status }) };
    return this.#put(type, key, { ...content, metadata });
  }

  /** Replaces an object. A body without a resourceVersion replaces any version. */
  replace(address: ObjectAddress, body: unknown, manager?: string): KubernetesObject {
    const object = fieldsOf(body, 'the object');
    checkType(address.type, object);
    return this.#change(address, object, manager);
  }

  patch(address: ObjectAddress, contentType: string, patch: unknown, manager?: string): KubernetesObject {
    const current = this.get(address);
    if (contentType === 'application/json-patch+json')
      return this.#change(address, fieldsOf(jsonPatch(current, patch), 'the object'), manager);
    if (contentType !== 'application/merge-patch+json')
      throw new StatusError(
        'UnsupportedMediaType',
        `the body of the request was in an unknown format: ${contentType}`,
      );
    return this.#change(address, fieldsOf(mergePatch(current, patch), 'the object'), manager);
  }

  /** @param options DeleteOptions; only the preconditions are used */
  delete(address: ObjectAddress, options: unknown): KubernetesObject {
    const current = this.get(address);
    const { preconditions } = isObject(options) ? options : {};
    const { uid, resourceVersion } = isObject(preconditions) ? preconditions : {};
    this.#expect(address, 'UID', uid, current.metadata.uid);
    this.#expect(address, 'ResourceVersion', resourceVersion, current.metadata.resourceVersion);
    this.#store.write(resourceKey(address.type), objectKey(address.namespace, address.name), () => undefined);
    return current;
  }

  /** Replaces an object or its status by that of `wanted`. Writes nothing if the object stays equal. */
  #change(address: ObjectAddress, wanted: PlainFields, manager: string | undefined): KubernetesObject {
    const { type, namespace, name, subresource } = address;
    const current = this.get(address);
    const metadata = fieldsOf(wanted['metadata'], 'metadata');
    this.#checkVersion(address, metadata, current);
    const changed =
      subresource === 'status'
        ? { ...current, status: wanted['status'] }
        : withServerFields(type, { ...wanted, metadata }, current, manager);
    const result: KubernetesObject = JSON.parse(JSON.stringify(changed)); // drops undefined fields
    if (isDeepStrictEqual(result, current)) return current;
    return this.#put(type, objectKey(namespace, name), result);
  }

  /** Throws if the metadata of a request names another object than the URL, or another version than the current one. */
  #checkVersion(address: ObjectAddress, metadata: PlainFields, current: KubernetesObject): void {
    const { type, name } = address;
    if ((metadata['name'] ?? name) !== name)
      throw new StatusError('BadRequest', 'the name of the object does not match the name on the URL');
    this.#expect(address, 'UID', metadata['uid'], current.metadata.uid);
    const { resourceVersion } = metadata;
    if (resourceVersion !== undefined && resourceVersion !== current.metadata.resourceVersion)
      throw new StatusError(
        'Conflict',
        `Operation cannot be fulfilled on ${type.plural} "${name}": the object has been modified; please apply your changes to the latest version and try again`,
      );
  }

  #expect({ type, name }: ObjectAddress, what: string, wanted: unknown, actual: string): void {
    if (wanted === undefined || wanted === actual) return;
    throw new StatusError(
      'Conflict',
      `Operation cannot be fulfilled on ${type.plural} "${name}": Precondition failed: ${what} in precondition: ${String(wanted)}, ${what} in object meta: ${actual}`,
    );
  }

  #put(type: ResourceType, key: string, object: KubernetesObject): KubernetesObject {
    return this.#store.write(resourceKey(type), key, (resourceVersion) => ({
      ...object,
      metadata: { ...object.metadata, resourceVersion },
    }));
  }
}
