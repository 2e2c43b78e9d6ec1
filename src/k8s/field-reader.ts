import { type Rejection, rejection } from '../base/rejection.ts';

/**
 * A Kubernetes object that was read field by field, as its API server would store it: defaults filled in, and what
 * an API server would not store rejected.
 */
export interface Parsed<T> {
  /** Undefined when the object cannot be used at all; `rejections` then says why. */
  readonly value: T | undefined;
  /** What was refused, the rest lives on. Empty for a clean object. */
  readonly rejections: readonly Rejection[];
}

/** Options of the parsers of Kubernetes objects. */
export interface ParseOptions {
  /** Where the object comes from, for rejections: `file.yaml:12`. Its kind and name are added to it. */
  readonly at?: string | undefined;
}

/** An own property of an object from outside; never reaches a prototype, whatever the name. */
export function field(value: unknown, name: string): unknown {
  if (typeof value !== 'object' || value === null || !Object.hasOwn(value, name)) return undefined;
  // Checked: an object with that own property.
  return (value as Readonly<Record<string, unknown>>)[name];
}

/**
 * Reads fields of one object and keeps what it refuses. A field that is absent or null is `undefined` and no
 * reason to complain; one of a wrong type is refused, with its path and value, and then `undefined` too.
 */
export class FieldReader {
  readonly #at: string;
  readonly #rejections: Rejection[] = [];

  constructor(at: string) {
    this.#at = at;
  }

  get rejections(): readonly Rejection[] {
    return this.#rejections;
  }

  /** Refuses a value. */
  refuse(reason: string, path: string, value: unknown, why: string): void {
    this.#rejections.push(rejection(reason, path, value, why, this.#at));
  }

  string(value: unknown, path: string): string | undefined {
    if (typeof value === 'string' || value === undefined || value === null) return value ?? undefined;
    this.refuse('wrong-type', path, value, 'must be a string');
    return undefined;
  }

  boolean(value: unknown, path: string): boolean | undefined {
    if (typeof value === 'boolean' || value === undefined || value === null) return value ?? undefined;
    this.refuse('wrong-type', path, value, 'must be true or false');
    return undefined;
  }

  /** A whole number from `min` to `max`. */
  integer(value: unknown, path: string, min: number, max: number): number | undefined {
    if (value === undefined || value === null) return undefined;
    if (typeof value === 'number' && Number.isInteger(value) && value >= min && value <= max) return value;
    this.refuse('out-of-range', path, value, `must be a whole number from ${min} to ${max}`);
    return undefined;
  }

  /** The elements of a list; none when it is absent. */
  list(value: unknown, path: string): readonly unknown[] {
    if (Array.isArray(value)) return value;
    if (value !== undefined && value !== null) this.refuse('wrong-type', path, value, 'must be a list');
    return [];
  }

  /** A nested object; `undefined` when it is absent. */
  object(value: unknown, path: string): object | undefined {
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value;
    if (value !== undefined && value !== null) this.refuse('wrong-type', path, value, 'must be an object');
    return undefined;
  }

  /** The objects on the way down `names` from `value`; `undefined` where one is absent, or refused. */
  nested(value: unknown, ...names: readonly string[]): unknown {
    let current: unknown = value;
    names.forEach((name, depth) => {
      current = this.object(field(current, name), names.slice(0, depth + 1).join('.'));
    });
    return current;
  }

  /** One of a few words; others are refused. */
  word<W extends string>(value: unknown, path: string, words: readonly W[]): W | undefined {
    const text = this.string(value, path);
    if (text === undefined || text === '') return undefined;
    const found = words.find((word) => word === text);
    if (found === undefined) this.refuse('unknown-value', path, text, `must be one of ${words.join(', ')}`);
    return found;
  }

  /** The entries of an object whose values are strings, such as labels; others are refused one by one. */
  strings(value: unknown, path: string): readonly (readonly [string, string])[] {
    const object = this.object(value, path);
    if (object === undefined) return [];
    const entries: [string, string][] = [];
    for (const [key, entry] of Object.entries(object)) {
      const text = this.string(entry, `${path}.${key}`);
      if (text !== undefined) entries.push([key, text]);
    }
    return entries;
  }
}
