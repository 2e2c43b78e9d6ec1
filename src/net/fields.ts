import { checkArgument, TEXT } from '../base/arguments.ts';
import { type Rejection, rejection } from '../base/rejection.ts';
import type { Family } from './address-words.ts';
import { canonicalAddress, canonicalCIDR } from './prefix.ts';

/** The result of decoding an input: a value whose fields were all checked, or a rejection. */
export type Decoded<T> =
  | {
      readonly ok: true;
      readonly value: T;
      /** Invalid parts that were dropped, at most 64. The rest of the value is complete. */
      readonly dropped?: readonly Rejection[];
    }
  | { readonly ok: false; readonly rejection: Rejection };

/**
 * Receives every rejected field. If it returns (`undefined`), the field is treated as absent and decoding continues. If
 * it throws (`never`), like {@link rejectInput}, the input is rejected as a whole.
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

/** Rejects the input that {@link decodeWith} decodes. `field` is its path in the input: `IPAddresses[1].IP`. */
export function rejectInput(reason: string, field: string, value: unknown, why: string): never {
  throw new RejectedInput(reason, field, value, why);
}

/** A value with more dropped parts than this is rejected as a whole, so that the cost of recording them is bounded. */
const MAX_DROPPED = 64;

/** Returns a function that adds each dropped part to a list. `at` names the input. */
function dropInto(dropped: Rejection[], at: string): RejectField<undefined> {
  return (reason, field, value, why) => {
    if (dropped.length === MAX_DROPPED) rejectInput(reason, field, value, why);
    dropped.push(rejection(reason, field, value, why, at));
    return undefined;
  };
}

function decoded<T>(value: T, dropped: readonly Rejection[]): Decoded<T> {
  return dropped.length === 0 ? { ok: true, value } : { ok: true, value, dropped };
}

/** Returns the rejection that {@link rejectInput} has thrown. Throws other errors. */
function rejectedBy(error: unknown, at: string): Decoded<never> {
  if (!(error instanceof RejectedInput)) throw error;
  return rejectedAs(error.reason, error.field, error.value, error.message, at);
}

/**
 * Returns the result of `read`. If `read` calls {@link rejectInput}, returns the rejection. If `read` omits an invalid
 * part, it calls `drop` for that part. `at` names the input: a kvstore key or a file.
 */
export function decodeWith<T>(at: string, read: (drop: RejectField<undefined>) => T): Decoded<T> {
  checkArgument('decode: at', at, TEXT);
  const dropped: Rejection[] = [];
  try {
    return decoded(read(dropInto(dropped, at)), dropped);
  } catch (error) {
    return rejectedBy(error, at);
  }
}

/** Like {@link decodeWith}, for an input that is read in steps. */
export function* decodeInSteps<T>(
  at: string,
  read: (drop: RejectField<undefined>) => Generator<undefined, T>,
): Generator<undefined, Decoded<T>> {
  const dropped: Rejection[] = [];
  try {
    return decoded(yield* read(dropInto(dropped, at)), dropped);
  } catch (error) {
    return rejectedBy(error, at);
  }
}

/** Returns a rejection as the result of decoding. */
export function rejectedAs(
  reason: string,
  field: string,
  value: unknown,
  why: string,
  at: string,
): Decoded<never> {
  return { ok: false, rejection: rejection(reason, field, value, why, at) };
}

/** Returns true if a value is an object and not a list. Its names are untrusted: read it with {@link Fields}. */
export function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Returns the value of a JSON text; `undefined` if the text is not JSON. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

const NO_ITEMS: readonly never[] = [];
const NO_FIELDS: object = {};

/**
 * The reader of untrusted data: the fields of an object, or the elements of a list, returned by `JSON.parse` or a YAML
 * parser. It reads own properties only, so that no name (`__proto__`, `constructor`) reaches a prototype. A field that
 * is absent or null is `undefined`; only `text` and `item` reject it. An invalid field is passed to `reject` with its
 * path and value. Paths are built only for rejected fields; a read costs one property lookup.
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
    // The callers have checked that the value is an object.
    this.#container = container as Readonly<Record<string | number, unknown>>;
    this.#reject = reject;
    this.#parent = parent;
    this.#name = name;
  }

  /** Returns the fields of `value`. If it is not an object, rejects it; `label` is the field of the rejection. */
  static of<R extends undefined>(value: unknown, reject: RejectField<R>, label: string): Fields<R> | R {
    return isObject(value)
      ? new Fields(value, reject)
      : reject('wrong-type', label, value, 'must be an object');
  }

  /** Like {@link Fields.of}, for the elements of a list. */
  static ofList<R extends undefined>(value: unknown, reject: RejectField<R>, label: string): Fields<R> | R {
    if (Array.isArray(value)) return new Fields(value, reject);
    return reject('wrong-type', label, value, 'must be a list');
  }

  /** The names of the fields in the order of the input. */
  get names(): readonly string[] {
    this.#names ??= Object.keys(this.#container);
    return this.#names;
  }

  /** The number of elements, or of fields. */
  get size(): number {
    return Array.isArray(this.#container) ? this.#container.length : this.names.length;
  }

  /** The path of the object or list from the root: `spec.ports`. Empty for the root. */
  get path(): string {
    return this.#parent?.pathOf(this.#name) ?? '';
  }

  /** Returns any value; `undefined` if it is absent or null. */
  value(name: string | number): unknown {
    return Object.hasOwn(this.#container, name) ? (this.#container[name] ?? undefined) : undefined;
  }

  /** Rejects a field. `value` is shown in the rejection. */
  reject(name: string | number, reason: string, why: string, value: unknown = this.value(name)): R {
    return this.#reject(reason, this.pathOf(name), value, why);
  }

  /** Returns the path of a field from the root: `spec.ports[0].port`. */
  pathOf(name: string | number): string {
    if (typeof name === 'number') return `${this.path}[${name}]`;
    return this.#parent === undefined ? name : `${this.path}.${name}`;
  }

  string(name: string | number): string | undefined {
    const value = this.value(name);
    if (typeof value === 'string' || value === undefined) return value;
    return this.reject(name, 'wrong-type', 'must be a string', value);
  }

  /** Returns a required, non-empty string. */
  text(name: string | number): string | R {
    const text = this.value(name);
    if (typeof text === 'string' && text !== '') return text;
    if (text === undefined) return this.reject(name, 'missing-field', 'is missing', text);
    if (text === '') return this.reject(name, 'missing-field', 'must not be empty', text);
    return this.reject(name, 'wrong-type', 'must be a string', text);
  }

  /** Returns one of the given words. An empty string is treated as absent. */
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

  /** Returns a number from `min` to `max`, integer or not. */
  number(name: string | number, min: number, max: number): number | undefined {
    const value = this.value(name);
    if (value === undefined) return undefined;
    if (typeof value !== 'number') return this.reject(name, 'wrong-type', 'must be a number', value);
    if (value >= min && value <= max) return value;
    return this.reject(name, 'out-of-range', `must be a number from ${min} to ${max}`, value);
  }

  /** Returns an integer from `min` to `max`. */
  integer(name: string | number, min: number, max: number): number | undefined {
    const value = this.value(name);
    if (value === undefined) return undefined;
    if (typeof value !== 'number') return this.reject(name, 'wrong-type', 'must be a number', value);
    if (Number.isInteger(value) && value >= min && value <= max) return value;
    return this.reject(name, 'out-of-range', `must be an integer from ${min} to ${max}`, value);
  }

  /** Returns an IP address in canonical form. An empty string is treated as absent. */
  address(name: string | number): string | undefined {
    const text = this.string(name);
    if (text === undefined || text === '') return undefined;
    return canonicalAddress(text) ?? this.reject(name, 'invalid-address', 'is not a valid IP address', text);
  }

  /** Like {@link Fields.address}, for one family. */
  addressOf(family: Family, name: string | number): string | undefined {
    const address = this.address(name);
    if (address === undefined || address.includes(':') === (family === 6)) return address;
    return this.reject(name, 'wrong-family', `must be an IPv${family} address`, address);
  }

  /**
   * Returns a CIDR (an address with a length) in canonical form. Surrounding white space is ignored. An empty string is
   * invalid.
   */
  cidr(name: string | number): string | undefined {
    const text = this.string(name)?.trim();
    if (text === undefined) return undefined;
    return canonicalCIDR(text) ?? this.reject(name, 'invalid-cidr', 'is not a valid CIDR', text);
  }

  /** Returns a nested object. */
  object(name: string | number): Fields<R> | undefined {
    const value = this.value(name);
    return value === undefined ? undefined : this.#objectOf(name, value);
  }

  /** Returns a required nested object, such as an element of a list. */
  item(name: string | number): Fields<R> | R {
    return this.#objectOf(name, this.value(name));
  }

  /** Returns a nested object as a map with at most `maxSize` names; an empty map if it is absent or rejected. */
  map(name: string | number, maxSize: number = Number.POSITIVE_INFINITY): Fields<R> {
    const map = this.object(name) ?? this.#nested(name, NO_FIELDS);
    // Without a limit, `size` is not read, because it allocates a list of the names.
    if (maxSize === Number.POSITIVE_INFINITY || map.size <= maxSize) return map;
    this.reject(name, 'too-many', `must have at most ${maxSize}`, `${map.size} entries`);
    return this.#nested(name, NO_FIELDS);
  }

  /** Returns a nested list of at most `maxSize` elements; an empty list if it is absent or rejected. */
  list(name: string | number, maxSize: number = Number.POSITIVE_INFINITY): Fields<R> {
    const value = this.value(name) ?? NO_ITEMS;
    if (!Array.isArray(value)) this.reject(name, 'wrong-type', 'must be a list', value);
    else if (value.length > maxSize)
      this.reject(name, 'too-many', `must have at most ${maxSize}`, `${value.length} elements`);
    else return this.#nested(name, value);
    return this.#nested(name, NO_ITEMS);
  }

  /** Returns the results of `read` for each element of a list, without `undefined`. */
  items<T>(read: (list: this, index: number) => T | undefined): T[] {
    const items: T[] = [];
    for (let index = 0; index < this.size; index++) {
      const item = read(this, index);
      if (item !== undefined) items.push(item);
    }
    return items;
  }

  /**
   * Returns a map of at most `maxSize` strings, such as labels. Entries that are not strings are rejected one by one.
   */
  strings(name: string | number, maxSize?: number): Map<string, string> {
    const map = this.map(name, maxSize);
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
