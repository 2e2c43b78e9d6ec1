import fc from 'fast-check';
import { describe, it } from 'vitest';
import { fewerRuns } from '../base/support/fewer-runs.ts';
import { type Happening, happenings, I9_nothingLostNothingInvented } from './support/reflector-laws.ts';

describe('a reflector under faults', () => {
  it('I9 nothing lost, nothing invented: the delivered state equals a new list, after any faults', async () => {
    await fc.assert(
      fc.asyncProperty(happenings, fc.boolean(), (script, idle) =>
        I9_nothingLostNothingInvented(script, idle),
      ),
      fewerRuns(100),
    );
  });
});

it('lists at a version before the first write (regression: at 0, and later changes were lost with a connection)', () =>
  I9_nothingLostNothingInvented(
    [
      { do: 'write-elsewhere' },
      { do: 'fault', fault: 'cut-after', bytes: 281 },
      { do: 'put', n: 1, shown: true },
      { do: 'put', n: 0, shown: true },
    ],
    false,
  ));

describe('a store that is restored from a backup', () => {
  const settled: Happening = { do: 'pass', ms: 2500 };
  const put = (n: number): Happening => ({ do: 'put', n, shown: true });
  const bookmark: Happening = { do: 'pass', ms: 65_000 };
  it.each<[string, readonly Happening[]]>([
    [
      'before a delete that was the last event (regression: the object that is back was missing)',
      [
        put(0),
        settled,
        put(1),
        settled,
        { do: 'backup' },
        { do: 'delete', n: 0 },
        settled,
        { do: 'restore' },
        settled,
      ],
    ],
    [
      'before a bookmark, and has written other things since under the versions that it covers',
      [
        put(0),
        settled,
        put(1),
        settled,
        { do: 'backup' },
        { do: 'write-elsewhere' },
        bookmark,
        { do: 'restore' },
        put(2),
      ],
    ],
    [
      'before a put, and has put another object under the same version',
      [put(0), settled, { do: 'backup' }, put(1), settled, { do: 'restore' }, put(2), settled],
    ],
  ])('%s', (_, script) => I9_nothingLostNothingInvented(script, true));
});
