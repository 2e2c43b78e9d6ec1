/**
 * Returns `next`, in which parts equal to those of `previous` are replaced by these, or `previous` if all are equal. So
 * the rows of a table that have not changed need not be rendered again. Both are JSON. Changes `next`.
 */
export function shareEqual<T>(previous: unknown, next: T): T {
  if (typeof previous !== 'object' || typeof next !== 'object' || previous === null || next === null)
    return next;
  const names = Object.keys(next);
  let isEqual =
    Array.isArray(previous) === Array.isArray(next) && Object.keys(previous).length === names.length;
  for (const name of names) {
    const old: unknown = Object.hasOwn(previous, name) ? Reflect.get(previous, name) : undefined;
    const value: unknown = Reflect.get(next, name);
    const shared = shareEqual(old, value);
    if (shared !== value) Reflect.set(next, name, shared);
    if (shared !== old) isEqual = false;
  }
  return isEqual ? (previous as T) : next;
}
