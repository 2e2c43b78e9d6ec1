/** A bug: a broken invariant, or a programming error of the caller such as an argument of the wrong type. */
export class AssertionError extends Error {
  override readonly name = 'AssertionError';
}

/**
 * Throws {@link AssertionError} if `condition` is false. Only for broken invariants: bad input gets an outcome, and a failure
 * outside the program gets an error with a code.
 */
export function assert(condition: unknown, message: string): asserts condition {
  if (!condition) throw new AssertionError(message);
}
