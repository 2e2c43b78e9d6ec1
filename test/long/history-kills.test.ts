import { expect, it } from 'vitest';
import { killHistories } from '../history/support/kills.ts';

it('100 kills at any moment lose only what was not flushed, and no certain answer is wrong', async () => {
  expect(await killHistories(100)).toBeGreaterThan(500);
});
