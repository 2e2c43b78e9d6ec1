import { type Rejection, rejection } from '../../base/rejection.ts';
import { canonicalAddress, Prefix } from '../../net/prefix.ts';
import { textOfBytes } from '../bytes.ts';

/** What became of some bytes: a value that is proved to be of its type, or the reason why not. */
export type Decoded<T> =
  | { readonly ok: true; readonly value: T }
  | { readonly ok: false; readonly rejection: Rejection };

/** An object as `JSON.parse` made it: own fields only are read, so no name can reach a prototype. */
export type JsonObject = Readonly<Record<string, unknown>>;

/** Carries a rejection out of nested readers to {@link decodeWith}; never leaves this folder. */
class FieldFault extends Error {
  readonly reason: string;
  readonly field: string;
  readonly found: unknown;
  readonly why: string;

  constructor(reason: string, field: string, found: unknown, why: string) {
    super(why);
    this.reason = reason;
    this.field = field;
    this.found = found;
    this.why = why;
  }
}

/** Refuses the value being decoded. `field` is its path as the writer would know it: `IPAddresses[1].IP`. */
export function refuse(reason: string, field: string, found: unknown, why: string): never {
  throw new FieldFault(reason, field, found, why);
}

/** Runs `read`; what it refuses becomes a rejection that says `at` (the kvstore key). */
export function decodeWith<T>(at: string, read: () => T): Decoded<T> {
  try {
    return { ok: true, value: read() };
  } catch (fault) {
    if (!(fault instanceof FieldFault)) throw fault;
    return { ok: false, rejection: rejection(fault.reason, fault.field, fault.found, fault.why, at) };
  }
}

/** A refusal as an outcome, for checks that come after the format was found right. */
export function refusal(
  reason: string,
  field: string,
  found: unknown,
  why: string,
  at: string,
): Decoded<never> {
  return { ok: false, rejection: rejection(reason, field, found, why, at) };
}

/** The text of a value that has to be UTF-8. */
export function readText(bytes: Uint8Array): string {
  return textOfBytes(bytes) ?? refuse('invalid-utf8', 'value', `${bytes.length} bytes`, 'is not UTF-8');
}

/** Parses a value that has to be a JSON object. */
export function readJsonObject(bytes: Uint8Array): JsonObject {
  const text = readText(bytes);
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch (error) {
    return refuse('invalid-json', 'value', text, error instanceof Error ? error.message : String(error));
  }
  return asObject(parsed, 'value');
}

/** The value as an object; arrays and null are refused. */
export function asObject(value: unknown, field: string): JsonObject {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    return refuse('wrong-type', field, value, 'must be an object');
  }
  return value as JsonObject; // any object JSON.parse makes is a record of unknown
}

/** The field, own ones only; `null` reads as missing, as Go's decoder has it. */
export function fieldOf(object: JsonObject, name: string): unknown {
  return Object.hasOwn(object, name) ? (object[name] ?? undefined) : undefined;
}

/** A text; missing is `''`. */
export function readString(object: JsonObject, name: string, path: string = name): string {
  const value = fieldOf(object, name);
  if (value === undefined) return '';
  return typeof value === 'string' ? value : refuse('wrong-type', path, value, 'must be a string');
}

/** A text that must be there and not be empty. */
export function readName(object: JsonObject, name: string, path: string = name): string {
  return readString(object, name, path) || refuse('missing-field', path, '', 'must not be empty');
}

/** An integer within [0, max]; missing is 0. */
export function readInteger(object: JsonObject, name: string, max: number, path: string = name): number {
  const value = fieldOf(object, name);
  if (value === undefined) return 0;
  if (typeof value !== 'number') return refuse('wrong-type', path, value, 'must be a number');
  if (Number.isInteger(value) && value >= 0 && value <= max) return value;
  return refuse('out-of-range', path, value, `must be an integer from 0 to ${max}`);
}

/** A boolean; `missing` when it is not there. */
export function readBoolean(object: JsonObject, name: string, missing: boolean): boolean {
  const value = fieldOf(object, name);
  if (value === undefined) return missing;
  return typeof value === 'boolean' ? value : refuse('wrong-type', name, value, 'must be true or false');
}

/** The elements of an array; missing is empty. */
export function readArray(object: JsonObject, name: string): readonly unknown[] {
  const value = fieldOf(object, name);
  if (value === undefined) return [];
  return Array.isArray(value) ? value : refuse('wrong-type', name, value, 'must be an array');
}

/**
 * The entries of an object used as a map, in its order; missing is empty. `__proto__` and the like are
 * ordinary names here: `JSON.parse` makes own fields of them, and they only ever reach a `Map`.
 */
export function readEntries(object: JsonObject, name: string): readonly (readonly [string, unknown])[] {
  const value = fieldOf(object, name);
  return value === undefined ? [] : Object.entries(asObject(value, name));
}

/** A map of texts; missing is empty. */
export function readStringMap(object: JsonObject, name: string): ReadonlyMap<string, string> {
  const map = new Map<string, string>();
  for (const [key, value] of readEntries(object, name)) {
    if (typeof value !== 'string') return refuse('wrong-type', `${name}.${key}`, value, 'must be a string');
    map.set(key, value);
  }
  return map;
}

/** An address in canonical form. */
export function asAddress(text: string, path: string): string {
  return canonicalAddress(text) ?? refuse('invalid-address', path, text, 'is not an IP address');
}

/** An address in canonical form; missing or `''` is `undefined`. */
export function readAddress(object: JsonObject, name: string, path: string = name): string | undefined {
  const text = readString(object, name, path);
  return text === '' ? undefined : asAddress(text, path);
}

/** As {@link readAddress}, of one family. */
export function readAddressOf(family: 4 | 6, object: JsonObject, name: string): string | undefined {
  const address = readAddress(object, name);
  if (address === undefined || address.includes(':') === (family === 6)) return address;
  return refuse('wrong-family', name, address, `must be an IPv${family} address`);
}

/** The canonical CIDR of an address and a prefix length. */
export function asPrefix(address: string, length: number, path: string): Prefix {
  return (
    Prefix.parse(`${address}/${length}`) ?? refuse('invalid-prefix', path, address, 'is not an IP prefix')
  );
}
