import { assert } from './assert.ts';
import { showValue } from './show-value.ts';

/**
 * A mistake of the calling program, thrown at the call and before it has any effect; an async function rejects with it.
 *
 * - `invalid-argument`: an argument or an option has the wrong type, or a setting is out of range. The message names
 * the call, the path of the field and its value: `new IPCache: options.maxEntries must be at least 0, not NaN`
 * - `invalid-call`: the call is not allowed now, for example in a batch, or after the object was stopped
 *
 * A program does not catch it, but is corrected. Invalid *data* (a key, a claim, a node) does not throw: it results in
 * an outcome such as `invalid`, and a `Rejection` is counted and reported to `onReject`. Unknown options are ignored,
 * so that several classes may receive one object of options.
 */
export class UsageError extends Error {
  override readonly name = 'UsageError';
  readonly code: 'invalid-argument' | 'invalid-call';

  constructor(code: UsageError['code'], message: string) {
    super(message);
    this.code = code;
  }
}

/** Throws a {@link UsageError} if an argument is out of range. The message names its value. */
export function requireArgument(condition: unknown, message: string): asserts condition {
  if (!condition) throw new UsageError('invalid-argument', message);
}

/** Throws a {@link UsageError} if a call is not allowed now. */
export function requireAllowed(condition: unknown, message: string): asserts condition {
  if (!condition) throw new UsageError('invalid-call', message);
}

/**
 * Returns the fault of a value as text to append to its name: ` must be a string, not 7`, `.name must be a string, not
 * 7`. Returns undefined if the value is valid.
 */
export type Check = (value: unknown) => string | undefined;

/** The fields of `T`; each may be omitted or undefined. */
export type Optional<T> = { readonly [K in keyof T]?: T[K] | undefined };

/** Returns true if a value is an object of any kind, so that its members can be read. */
export function isObjectOrList(value: unknown): value is Readonly<Record<string | symbol, unknown>> {
  return typeof value === 'object' && value !== null;
}

/** Accepts a value if `isValid` returns true; otherwise the fault is ` ${requirement}, not …`. */
export function matching(requirement: string, isValid: (value: unknown) => boolean): Check {
  return (value) => (isValid(value) ? undefined : ` ${requirement}, not ${showValue(value)}`);
}

export const TEXT: Check = matching('must be a string', (value) => typeof value === 'string');
/** Rejects NaN, which no comparison detects. */
export const NUMBER: Check = matching(
  'must be a number',
  (value) => typeof value === 'number' && !Number.isNaN(value),
);
export const FUNCTION: Check = matching('must be a function', (value) => typeof value === 'function');
export const BOOLEAN: Check = matching('must be true or false', (value) => typeof value === 'boolean');
export const BYTES: Check = matching('must be a Uint8Array', (value) => value instanceof Uint8Array);

/** Accepts any iterable object; rejects strings. */
export const ITERABLE: Check = matching(
  'must be iterable',
  (value) => isObjectOrList(value) && typeof value[Symbol.iterator] === 'function',
);

/** Accepts numbers from `min`, `Infinity` included. */
export function atLeast(min: number): Check {
  return matching(`must be at least ${min}`, (value) => typeof value === 'number' && value >= min);
}

/** Accepts numbers above 0, `Infinity` included. */
export const POSITIVE: Check = matching('must be above 0', (value) => typeof value === 'number' && value > 0);

/** Accepts one of these values. */
export function oneOf(...values: readonly unknown[]): Check {
  return matching(`must be one of ${values.join(', ')}`, (value) => values.includes(value));
}

/** Accepts an object with these members, own or inherited. Other members are ignored. */
export function objectWith(members: Readonly<Record<string, Check>> = {}): Check {
  const checks = Object.entries(members);
  return (value) => {
    if (!isObjectOrList(value)) return ` must be an object, not ${showValue(value)}`;
    for (const [member, check] of checks) {
      const fault = check(value[member]);
      if (fault !== undefined) return `.${member}${fault}`;
    }
    return undefined;
  };
}

/** Accepts an object if `isShaped` returns true. Ten times faster than {@link objectWith}. */
export function shaped<T extends object>(
  requirement: string,
  isShaped: (value: Partial<T>) => boolean,
): Check {
  // Partial, because any member may be missing.
  return matching(requirement, (value) => isObjectOrList(value) && isShaped(value as Partial<T>));
}

/** Accepts an array with any elements. */
export const LIST: Check = matching('must be a list', Array.isArray);

/** Accepts an array if `element` accepts each of its elements. */
export function listOf(element: Check): Check {
  return (value) => {
    if (!Array.isArray(value)) return LIST(value);
    const at = value.findIndex((item) => element(item) !== undefined);
    return at < 0 ? undefined : `[${at}]${element(value[at])}`;
  };
}

/** Accepts undefined or a missing member; null is not accepted. */
export function optional(check: Check): Check {
  return (value) => (value === undefined ? undefined : check(value));
}

export const OBJECT: Check = objectWith();
export const SIGNAL: Check = matching(
  'must be an AbortSignal',
  (value) => isObjectOrList(value) && typeof value['addEventListener'] === 'function' && 'aborted' in value,
);

/** Options that many classes have. Each may be omitted. */
const COMMON_OPTIONS: Readonly<Record<string, Check>> = {
  clock: optional(objectWith({ now: FUNCTION, wallTime: FUNCTION, after: FUNCTION })),
  random: optional(FUNCTION),
  gate: optional(objectWith({ run: FUNCTION })),
  onReject: optional(FUNCTION),
  onFault: optional(FUNCTION),
  onFailure: optional(FUNCTION),
  onListenerFault: optional(FUNCTION),
};

/** Accepts an object of options with these members, and {@link COMMON_OPTIONS}. */
export function optionsWith(members: Readonly<Record<string, Check>> = {}): Check {
  return objectWith({ ...COMMON_OPTIONS, ...members });
}

/** Throws a {@link UsageError} if the check rejects an argument. `name` is its name in the message: `whatIf: edits`. */
export function checkArgument(name: string, value: unknown, check: Check): void {
  const fault = check(value);
  if (fault !== undefined) throw new UsageError('invalid-argument', `${name}${fault}`);
}

/**
 * Wraps methods of a class with checks of their arguments. A wrong argument throws a {@link UsageError} that names
 * it, before the method runs; without the check a `TypeError` would end the method halfway. Bad *data* gets an outcome
 * or a rejection from the method itself. Costs about 20 ns per call.
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
        if (fault !== undefined) throw new UsageError('invalid-argument', `${method}: ${name}${fault}`);
      }
      return Reflect.apply(run, this, args);
    };
    Object.defineProperty(owner.prototype, method, { value: checked, configurable: true, writable: true });
  }
}
