/** A bug: a broken invariant here, or a caller's programming error, such as an argument of the wrong type. */
export class AssertionError extends Error {
  override readonly name = 'AssertionError';
}

/**
 * Throws {@link AssertionError} unless `condition` holds. For broken invariants only: bad input gets an
 * outcome, and a failing world gets an error with a code.
 */
export function assert(condition: unknown, message: string): asserts condition {
  if (!condition) throw new AssertionError(message);
}
