/**
 * Returns what `work` returns. If it throws, disposes of `resources`, in the reverse order, and throws the same error.
 */
export function disposeOnError<T>(resources: readonly Disposable[], work: () => T): T {
  try {
    return work();
  } catch (error) {
    for (const resource of resources.toReversed()) resource[Symbol.dispose]();
    throw error;
  }
}
