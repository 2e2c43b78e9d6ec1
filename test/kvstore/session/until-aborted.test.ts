import { describe, expect, it, vi } from 'vitest';
import { untilAborted } from '../../../src/kvstore/session/until-aborted.ts';
import { settle } from '../support/settle.ts';

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
