/** Those that follow a signal, and the one listener that fires them: Node takes more than ten for a leak, and says so. */
interface Followers {
  readonly all: Set<AbortController>;
  readonly fire: () => void;
}

const followers = new WeakMap<AbortSignal, Followers>();

/**
 * Fires `controller` when `signal` does, until the function that it gives is called. For what is over sooner than the signal:
 * `AbortSignal.any` of Node 20 leaves something in the signal with each call, for as long as that lives (I11).
 */
export function followSignal(signal: AbortSignal, controller: AbortController): () => void {
  if (signal.aborted) {
    controller.abort(signal.reason);
    return () => {};
  }
  const { all, fire } = followers.get(signal) ?? firedBy(signal);
  all.add(controller);
  return () => {
    if (!all.delete(controller) || all.size > 0) return;
    signal.removeEventListener('abort', fire);
    followers.delete(signal);
  };
}

function firedBy(signal: AbortSignal): Followers {
  const all = new Set<AbortController>();
  const fire = (): void => {
    for (const controller of all) controller.abort(signal.reason);
  };
  const made = { all, fire };
  followers.set(signal, made);
  signal.addEventListener('abort', fire, { once: true });
  return made;
}
