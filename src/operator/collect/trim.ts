import { isObjectOrList } from '../../base/arguments.ts';
import type { KubernetesObject } from '../../k8s/resource.ts';

/**
 * The fields of an object to keep, by name. `true` keeps the whole value of a field. A shape keeps the named fields of
 * the value, or of each element if the value is a list.
 */
export interface Shape {
  readonly [field: string]: true | Shape;
}

/** The fields of an object's identity and age. */
const METADATA: Shape = {
  name: true,
  namespace: true,
  uid: true,
  resourceVersion: true,
  creationTimestamp: true,
  deletionTimestamp: true,
};

/** Returns a value with only the fields of a shape. */
function trimmed(value: unknown, shape: true | Shape): unknown {
  // Values of a wrong type are kept, so that the parser rejects them and names their field.
  if (shape === true || !isObjectOrList(value)) return value;
  if (Array.isArray(value)) return value.map((item) => trimmed(item, shape));
  const kept: Record<string, unknown> = {};
  for (const field of Object.keys(shape)) {
    const part = shape[field];
    if (part !== undefined && Object.hasOwn(value, field)) kept[field] = trimmed(value[field], part);
  }
  return kept;
}

/**
 * Returns a function which removes all fields of an object except those of the shape and the identifying metadata. This
 * reduces the memory of a reflector to a fraction.
 */
export function trimTo(shape: Shape): (object: KubernetesObject) => KubernetesObject {
  const { metadata, ...rest } = shape;
  const metadataShape = { ...METADATA, ...(typeof metadata === 'object' ? metadata : {}) };
  return (object) =>
    // The casts hold: the object is trimmed to an object, and METADATA keeps the checked fields of the metadata.
    Object.assign(trimmed(object, rest) as Record<string, unknown>, {
      metadata: trimmed(object.metadata, metadataShape) as KubernetesObject['metadata'],
    });
}
