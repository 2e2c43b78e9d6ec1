import fc from 'fast-check';
import { describe, it } from 'vitest';
import { I9_anyLifeIsAColdStart, life, makeWorld } from './support/feed-laws.ts';

describe('a feed of Kubernetes', () => {
  it('equals a cold start, whatever the order of objects, lists, restarts and handovers (I2, I9)', async () => {
    await fc.assert(fc.asyncProperty(life, (one) => I9_anyLifeIsAColdStart(makeWorld, one)));
  });
});
