import { getEventListeners } from 'node:events';
import { describe, expect, it } from 'vitest';
import { EitherSignal } from '../../src/base/follow-signal.ts';

describe('either of two signals', () => {
  it.each([0, 1])('fires with %i of them, for its reason', (which) => {
    const two = [new AbortController(), new AbortController()] as const;
    using either = new EitherSignal(two[0].signal, two[1].signal);
    expect(either.signal.aborted).toBe(false);
    two[which]?.abort('why');
    expect([either.signal.aborted, either.signal.reason]).toEqual([true, 'why']);
  });

  it('has fired if one of them has', () => {
    using either = new EitherSignal(new AbortController().signal, AbortSignal.abort('before'));
    expect([either.signal.aborted, either.signal.reason]).toEqual([true, 'before']);
  });

  it('does not fire after dispose, and leaves no listener', () => {
    const one = new AbortController();
    const { signal } = one;
    const kept = new EitherSignal(signal, new AbortController().signal);
    const gone = new EitherSignal(signal, new AbortController().signal);
    gone[Symbol.dispose]();
    expect(getEventListeners(signal, 'abort')).toHaveLength(1);
    kept[Symbol.dispose]();
    expect(getEventListeners(signal, 'abort')).toHaveLength(0);
    one.abort();
    expect([kept.signal.aborted, gone.signal.aborted]).toEqual([false, false]);
  });
});
