import { isObject } from '../../net/fields.ts';

/** What is at a path of an object that a server sent; `undefined` where there is nothing. Own names only. */
export function field(value: unknown, ...names: readonly string[]): unknown {
  let at = value;
  for (const name of names) at = isObject(at) && Object.hasOwn(at, name) ? at[name] : undefined;
  return at ?? undefined;
}

/** The same as a list; empty where there is none. */
export function items(value: unknown, ...names: readonly string[]): readonly unknown[] {
  const list = field(value, ...names);
  return Array.isArray(list) ? list : [];
}

/** Whether an object is being deleted already, and waits for its finalizers or for its grace to be over. */
export function isGoing(object: unknown): boolean {
  return field(object, 'metadata', 'deletionTimestamp') !== undefined;
}

/** A time that a server wrote, milliseconds since the epoch; `undefined` where there is none. */
export function timeAt(value: unknown, ...names: readonly string[]): number | undefined {
  const text = field(value, ...names);
  const time = typeof text === 'string' ? Date.parse(text) : Number.NaN;
  return Number.isNaN(time) ? undefined : time;
}
