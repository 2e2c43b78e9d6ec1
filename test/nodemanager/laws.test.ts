import fc from 'fast-check';
import { describe, it } from 'vitest';
import { fewerRuns } from '../base/support/fewer-runs.ts';
import { fresh } from './support/node-fixtures.ts';
import { LAWS } from './support/properties.ts';

describe.each(LAWS)('$name', ({ law, modes }) => {
  it.each(modes)('retainOverruled: %s', (retain) => {
    fc.assert(
      law((retainOverruled) => fresh({ retainOverruled }), retain),
      fewerRuns(75),
    );
  });
});
