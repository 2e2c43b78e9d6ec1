import { setMaxListeners } from 'node:events';
import { EitherSignal } from '../../base/follow-signal.ts';
import { interruptible } from '../../base/supervisor.ts';
import { abortedError } from './errors.ts';

/**
 * Returns the signal, for which Node then permits any number of listeners. By default Node reports more than ten
 * listeners as a leak on the console. Calls remove their listeners when they end.
 */
export function allowManyListeners<S extends AbortSignal | undefined>(signal: S): S {
  if (signal !== undefined) setMaxListeners(0, signal);
  return signal;
}

/**
 * The signal of a call of a client: fires when the client is closed, or when the signal of the caller fires. Dispose of
 * it after the call.
 */
export class ClientSignal implements Disposable {
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

/** Awaits a promise that others share. Rejects with `aborted` if the signal fires first. */
export async function untilAborted<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return promise;
  try {
    return await interruptible(() => promise, allowManyListeners(signal));
  } catch (error) {
    throw signal.aborted ? abortedError() : error;
  }
}
