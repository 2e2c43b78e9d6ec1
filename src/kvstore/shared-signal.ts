import { setMaxListeners } from 'node:events';

/**
 * A signal that many calls at a time may listen to: Node takes more than ten listeners for a leak, and says so
 * on the console. Every listener here is taken off when its call ends.
 */
export function sharedSignal<S extends AbortSignal | undefined>(signal: S): S {
  if (signal !== undefined) setMaxListeners(0, signal);
  return signal;
}
