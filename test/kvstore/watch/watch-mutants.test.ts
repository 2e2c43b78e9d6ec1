import fc from 'fast-check';
import { afterEach, expect, it, vi } from 'vitest';

type Laws = typeof import('../support/watch-laws.ts');

const SYNC = '../../../src/kvstore/watch/sync.ts';

afterEach(() => {
  vi.doUnmock(SYNC);
  vi.resetModules();
});

it.each([
  [
    'never asks whether the server still has the history that was followed',
    { proveHistory: () => Promise.resolve() },
  ],
  ['takes everything to be up to date', { sync: () => Promise.resolve(1000) }],
])('I9 detects a watch that %s', async (_what, mutant) => {
  vi.resetModules();
  vi.doMock(SYNC, async (original) => ({ ...(await original<object>()), ...mutant }));
  const { happenings, I9_nothingLostNothingInvented } = (await import('../support/watch-laws.ts')) as Laws;
  const outcome = await fc.check(
    fc.asyncProperty(happenings, (script) => I9_nothingLostNothingInvented(script)),
    { endOnFailure: true },
  );
  expect(outcome.failed).toBe(true);
});
