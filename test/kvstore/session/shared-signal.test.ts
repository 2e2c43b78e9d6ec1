import { setMaxListeners } from 'node:events';
import { describe, expect, it, vi } from 'vitest';
import {
  allowManyListeners,
  ClientSignal,
  untilAborted,
} from '../../../src/kvstore/session/shared-signal.ts';
import { settle } from '../support/settle.ts';

/** Returns true if Node reports no leak on the console when 20 listeners are added. */
function permitsManyListeners(signal: AbortSignal): boolean {
  const warn = vi.spyOn(process, 'emitWarning').mockImplementation(() => {});
  const listeners = Array.from({ length: 20 }, () => () => {});
  for (const listener of listeners) signal.addEventListener('abort', listener);
  for (const listener of listeners) signal.removeEventListener('abort', listener);
  const { length } = warn.mock.calls;
  warn.mockRestore();
  return length === 0;
}

const never = new Promise<never>(() => {});

describe('a shared promise is awaited', () => {
  it('with its outcome, with and without a signal', async () => {
    const error = new Error('failed');
    for (const signal of [undefined, new AbortController().signal]) {
      expect(await untilAborted(Promise.resolve(7), signal)).toBe(7);
      await expect(untilAborted(Promise.reject(error), signal)).rejects.toBe(error);
    }
  });

  it('until the signal fires, for any number of callers', async () => {
    const warn = vi.spyOn(process, 'emitWarning').mockImplementation(() => {});
    const stop = new AbortController();
    const codes: string[] = [];
    const wait = (): void =>
      void untilAborted(never, stop.signal).catch(({ code }: { readonly code: string }) => codes.push(code));
    for (let i = 0; i < 20; i++) wait();
    expect(warn).not.toHaveBeenCalled();
    stop.abort(new Error('stopped'));
    wait();
    await settle();
    expect(codes).toEqual(Array.from({ length: 21 }, () => 'aborted'));
  });
});

it('a signal permits any number of listeners, and no signal is accepted', () => {
  const { signal } = new AbortController();
  setMaxListeners(10, signal); // the default before Node 26
  expect(permitsManyListeners(signal)).toBe(false);
  expect(allowManyListeners(signal)).toBe(signal);
  expect(permitsManyListeners(signal)).toBe(true);
  expect(allowManyListeners(undefined)).toBeUndefined();
});

describe('a signal until the client is closed', () => {
  it.each(['caller', 'closed'] as const)('fires if %s fires, unless it was disposed of', (which) => {
    for (const isDisposed of [false, true]) {
      const signals = { caller: new AbortController(), closed: new AbortController() };
      const until = new ClientSignal(signals.caller.signal, signals.closed.signal);
      expect([until.signal.aborted, permitsManyListeners(until.signal)]).toEqual([false, true]);
      if (isDisposed) until[Symbol.dispose]();
      signals[which].abort();
      expect(until.signal.aborted).toBe(!isDisposed);
    }
  });

  it('is that of the client without one of the caller', () => {
    const { signal } = new AbortController();
    const until = new ClientSignal(undefined, signal);
    expect(until.signal).toBe(signal);
    expect(permitsManyListeners(signal)).toBe(true);
    until[Symbol.dispose]();
  });
});
