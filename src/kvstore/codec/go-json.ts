import { compareKeys } from './key-range.ts';

/*
 * JSON exactly as Go's encoding/json writes it, because other readers compare values byte by byte: fields in the given
 * order, map keys sorted by bytes, and HTML characters escaped.
 */

const HTML_ESCAPES: Readonly<Record<string, string>> = {
  '<': '\\u003c',
  '>': '\\u003e',
  '&': '\\u0026',
  '\u2028': '\\u2028',
  '\u2029': '\\u2029',
};

/** Matches text that needs no escape: printable ASCII without `"`, `&`, `<`, `>` and the backslash. */
const PLAIN = /^[ !#-%'-;=?-[\]-~]*$/;

const LONE_SURROGATES = /\p{Surrogate}/gu;

/** Returns a string literal. Most texts need no escape; this test takes a fifth of the time of `JSON.stringify`. */
export function jsonString(text: string): string {
  if (PLAIN.test(text)) return `"${text}"`;
  // A lone surrogate becomes U+FFFD, because strings of Go are UTF-8.
  return JSON.stringify(text.replace(LONE_SURROGATES, '\ufffd')).replace(
    /[<>&\u2028\u2029]/g,
    (char) => HTML_ESCAPES[char] ?? char,
  );
}

/**
 * Returns an object with the given fields, whose values are JSON already. A field that is undefined is omitted
 * (`omitempty`).
 */
export function jsonObject(fields: readonly (readonly [name: string, json: string | undefined])[]): string {
  let members = '';
  for (const [name, json] of fields)
    if (json !== undefined) members += `${members === '' ? '' : ','}${jsonString(name)}:${json}`;
  return `{${members}}`;
}

/**
 * Returns a map as an object with sorted keys. An empty map is `{}`; see {@link nullIfEmpty} for a nil one. If adjacent
 * keys have the same value object, such as the ports of backends, it is written once and its text is repeated.
 */
export function jsonMap<V>(map: ReadonlyMap<string, V>, write: (value: V) => string): string {
  let last: { readonly value: V; readonly json: string } | undefined;
  const entries = [...map].sort(([a], [b]) => compareKeys(a, b));
  return jsonObject(
    entries.map(([key, value]) => {
      if (last === undefined || last.value !== value) last = { value, json: write(value) };
      return [key, last.json];
    }),
  );
}

export function jsonStringMap(map: ReadonlyMap<string, string>): string {
  return jsonMap(map, jsonString);
}

export function jsonArray<T>(items: readonly T[], write: (item: T) => string): string {
  return `[${items.map(write).join(',')}]`;
}

/** Returns `json`, or `null` if `size` is 0: Go encodes a nil map or slice as `null`. */
export function nullIfEmpty(size: number, json: string): string {
  return size === 0 ? 'null' : json;
}
