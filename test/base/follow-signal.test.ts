import { getEventListeners } from 'node:events';
import { describe, expect, it } from 'vitest';
import { EitherSignal, onAbort } from '../../src/base/follow-signal.ts';
import { IPCache, ServiceCache, systemClock, TurnGate } from '../../src/index.ts';

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

  it('is the second signal without a first one', () => {
    const { signal } = new AbortController();
    using either = new EitherSignal(undefined, signal);
    expect(either.signal).toBe(signal);
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

it('calls each callback once, even if the same function was passed twice, and calls at once if the signal has fired', () => {
  const abort = new AbortController();
  let calls = 0;
  const count = (): void => void calls++;
  const leave = onAbort(abort.signal, count);
  onAbort(abort.signal, count);
  onAbort(abort.signal, count);
  leave();
  expect(calls).toBe(0);
  abort.abort();
  expect(calls).toBe(2);
  onAbort(abort.signal, count);
  expect(calls).toBe(3);
});

it.each<[string, (signal: AbortSignal) => unknown]>([
  ['ServiceCache.stream', (signal) => services.stream(signal)],
  ['IPCache.changes', (signal) => ipcache.changes({ signal })],
  ['TurnGate.run', (signal) => gate.run(1, () => {}, signal)],
])('20 calls of %s with one signal add one listener (regression: Node warned of a leak)', (_, call) => {
  const abort = new AbortController();
  void gate.run(2, () => {}); // fills the turn, so that the others wait
  for (let i = 0; i < 20; i++) call(abort.signal);
  expect(getEventListeners(abort.signal, 'abort')).toHaveLength(1);
  abort.abort();
});

const services = new ServiceCache({ clusterName: 'a' });
const ipcache = new IPCache();
const gate = new TurnGate({ clock: systemClock, nextTurn: () => {}, weightPerTurn: 1 });
