import type { KubernetesObject, ResourceKind } from '../../k8s/resource.ts';
import type { ObjectWrite, PatchOperation } from '../../k8s/rest/object-writer.ts';
import { isObject } from '../../net/fields.ts';
import { field, normalForm } from '../collect/field.ts';
import { placeOfObject } from '../collect/perform-write.ts';

/** The written parts of the objects of a name. */
export type McsPart = 'export status' | 'derived service' | 'import' | 'import status';

/** A write, and its reason as text. */
export interface PlannedWrite {
  readonly part: McsPart;
  readonly write: ObjectWrite;
  /** Without a final period. */
  readonly reason: string;
}

/** A field of an object, and its wanted value; undefined if it should not exist. */
export type FieldValue = readonly [path: readonly string[], value: unknown];

/** Returns the operations for the differing fields. Empty lists and maps are equal to absent ones. */
export function differences(object: KubernetesObject, fields: readonly FieldValue[]): PatchOperation[] {
  return fields.flatMap(([names, value]): PatchOperation[] => {
    if (sameContent(field(object, ...names), value)) return [];
    const path = `/${names.join('/')}`;
    return [value === undefined ? { op: 'remove', path } : { op: 'add', path, value }];
  });
}

export function definedFields(fields: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
}

/** Returns the operation for changed fields of the status; none if there are none. */
export function statusOperations(
  object: KubernetesObject,
  changed: object | undefined,
): readonly PatchOperation[] {
  if (changed === undefined) return [];
  const status = field(object, 'status');
  return [{ op: 'add', path: '/status', value: { ...(isObject(status) ? status : {}), ...changed } }];
}

export function pathsText(operations: readonly PatchOperation[]): string {
  return operations.map(({ path }) => path.slice(1).replaceAll('/', '.')).join(', ');
}

/**
 * Returns a patch of this version of an object, or of its status; none without operations. It conflicts if the object
 * has changed.
 */
export function patches(
  part: McsPart,
  kind: ResourceKind,
  object: KubernetesObject,
  operations: readonly PatchOperation[],
  reason: string,
): readonly PlannedWrite[] {
  if (operations.length === 0) return [];
  const { resourceVersion } = object.metadata;
  const test: PatchOperation = { op: 'test', path: '/metadata/resourceVersion', value: resourceVersion };
  const write: ObjectWrite = {
    verb: 'patch',
    place: placeOfObject(kind, object),
    subresource: part.endsWith('status') ? 'status' : undefined,
    operations: [test, ...operations],
  };
  return [{ part, write, reason }];
}

export function deleteOf(kind: ResourceKind, object: KubernetesObject): ObjectWrite {
  const { uid, resourceVersion } = object.metadata;
  return { verb: 'delete', place: placeOfObject(kind, object), uid, resourceVersion };
}

export function sameContent(a: unknown, b: unknown): boolean {
  return JSON.stringify(normalForm(a)) === JSON.stringify(normalForm(b));
}
