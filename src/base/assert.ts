/** A bug of this package: an invariant does not hold. Please report it with its stack. */
export class AssertionError extends Error {
  override readonly name = 'AssertionError';
  readonly code = 'broken-invariant';
}

/** Throws {@link AssertionError} if `condition` is false. Only for bugs of this package. */
export function assert(condition: unknown, message: string): asserts condition {
  if (!condition) throw new AssertionError(message);
}
