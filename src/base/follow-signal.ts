/** The followers of a signal and the one listener that fires them. Node warns of a leak at more than ten listeners. */
interface Followers {
  readonly all: Set<AbortController>;
  readonly fire: () => void;
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
  const { all, fire } = followers.get(signal) ?? addListener(signal);
  all.add(controller);
  return () => {
    if (!all.delete(controller) || all.size > 0) return;
    signal.removeEventListener('abort', fire);
    followers.delete(signal);
  };
}

/**
 * A signal that fires when one of several signals fires, until it is disposed of. Unlike `AbortSignal.any`, it leaves
 * no entry in those signals.
 */
export class EitherSignal implements Disposable {
  readonly signal: AbortSignal;
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

/** Returns a promise that resolves when the signal fires. */
export function fired(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve(), { once: true });
  });
}

/** Adds the one listener of a signal, without followers yet. */
function addListener(signal: AbortSignal): Followers {
  const all = new Set<AbortController>();
  const fire = (): void => {
    for (const controller of all) controller.abort(signal.reason);
  };
  const added = { all, fire };
  followers.set(signal, added);
  signal.addEventListener('abort', fire, { once: true });
  return added;
}
