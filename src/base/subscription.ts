/// <reference lib="esnext.disposable" preserve="true" />

declare global {
  /** Signals are those of the platform. Declared for programs without the libraries of DOM or Node: there it is empty. */
  interface AbortSignal {}
}

/**
 * Ends a subscription: call it, or let `using` dispose of it. Idempotent. Once it has returned, the
 * listener is called no more, not even with what was queued before.
 */
export type Unsubscribe = (() => void) & Disposable;

/** Makes an {@link Unsubscribe} that runs `release` on its first use only. */
export function unsubscribeOnce(release: () => void): Unsubscribe {
  let done = false;
  const end = (): void => {
    if (done) return;
    done = true;
    release();
  };
  return Object.assign(end, { [Symbol.dispose]: end });
}

/**
 * What a synchronous callback may return: anything, and nothing is made of it, but no promise. So an `async` function does
 * not type-check; where one gets in all the same, its rejection counts as a fault.
 */
export type ListenerResult =
  // biome-ignore lint/suspicious/noConfusingVoidType: only return types use it, and there it is not undefined
  void | null | boolean | number | string | bigint | symbol | (object & { readonly then?: never });
