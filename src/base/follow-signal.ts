/** The callbacks of a signal, and their one listener. Node warns of a leak at more than ten listeners. */
interface Followers {
  readonly callbacks: Set<() => void>;
  readonly callAll: () => void;
}

const followers = new WeakMap<AbortSignal, Followers>();

/**
 * Calls `callback`, which must not throw, when `signal` fires; at once if it has fired; never without a signal. The
 * returned function cancels this. A signal may have any number of callbacks.
 */
export function onAbort(signal: AbortSignal | undefined, callback: () => void): () => void {
  if (signal?.aborted === true) callback();
  if (signal === undefined || signal.aborted) return () => {};
  const { callbacks, callAll } = followers.get(signal) ?? addListener(signal);
  const own = (): void => callback(); // the same function may be passed several times
  callbacks.add(own);
  return () => {
    if (!callbacks.delete(own) || callbacks.size > 0) return;
    signal.removeEventListener('abort', callAll);
    followers.delete(signal);
  };
}

/**
 * Aborts `controller` when `signal` fires. The returned function cancels this. Use it for many short-lived controllers
 * of one long-lived signal: in Node 20 each call of `AbortSignal.any` adds an entry to the signal that is never
 * removed.
 */
export function followSignal(signal: AbortSignal | undefined, controller: AbortController): () => void {
  return onAbort(signal, () => controller.abort(signal?.reason));
}

/**
 * A signal that fires when one of two signals fires. Unlike `AbortSignal.any`, it leaves no entry in those signals
 * after it was disposed of. Without a first signal, `signal` is the second one.
 */
export class EitherSignal implements Disposable {
  readonly signal: AbortSignal;
  /** Each function stops following one of the signals. */
  readonly #leave: readonly (() => void)[];

  constructor(first: AbortSignal | undefined, second: AbortSignal) {
    const either = first && new AbortController();
    this.signal = either?.signal ?? second;
    this.#leave = either === undefined ? [] : [first, second].map((signal) => followSignal(signal, either));
  }

  [Symbol.dispose](): void {
    for (const leave of this.#leave) leave();
  }
}

/** Resolves when the signal fires. Its callback stays until then, so use it only for signals that end soon. */
export function fired(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    onAbort(signal, resolve);
  });
}

function addListener(signal: AbortSignal): Followers {
  const callbacks = new Set<() => void>();
  const callAll = (): void => {
    for (const callback of callbacks) callback();
  };
  const added = { callbacks, callAll };
  followers.set(signal, added);
  signal.addEventListener('abort', callAll, { once: true });
  return added;
}
