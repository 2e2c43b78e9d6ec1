/** Those that follow a signal. */
const followers = new WeakMap<AbortSignal, Set<AbortController>>();

/**
 * Fires `controller` when `signal` does, until the function that it gives is called. For what is over sooner than the signal:
 * `AbortSignal.any` of Node 20 leaves something in the signal with each call, for as long as that lives (I11).
 */
export function followSignal(signal: AbortSignal, controller: AbortController): () => void {
  if (signal.aborted) {
    controller.abort(signal.reason);
    return () => {};
  }
  const all = followers.get(signal) ?? firedBy(signal);
  all.add(controller);
  return () => void all.delete(controller);
}

/** By one listener: Node takes more than ten for a leak, and says so on the console. */
function firedBy(signal: AbortSignal): Set<AbortController> {
  const all = new Set<AbortController>();
  followers.set(signal, all);
  const fire = (): void => {
    for (const controller of all) controller.abort(signal.reason);
  };
  signal.addEventListener('abort', fire, { once: true });
  return all;
}
