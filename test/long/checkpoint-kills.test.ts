import { expect, it } from 'vitest';
import { killWriters } from '../restore/support/kills.ts';

it('200 kills at any moment never lose a whole checkpoint', async () => {
  expect(await killWriters(200)).toBeGreaterThan(0);
});
