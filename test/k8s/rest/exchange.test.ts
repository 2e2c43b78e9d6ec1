import { getEventListeners } from 'node:events';
import { expect, it } from 'vitest';
import { Exchange } from '../../../src/k8s/rest/exchange.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { ScriptedApi } from '../support/scripted-api.ts';

it('an exchange leaves no timer, and no listener on the signal of its caller, which serves many exchanges', () => {
  const clock = new ManualClock();
  const { signal } = new AbortController();
  for (let i = 0; i < 3; i++) {
    using exchange = new Exchange({ transport: new ScriptedApi(), clock, signal });
    exchange.allowTime(60_000);
    exchange.allowSilence(30_000);
  }
  expect(getEventListeners(signal, 'abort')).toEqual([]);
  expect(clock.pending).toBe(0);
});
