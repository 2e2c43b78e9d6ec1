import fc from 'fast-check';
import { it } from 'vitest';
import { fresh } from './support/node-fixtures.ts';
import { I1_asynchronousHandlersCatchUp, stoppingEndsEverything } from './support/races.ts';

it('I1: asynchronous handlers catch up, whatever fails and in whatever order calls end', async () => {
  await fc.assert(I1_asynchronousHandlersCatchUp(() => fresh()));
});

it('close: no call, no leftovers and no waiting caller afterwards, whenever it happens', async () => {
  await fc.assert(stoppingEndsEverything(() => fresh()));
});
