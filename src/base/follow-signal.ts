/** The controllers that follow a signal, and its one listener. Node warns of a leak at more than ten listeners. */
interface Followers {
  readonly controllers: Set<AbortController>;
  readonly abortAll: () => void;
}

const followers = new WeakMap<AbortSignal, Followers>();

/**
 * Aborts `controller` when `signal` fires, until the returned function is called. Use it for many short-lived
 * controllers of one long-lived signal: in Node 20 each call of `AbortSignal.any` adds an entry to the signal that is
 * never removed.
 */
export function followSignal(signal: AbortSignal, controller: AbortController): () => void {
  if (signal.aborted) {
    controller.abort(signal.reason);
    return () => {};
  }
  const { controllers, abortAll } = followers.get(signal) ?? addListener(signal);
  controllers.add(controller);
  return () => {
    if (!controllers.delete(controller) || controllers.size > 0) return;
    signal.removeEventListener('abort', abortAll);
    followers.delete(signal);
  };
}

/**
 * A signal that fires when one of several signals fires. Unlike `AbortSignal.any`, it leaves no entry in those signals
 * after it was disposed of.
 */
export class EitherSignal implements Disposable {
  readonly signal: AbortSignal;
  /** Each function stops following one of the signals. */
  readonly #leave: readonly (() => void)[];

  constructor(...signals: readonly AbortSignal[]) {
    const either = new AbortController();
    this.signal = either.signal;
    this.#leave = signals.map((signal) => followSignal(signal, either));
  }

  [Symbol.dispose](): void {
    for (const leave of this.#leave) leave();
  }
}

/** Resolves when the signal fires. Its listener stays until then, so use it only for signals that end soon. */
export function fired(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve(), { once: true });
  });
}

function addListener(signal: AbortSignal): Followers {
  const controllers = new Set<AbortController>();
  const abortAll = (): void => {
    for (const controller of controllers) controller.abort(signal.reason);
  };
  const added = { controllers, abortAll };
  followers.set(signal, added);
  signal.addEventListener('abort', abortAll, { once: true });
  return added;
}
