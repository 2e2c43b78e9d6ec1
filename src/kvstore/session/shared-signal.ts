import { setMaxListeners } from 'node:events';
import { EitherSignal } from '../../base/follow-signal.ts';

/**
 * Returns the signal, with support for many listeners. Node reports more than ten listeners as a leak on the console. Every
 * listener here is removed when its call ends.
 */
export function allowManyListeners<S extends AbortSignal | undefined>(signal: S): S {
  if (signal !== undefined) setMaxListeners(0, signal);
  return signal;
}

/** A {@link allowManyListeners} that fires when the client is closed or the signal of the caller fires, until it is disposed of. */
export class UntilClosed implements Disposable {
  readonly signal: AbortSignal;
  readonly #either: EitherSignal | undefined;

  constructor(caller: AbortSignal | undefined, closed: AbortSignal) {
    this.#either = caller && new EitherSignal(caller, closed);
    this.signal = allowManyListeners(this.#either?.signal ?? closed);
  }

  [Symbol.dispose](): void {
    this.#either?.[Symbol.dispose]();
  }
}
