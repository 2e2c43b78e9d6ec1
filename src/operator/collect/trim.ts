import type { KubernetesObject } from '../../k8s/resource.ts';

/** What is kept of an object: `true` all of it, a shape these fields of it, of a list of each of its elements. */
export interface Shape {
  readonly [field: string]: true | Shape;
}

/** What says who an object is, and how old. */
const METADATA: Shape = {
  name: true,
  namespace: true,
  uid: true,
  resourceVersion: true,
  creationTimestamp: true,
  deletionTimestamp: true,
};

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null;
}

function keep(value: unknown, shape: true | Shape): unknown {
  if (shape === true || !isObject(value)) return value; // what is no object is kept, to be rejected by name
  if (Array.isArray(value)) return value.map((item) => keep(item, shape));
  const kept: Record<string, unknown> = {};
  for (const field of Object.keys(shape)) {
    const part = shape[field];
    if (part !== undefined && Object.hasOwn(value, field)) kept[field] = keep(value[field], part);
  }
  return kept;
}

/** Keeps some fields of an object, and who it is: what a reflector holds in memory is a fraction then. */
export function trimTo(shape: Shape): (object: KubernetesObject) => KubernetesObject {
  const { metadata, ...rest } = shape;
  const kept = { ...METADATA, ...(typeof metadata === 'object' ? metadata : {}) };
  return (object) => ({
    ...(keep(object, rest) as Readonly<Record<string, unknown>>), // of an object it is one
    metadata: keep(object.metadata, kept) as KubernetesObject['metadata'], // which has the four fields still
  });
}
