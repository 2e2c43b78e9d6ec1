import fc from 'fast-check';
import { expect, it } from 'vitest';

import { fault, KEYS, momentsOf, plans, runLives } from './support/lives.ts';

it('H1, H2: over restarts, a certain answer is right, whatever happened to the files', async () => {
  await fc.assert(
    fc.asyncProperty(plans, async (all) => {
      const world = await runLives(all);
      for (const at of momentsOf(world))
        for (const key of KEYS) {
          const moment = await world.recorded.past.at(key, at);
          expect(fault(world, at, key, moment)).toBeUndefined();
        }
    }),
    { numRuns: Number(process.env['HISTORY_RUNS'] ?? 100) },
  );
});
