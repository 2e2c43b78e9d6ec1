import { isCollection, isKeyed, isSet } from 'immutable';

/**
 * Any value as plain JSON with sorted keys, so that values of different make compare by what they say. Sets
 * become sorted lists.
 */
export function plain(value: unknown): unknown {
  if (isCollection(value)) {
    if (isKeyed(value)) return plain(Object.fromEntries(value.entries() as Iterable<[string, unknown]>));
    return plain(isSet(value) ? [...value].sort() : [...value]);
  }
  if (value instanceof Map) return plain(Object.fromEntries(value));
  if (value instanceof Set) return plain([...value].sort());
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value !== 'object' || value === null) return value;
  const entries = Object.entries(value)
    .filter(([, entry]) => entry !== undefined)
    .sort(([a], [b]) => (a < b ? -1 : 1));
  return Object.fromEntries(entries.map(([key, entry]) => [key, plain(entry)]));
}

/** The same as text: equal texts, equal values. */
export function text(value: unknown): string {
  return JSON.stringify(plain(value));
}

/** Names a service. Written down again: the models share nothing with the engine. */
export function nameOf({ namespace, name }: { readonly namespace: string; readonly name: string }): string {
  return `${namespace}/${name}`;
}
