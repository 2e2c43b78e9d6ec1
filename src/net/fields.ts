import { type Rejection, rejection } from '../base/rejection.ts';
import type { Family } from './address-words.ts';
import { canonicalAddress, canonicalCIDR } from './prefix.ts';

/** The result of decoding an input: a value of its type, every field checked, or why there is none. */
export type Decoded<T> =
  | { readonly ok: true; readonly value: T }
  | { readonly ok: false; readonly rejection: Rejection };

/**
 * Receives every field that is rejected. Where it returns (`undefined`), the field counts as absent and the rest is
 * read; where it throws (`never`), as {@link rejectInput} does, the input is rejected as a whole.
 */
export type RejectField<R extends undefined> = (
  reason: string,
  field: string,
  value: unknown,
  why: string,
) => R;

/** Carries a rejection from {@link rejectInput} to {@link decodeWith}. */
class RejectedInput extends Error {
  readonly reason: string;
  readonly field: string;
  readonly value: unknown;

  constructor(reason: string, field: string, value: unknown, why: string) {
    super(why);
    this.reason = reason;
    this.field = field;
    this.value = value;
  }
}

/** Rejects the input that {@link decodeWith} is decoding. `field` is a path as its writer knows it: `IPAddresses[1].IP`. */
export function rejectInput(reason: string, field: string, value: unknown, why: string): never {
  throw new RejectedInput(reason, field, value, why);
}

/** Runs `read`; what it gives to {@link rejectInput} becomes the rejection, with `at`: a kvstore key, a file. */
export function decodeWith<T>(at: string, read: () => T): Decoded<T> {
  try {
    return { ok: true, value: read() };
  } catch (error) {
    if (!(error instanceof RejectedInput)) throw error;
    return rejectedAs(error.reason, error.field, error.value, error.message, at);
  }
}

/** A rejection as the result of decoding. */
export function rejectedAs(
  reason: string,
  field: string,
  value: unknown,
  why: string,
  at: string,
): Decoded<never> {
  return { ok: false, rejection: rejection(reason, field, value, why, at) };
}

/** Whether a value is an object and not a list. Its names are untrusted: read it with {@link Fields}. */
export function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

const NO_ITEMS: readonly never[] = [];
const NO_FIELDS: object = {};

/**
 * The one reader of untrusted data: the fields of an object, or the elements of a list, as `JSON.parse` or a YAML parser
 * made them. Reads own properties only, so that no name (`__proto__`, `constructor`) reaches a prototype. A field that
 * is absent or null is `undefined` and never rejected; one that is not what it must be goes to `reject` with its path
 * and value. Paths are written when a field is rejected, not before: reading costs a property look-up.
 */
export class Fields<R extends undefined> {
  readonly #container: Readonly<Record<string | number, unknown>>;
  readonly #reject: RejectField<R>;
  readonly #parent: Fields<R> | undefined;
  readonly #name: string | number;
  #names: readonly string[] | undefined;

  private constructor(
    container: object,
    reject: RejectField<R>,
    parent?: Fields<R>,
    name: string | number = '',
  ) {
    // Checked: an object, of which own properties are read as unknown.
    this.#container = container as Readonly<Record<string | number, unknown>>;
    this.#reject = reject;
    this.#parent = parent;
    this.#name = name;
  }

  /** The fields of `value`, which must be an object; `label` is what a rejection calls it if it is none. */
  static of<R extends undefined>(value: unknown, reject: RejectField<R>, label: string): Fields<R> | R {
    return isObject(value)
      ? new Fields(value, reject)
      : reject('wrong-type', label, value, 'must be an object');
  }

  /** The elements of `value`, which must be a list; see {@link Fields.of}. */
  static ofList<R extends undefined>(value: unknown, reject: RejectField<R>, label: string): Fields<R> | R {
    if (Array.isArray(value)) return new Fields(value, reject);
    return reject('wrong-type', label, value, 'must be a list');
  }

  /** The names of the fields, in the order of the input. */
  get names(): readonly string[] {
    this.#names ??= Object.keys(this.#container);
    return this.#names;
  }

  /** The number of elements, or of fields. */
  get size(): number {
    return Array.isArray(this.#container) ? this.#container.length : this.names.length;
  }

  /** Where the object or list itself is, from the root: `spec.ports`; empty for the root. */
  get path(): string {
    return this.#parent?.pathOf(this.#name) ?? '';
  }

  /** Any value; `undefined` where there is none, or null. */
  value(name: string | number): unknown {
    return Object.hasOwn(this.#container, name) ? (this.#container[name] ?? undefined) : undefined;
  }

  /** Rejects a field; `value` is what is shown of it. */
  reject(name: string | number, reason: string, why: string, value: unknown = this.value(name)): R {
    return this.#reject(reason, this.pathOf(name), value, why);
  }

  /** Where a field is, from the root: `spec.ports[0].port`. */
  pathOf(name: string | number): string {
    if (typeof name === 'number') return `${this.path}[${name}]`;
    return this.#parent === undefined ? name : `${this.path}.${name}`;
  }

  string(name: string | number): string | undefined {
    const value = this.value(name);
    if (typeof value === 'string' || value === undefined) return value;
    return this.reject(name, 'wrong-type', 'must be a string', value);
  }

  /** A string that must be there and not be empty. */
  text(name: string | number): string | R {
    const text = this.value(name);
    if (typeof text === 'string' && text !== '') return text;
    if (text === undefined) return this.reject(name, 'missing-field', 'is missing', text);
    if (text === '') return this.reject(name, 'missing-field', 'must not be empty', text);
    return this.reject(name, 'wrong-type', 'must be a string', text);
  }

  /** One of some words; an empty string counts as absent. */
  word<W extends string>(name: string | number, words: readonly W[]): W | undefined {
    const text = this.string(name);
    if (text === undefined || text === '') return undefined;
    const found = words.find((word) => word === text);
    return found ?? this.reject(name, 'unknown-value', `must be one of ${words.join(', ')}`, text);
  }

  boolean(name: string | number): boolean | undefined {
    const value = this.value(name);
    if (typeof value === 'boolean' || value === undefined) return value;
    return this.reject(name, 'wrong-type', 'must be true or false', value);
  }

  /** A number from `min` to `max`, whole or not. */
  number(name: string | number, min: number, max: number): number | undefined {
    const value = this.value(name);
    if (value === undefined) return undefined;
    if (typeof value !== 'number') return this.reject(name, 'wrong-type', 'must be a number', value);
    if (value >= min && value <= max) return value;
    return this.reject(name, 'out-of-range', `must be a number from ${min} to ${max}`, value);
  }

  /** An integer from `min` to `max`. */
  integer(name: string | number, min: number, max: number): number | undefined {
    const value = this.value(name);
    if (value === undefined) return undefined;
    if (typeof value !== 'number') return this.reject(name, 'wrong-type', 'must be a number', value);
    if (Number.isInteger(value) && value >= min && value <= max) return value;
    return this.reject(name, 'out-of-range', `must be an integer from ${min} to ${max}`, value);
  }

  /** An IP address in canonical form; an empty string counts as absent. */
  address(name: string | number): string | undefined {
    const text = this.string(name);
    if (text === undefined || text === '') return undefined;
    return canonicalAddress(text) ?? this.reject(name, 'invalid-address', 'is not a valid IP address', text);
  }

  /** As {@link Fields.address}, of one family. */
  addressOf(family: Family, name: string | number): string | undefined {
    const address = this.address(name);
    if (address === undefined || address.includes(':') === (family === 6)) return address;
    return this.reject(name, 'wrong-family', `must be an IPv${family} address`, address);
  }

  /** A CIDR in canonical form: an address with a length. White space around it is ignored. */
  cidr(name: string | number): string | undefined {
    const text = this.string(name)?.trim();
    if (text === undefined) return undefined;
    return canonicalCIDR(text) ?? this.reject(name, 'invalid-cidr', 'is not a valid CIDR', text);
  }

  /** A nested object. */
  object(name: string | number): Fields<R> | undefined {
    const value = this.value(name);
    return value === undefined ? undefined : this.#objectOf(name, value);
  }

  /** A nested object that must be there, such as an element of a list. */
  item(name: string | number): Fields<R> | R {
    return this.#objectOf(name, this.value(name));
  }

  /** A nested object used as a map, of at most `most` names; without names when it is absent or rejected. */
  map(name: string | number, most: number = Number.POSITIVE_INFINITY): Fields<R> {
    const map = this.object(name) ?? this.#nested(name, NO_FIELDS);
    if (most === Number.POSITIVE_INFINITY || map.size <= most) return map; // counting makes a list of the names
    this.reject(name, 'too-many', `must have at most ${most}`, `${map.size} entries`);
    return this.#nested(name, NO_FIELDS);
  }

  /** A nested list of at most `most` elements; empty when it is absent or rejected. */
  list(name: string | number, most: number = Number.POSITIVE_INFINITY): Fields<R> {
    const value = this.value(name) ?? NO_ITEMS;
    if (!Array.isArray(value)) this.reject(name, 'wrong-type', 'must be a list', value);
    else if (value.length > most)
      this.reject(name, 'too-many', `must have at most ${most}`, `${value.length} elements`);
    else return this.#nested(name, value);
    return this.#nested(name, NO_ITEMS);
  }

  /** What `read` makes of each element of a list, without those of which it makes nothing. */
  items<T>(read: (list: this, index: number) => T | undefined): T[] {
    const items: T[] = [];
    for (let index = 0; index < this.size; index++) {
      const item = read(this, index);
      if (item !== undefined) items.push(item);
    }
    return items;
  }

  /** A map of strings, such as labels, of at most `most`; entries that are none are rejected one by one. */
  strings(name: string | number, most?: number): Map<string, string> {
    const map = this.map(name, most);
    const strings = new Map<string, string>();
    for (const key of map.names) {
      const value = map.string(key);
      if (value !== undefined) strings.set(key, value);
    }
    return strings;
  }

  #objectOf(name: string | number, value: unknown): Fields<R> | R {
    if (isObject(value)) return this.#nested(name, value);
    return this.reject(name, 'wrong-type', 'must be an object', value ?? null);
  }

  #nested(name: string | number, container: object): Fields<R> {
    return new Fields(container, this.#reject, this, name);
  }
}
