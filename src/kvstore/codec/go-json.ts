import { compareKeys } from '../key-range.ts';

/*
 * JSON exactly as Go's encoding/json writes it, for values that other readers compare byte by byte: fields in
 * the order given, map keys sorted by their bytes, and the characters escaped that are special in HTML.
 */

const HTML_ESCAPES: Readonly<Record<string, string>> = {
  '<': '\\u003c',
  '>': '\\u003e',
  '&': '\\u0026',
  '\u2028': '\\u2028',
  '\u2029': '\\u2029',
};

/** A string literal. */
export function jsonString(text: string): string {
  return JSON.stringify(text).replace(/[<>&\u2028\u2029]/g, (char) => HTML_ESCAPES[char] ?? char);
}

/** An object of already written fields; those that are `undefined` are left out (`omitempty`). */
export function jsonObject(fields: readonly (readonly [name: string, json: string | undefined])[]): string {
  const present = fields.filter(([, json]) => json !== undefined);
  return `{${present.map(([name, json]) => `${jsonString(name)}:${json}`).join(',')}}`;
}

/** A map: `{}` when it is empty. */
export function jsonMap<V>(map: ReadonlyMap<string, V>, write: (value: V) => string): string {
  const keys = [...map].sort(([a], [b]) => compareKeys(a, b));
  return jsonObject(keys.map(([key, value]) => [key, write(value)]));
}

/** A map of texts. */
export function jsonStringMap(map: ReadonlyMap<string, string>): string {
  return jsonMap(map, jsonString);
}

/** An array. */
export function jsonArray<T>(items: readonly T[], write: (item: T) => string): string {
  return `[${items.map(write).join(',')}]`;
}

/** What Go writes for nil: an empty collection as `null`. */
export function nullIfEmpty(size: number, json: string): string {
  return size === 0 ? 'null' : json;
}
