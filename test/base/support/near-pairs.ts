import fc from 'fast-check';

/** Creates a new value of a field with each call. */
export type Maker<T> = () => T;

/** Fields that are strings, numbers and the like. */
export function oneOf<T>(...values: readonly T[]): fc.Arbitrary<Maker<T>> {
  return fc.constantFrom(...values).map((value) => () => value);
}

/** Fields that are collections: `makers` create new ones, so that equal ones are not the same object. */
export function made<T>(...makers: readonly Maker<T>[]): fc.Arbitrary<Maker<T>> {
  return fc.constantFrom(...makers);
}

/** Returns pairs of objects without shared parts: one pair differs in each field, one in none, and one in all. */
export function nearPairs<T extends object>(
  fields: {
    readonly [K in keyof T]-?: fc.Arbitrary<Maker<T[K]>>;
  },
): fc.Arbitrary<readonly (readonly [T, T])[]> {
  const names = Object.keys(fields) as (keyof T)[];
  const columns = names.map((name) => fc.tuple(fc.constant(name), fields[name], fields[name]));
  return fc.tuple(...columns).map((drawn) => {
    // Checked: every field of T is drawn.
    const made = (differs: (name: keyof T) => boolean): T =>
      Object.fromEntries(
        drawn.map(([name, first, second]) => [name, (differs(name) ? second : first)()]),
      ) as T;
    const one = made(() => false);
    const others = names.map((name) => made((each) => each === name));
    return [made(() => false), ...others, made(() => true)].map((other) => [one, other] as const);
  });
}
