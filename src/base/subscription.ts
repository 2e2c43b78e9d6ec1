/// <reference lib="esnext.disposable" preserve="true" />

declare global {
  /** The platform's type. It is declared empty for programs without the libraries of DOM or Node. */
  interface AbortSignal {}
}

/**
 * Ends a subscription if it is called or disposed of by `using`. Idempotent. After it has returned, the listener is not
 * called, even if deliveries were queued before.
 */
export type Unsubscribe = (() => void) & Disposable;

/** Returns an {@link Unsubscribe} that runs `release` only on its first use. */
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
 * Return type of synchronous callbacks: any value, which is ignored, except a promise. An `async` function therefore
 * fails the type check. If a callback returns a promise anyway, its rejection is a fault.
 */
export type ListenerResult =
  // biome-ignore lint/suspicious/noConfusingVoidType: only return types use it, and there it is not undefined
  void | null | boolean | number | string | bigint | symbol | (object & { readonly then?: never });
