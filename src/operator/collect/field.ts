import { parseTime } from '../../base/system-clock.ts';
import { isObject } from '../../net/fields.ts';

/** Returns the value at a path of an object sent by a server, or `undefined` if there is none. Own properties only. */
export function field(value: unknown, ...names: readonly string[]): unknown {
  let at = value;
  for (const name of names) at = isObject(at) && Object.hasOwn(at, name) ? at[name] : undefined;
  return at ?? undefined;
}

/** Returns the list at a path, empty if there is none. */
export function items(value: unknown, ...names: readonly string[]): readonly unknown[] {
  const list = field(value, ...names);
  return Array.isArray(list) ? list : [];
}

/** Returns true if an object was deleted, but still exists until its finalizers or its grace period end. */
export function isBeingDeleted(object: unknown): boolean {
  return field(object, 'metadata', 'deletionTimestamp') !== undefined;
}

/** Returns an RFC 3339 time written by a server, in milliseconds since the epoch, or `undefined` if there is none. */
export function timeAt(value: unknown, ...names: readonly string[]): number | undefined {
  const text = field(value, ...names);
  return typeof text === 'string' ? parseTime(text) : undefined;
}

/**
 * Returns a value with sorted names and without the parts which an API server may omit or add: null, and lists and
 * objects without content.
 *
 * @param empty `''` to remove empty texts, too
 */
export function normalForm(value: unknown, empty?: ''): unknown {
  if (Array.isArray(value))
    return value.length === 0 ? undefined : value.map((item) => normalForm(item, empty));
  if (!isObject(value)) return value === null || value === empty ? undefined : value;
  const parts = Object.keys(value)
    .sort()
    .flatMap((name): [string, unknown][] => {
      const part = normalForm(value[name], empty);
      return part === undefined ? [] : [[name, part]];
    });
  return parts.length === 0 ? undefined : Object.fromEntries(parts);
}
