import { describe, expect, it } from 'vitest';
import {
  type Check,
  checkArguments,
  ITERABLE,
  listOf,
  NUMBER,
  objectWith,
  optional,
  TEXT,
  UsageError,
} from '../../src/base/arguments.ts';
import { AssertionError } from '../../src/base/assert.ts';

class Greeter {
  calls = 0;

  greet(name: string, options: { readonly times?: number } = {}): string {
    this.calls++;
    return name.repeat(options.times ?? 1);
  }
}

checkArguments(Greeter, {
  greet: { name: TEXT, options: optional(objectWith({ times: optional(NUMBER) })) },
});

describe('a method whose arguments are checked', () => {
  it('runs as before if they are valid', () => {
    const greeter = new Greeter();
    expect([greeter.greet('a'), greeter.greet('a', { times: 2 }), greeter.calls]).toEqual(['a', 'aa', 2]);
  });

  it.each([
    ['greet: name must be a string, not undefined', [undefined]],
    ['greet: name must be a string, not 7', [7]],
    ['greet: options must be an object, not null', ['a', null]],
    ['greet: options.times must be a number, not "2"', ['a', { times: '2' }]],
    ['greet: options.times must be a number, not NaN', ['a', { times: Number.NaN }]],
  ])('does not run otherwise: %s', (message, args) => {
    const greeter = new Greeter();
    expect(() => Reflect.apply(greeter.greet, greeter, args)).toThrow(
      new UsageError('invalid-argument', message),
    );
    expect(greeter.calls).toBe(0);
  });

  it('must exist', () => {
    expect(() => Reflect.apply(checkArguments, undefined, [Greeter, { wave: {} }])).toThrow(AssertionError);
  });
});

describe('a check', () => {
  it.each<[Check, unknown, string | undefined]>([
    [listOf(TEXT), ['a', 'b'], undefined],
    [listOf(TEXT), ['a', 7], '[1] must be a string, not 7'],
    [listOf(TEXT), 'ab', ' must be a list, not "ab"'],
    [ITERABLE, new Set(), undefined],
    [ITERABLE, 'ab', ' must be iterable, not "ab"'],
    [objectWith({ id: objectWith({ name: TEXT }) }), { id: {} }, '.id.name must be a string, not undefined'],
  ])('reports the invalid value and its place', (check, value, fault) => {
    expect(check(value)).toBe(fault);
  });
});
