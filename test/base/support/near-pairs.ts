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

/** Pairs of objects that differ in one field or in none as a rule, and share nothing. */
export function nearPairs<T extends object>(
  fields: {
    readonly [K in keyof T]-?: fc.Arbitrary<Maker<T[K]>>;
  },
): fc.Arbitrary<[T, T]> {
  const names = Object.keys(fields) as (keyof T)[];
  const isSame = fc.constantFrom(...Array<boolean>(19).fill(true), false);
  const columns = names.map((name) => fc.tuple(fc.constant(name), fields[name], fields[name], isSame));
  return fc.tuple(...columns).map((drawn) => {
    const one = Object.fromEntries(drawn.map(([name, first]) => [name, first()]));
    const other = Object.fromEntries(
      drawn.map(([name, first, second, same]) => [name, (same ? first : second)()]),
    );
    return [one as T, other as T];
  });
}
