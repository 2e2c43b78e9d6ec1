import { assert } from './assert.ts';

/**
 * Returns the fault of a value as text to append to its name: ` must be a string`, `.name must be a string`. Returns
 * undefined if the value is valid.
 */
export type Check = (value: unknown) => string | undefined;

/** The fields of `T`; each may be omitted or undefined. */
export type Optional<T> = { readonly [K in keyof T]?: T[K] | undefined };

/** Returns true if a value is an object of any kind, so that its members can be read. */
export function isObjectOrList(value: unknown): value is Readonly<Record<string | symbol, unknown>> {
  return typeof value === 'object' && value !== null;
}

function ofType(type: string, noun: string): Check {
  return (value) => (typeof value === type ? undefined : ` must be ${noun}`);
}

export const TEXT: Check = ofType('string', 'a string');
export const NUMBER: Check = ofType('number', 'a number');
export const FUNCTION: Check = ofType('function', 'a function');

/** Accepts any iterable object; rejects strings. */
export const ITERABLE: Check = (value) =>
  isObjectOrList(value) && typeof value[Symbol.iterator] === 'function' ? undefined : ' must be iterable';

export const BYTES: Check = (value) => (value instanceof Uint8Array ? undefined : ' must be a Uint8Array');

/** Accepts an object with these members, own or inherited. Other members are ignored. */
export function objectWith(members: Readonly<Record<string, Check>> = {}): Check {
  const checks = Object.entries(members);
  return (value) => {
    if (!isObjectOrList(value)) return ' must be an object';
    for (const [member, check] of checks) {
      const fault = check(value[member]);
      if (fault !== undefined) return `.${member}${fault}`;
    }
    return undefined;
  };
}

/**
 * Accepts an object if `isShaped` returns true; otherwise the fault is ` ${requirement}`. Ten times faster than {@link
 * objectWith}.
 */
export function shaped<T extends object>(
  requirement: string,
  isShaped: (value: Partial<T>) => boolean,
): Check {
  // Partial, because any member may be missing.
  return (value) => (isObjectOrList(value) && isShaped(value as Partial<T>) ? undefined : ` ${requirement}`);
}

/** Accepts an array with any elements. */
export const LIST: Check = (value) => (Array.isArray(value) ? undefined : ' must be a list');

/** Accepts an array if `element` accepts each of its elements. */
export function listOf(element: Check): Check {
  return (value) => {
    if (!Array.isArray(value)) return ' must be a list';
    const at = value.findIndex((item) => element(item) !== undefined);
    return at < 0 ? undefined : `[${at}]${element(value[at])}`;
  };
}

/** Accepts undefined or a missing member; null is not accepted. */
export function optional(check: Check): Check {
  return (value) => (value === undefined ? undefined : check(value));
}

export const OBJECT: Check = objectWith();
export const SIGNAL: Check = objectWith({ addEventListener: FUNCTION, removeEventListener: FUNCTION });

/**
 * Wraps methods of a class with checks of their arguments. A wrong argument throws an `AssertionError` that names it,
 * before the method runs; without the check a `TypeError` would end the method halfway. This is for programming errors.
 * Bad *data* gets an outcome or a rejection from the method itself. Costs about 20 ns per call.
 *
 * The methods are wrapped because a wrapper throws at the call. An assertion inside an async method would reject later,
 * and one inside a generator would throw at the first `next`.
 *
 * @param checks the checks of each method by argument name, in order
 */
export function checkArguments<C extends object>(
  owner: { readonly prototype: C },
  checks: { readonly [M in Exclude<keyof C, 'toString'>]?: Readonly<Record<string, Check>> },
): void {
  for (const [method, parameters] of Object.entries<Readonly<Record<string, Check>> | undefined>(checks)) {
    const run: unknown = Reflect.get(owner.prototype, method);
    assert(typeof run === 'function' && parameters !== undefined, `unknown method ${method}`);
    const list = Object.entries(parameters);
    const checked = function (this: C, ...args: readonly unknown[]): unknown {
      let at = 0;
      for (const [name, check] of list) {
        const fault = check(args[at]);
        at++;
        if (fault !== undefined) assert(false, `${method}: ${name}${fault}`);
      }
      return Reflect.apply(run, this, args);
    };
    Object.defineProperty(owner.prototype, method, { value: checked, configurable: true, writable: true });
  }
}
