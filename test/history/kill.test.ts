import { expect, it } from 'vitest';
import { killHistories } from './support/kills.ts';

it('a process that is killed while it stores its history loses what was not flushed, and no certain answer is wrong', async () => {
  expect(await killHistories(4)).toBeGreaterThan(20);
});
