import { setMaxListeners } from 'node:events';

/**
 * A signal that many calls at a time may listen to: Node takes more than ten listeners for a leak, and says so
 * on the console. Every listener here is taken off when its call ends.
 */
export function sharedSignal<S extends AbortSignal | undefined>(signal: S): S {
  if (signal !== undefined) setMaxListeners(0, signal);
  return signal;
}

/** A {@link sharedSignal} that fires when the client is closed, or before by the caller's own signal, if it has one. */
export function untilClosed(signal: AbortSignal | undefined, closed: AbortSignal): AbortSignal {
  return sharedSignal(signal === undefined ? closed : AbortSignal.any([signal, closed]));
}
