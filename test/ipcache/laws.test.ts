import fc from 'fast-check';
import { describe, it } from 'vitest';
import { IPCache } from '../../src/ipcache/ipcache.ts';
import { fewerRuns } from '../base/support/fewer-runs.ts';
import { LAWS } from './support/properties.ts';

describe.each(LAWS)('$name', ({ law, modes }) => {
  it.each(modes)('retainOverruled: %s', (retain) => {
    fc.assert(
      law((retainOverruled) => new IPCache({ retainOverruled }), retain),
      fewerRuns(50),
    );
  });
});
