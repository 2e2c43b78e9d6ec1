import fc from 'fast-check';
import { expect, it, vi } from 'vitest';
import { happenings, I9_nothingLostNothingInvented } from './support/watch-laws.ts';

vi.mock('../../src/kvstore/watch/fence.ts', async (original) => {
  const same = (): Promise<unknown> => Promise.resolve({ outcome: 'same', revision: 0 });
  return { ...(await original<object>()), fence: same, reconcile: same };
});

it('I9 catches a watch that never asks whether the server still has the history that was followed', async () => {
  const outcome = await fc.check(
    fc.asyncProperty(happenings, (script) => I9_nothingLostNothingInvented(script)),
    { endOnFailure: true },
  );
  expect(outcome.failed).toBe(true);
});
