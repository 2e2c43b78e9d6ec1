import { isCollection, isKeyed, isSet } from 'immutable';

/**
 * Returns any value as plain JSON with sorted keys, so that values of different classes are comparable. Sets
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

/** Returns the JSON of {@link plain} in one pass: equal texts, equal values. */
export function text(value: unknown): string {
  return shown(value) ?? 'undefined';
}

function shown(value: unknown): string | undefined {
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  if (isCollection(value)) {
    if (isKeyed(value)) return shownEntries([...(value.entries() as Iterable<[string, unknown]>)]);
    return shownList(isSet(value) ? [...value].sort() : [...value]);
  }
  if (value instanceof Map) return shownEntries([...value]);
  if (value instanceof Set) return shownList([...value].sort());
  return Array.isArray(value) ? shownList(value) : shownEntries(Object.entries(value));
}

function shownList(list: readonly unknown[]): string {
  return `[${list.map((item) => shown(item) ?? 'null').join()}]`;
}

function shownEntries(entries: [string, unknown][]): string {
  entries.sort(([a], [b]) => (a < b ? -1 : 1));
  const members: string[] = [];
  for (const [key, entry] of entries) {
    const text = shown(entry);
    if (text !== undefined) members.push(`${JSON.stringify(key)}:${text}`);
  }
  return `{${members.join()}}`;
}

/** Returns the name of a service. Written again, because the models share nothing with the engine. */
export function nameOf({ namespace, name }: { readonly namespace: string; readonly name: string }): string {
  return `${namespace}/${name}`;
}
