import { interruptible } from '../../base/supervisor.ts';
import { abortedError } from './errors.ts';

/** Awaits a promise that others share. Rejects with `aborted` if the signal fires first. */
export async function untilAborted<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return promise;
  try {
    return await interruptible(() => promise, signal);
  } catch (error) {
    throw signal.aborted ? abortedError() : error;
  }
}
