import fc from 'fast-check';
import { describe, it } from 'vitest';
import { fresh } from './support/node-fixtures.ts';
import { LAWS } from './support/properties.ts';

describe.each(LAWS)('$name', ({ law, modes }) => {
  it.each(modes)('retainOverruled: %s', (retain) => {
    fc.assert(law((retainOverruled) => fresh({ retainOverruled }), retain));
  });
});
