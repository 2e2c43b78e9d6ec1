import type { Clock } from './clock.ts';
import { onAbort } from './follow-signal.ts';

/** Resolves after `delayMs` or as soon as the signal fires. Never rejects; check the signal to distinguish the two. */
export function sleep(clock: Pick<Clock, 'after'>, delayMs: number, signal?: AbortSignal): Promise<void> {
  if (signal?.aborted === true) return Promise.resolve();
  return new Promise((resolve) => {
    const done = (): void => {
      timer.cancel();
      leaveSignal();
      resolve();
    };
    const timer = clock.after(delayMs, done);
    const leaveSignal = onAbort(signal, done);
  });
}

/** A promise, and the function that resolves it. */
export interface Deferred {
  readonly promise: Promise<void>;
  resolve(this: void): void;
}

/** Returns a new, unresolved {@link Deferred}. */
export function deferred(): Deferred {
  let resolve = (): void => {};
  const promise = new Promise<void>((done) => {
    resolve = done;
  });
  return { promise, resolve };
}
