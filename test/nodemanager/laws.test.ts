import fc from 'fast-check';
import { describe, it } from 'vitest';
import { fresh } from './node-fixtures.ts';
import { LAWS } from './properties.ts';

const RUNS = 1000;

describe.each(LAWS)('$name', ({ law, modes }) => {
  it.each(modes)('retainOverruled: %s', (retain) => {
    fc.assert(
      law((retainOverruled) => fresh({ retainOverruled }), retain),
      { numRuns: RUNS },
    );
  });
});
