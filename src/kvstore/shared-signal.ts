import { setMaxListeners } from 'node:events';
import { followSignal } from '../base/follow-signal.ts';

/**
 * A signal that many calls at a time may listen to: Node takes more than ten listeners for a leak, and says so
 * on the console. Every listener here is taken off when its call ends.
 */
export function sharedSignal<S extends AbortSignal | undefined>(signal: S): S {
  if (signal !== undefined) setMaxListeners(0, signal);
  return signal;
}

/** A {@link sharedSignal} that fires when the client is closed, or before by the caller's own signal, until it is disposed of. */
export class UntilClosed implements Disposable {
  readonly signal: AbortSignal;
  readonly #leave: readonly (() => void)[];

  constructor(given: AbortSignal | undefined, closed: AbortSignal) {
    const either = new AbortController();
    this.#leave = given === undefined ? [] : [given, closed].map((signal) => followSignal(signal, either));
    this.signal = sharedSignal(given === undefined ? closed : either.signal);
  }

  [Symbol.dispose](): void {
    for (const leave of this.#leave) leave();
  }
}
