/** Thrown for a bug: a broken invariant, or an argument of the wrong type. */
export class AssertionError extends Error {
  override readonly name = 'AssertionError';
}

/**
 * Throws {@link AssertionError} if `condition` is false. Only for bugs: invalid input results in an outcome, and a
 * failure outside the program in an error with a code.
 */
export function assert(condition: unknown, message: string): asserts condition {
  if (!condition) throw new AssertionError(message);
}
