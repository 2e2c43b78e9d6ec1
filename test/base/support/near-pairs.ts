import fc from 'fast-check';

/** Makes one value of a field anew, each time it is called. */
export type Maker<T> = () => T;

/** Fields that are strings, numbers and the like. */
export function oneOf<T>(...values: readonly T[]): fc.Arbitrary<Maker<T>> {
  return fc.constantFrom(...values).map((value) => () => value);
}

/** Fields that are collections: `makers` build them afresh, so that equal ones are not the same object. */
export function made<T>(...makers: readonly Maker<T>[]): fc.Arbitrary<Maker<T>> {
  return fc.constantFrom(...makers);
}

/** Pairs of objects that share nothing: one for each field in which they may differ, one that differs in none, and one in all. */
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
