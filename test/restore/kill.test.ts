import { expect, it } from 'vitest';
import { killWriters } from './support/kills.ts';

it('a process that is killed while it writes checkpoints leaves the last complete one', async () => {
  expect(await killWriters(8)).toBeGreaterThan(0);
});
