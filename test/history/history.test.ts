import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { history, KEYS } from '../ipcache/support/operations.ts';
import { H4_findsTheLongestPrefix, live, moments, timed } from './support/laws.ts';
import { claimText } from './support/naive-history.ts';

/** Each run reads all keys at all moments, so fewer runs suffice. PROPERTY_RUNS overrides the number. */
const RUNS = process.env['PROPERTY_RUNS'] === undefined ? { numRuns: 60 } : {};

describe.each([true, false])('history, retainOverruled: %s', (retain) => {
  it('H1: gives the claims of every retained moment, as a full copy after each write has them', () => {
    fc.assert(
      fc.property(history, timed, (before, steps) => {
        const lived = live(before, steps, retain);
        const asked = moments(lived).flatMap((at) => KEYS.map((key) => ({ at, key })));
        const texts = asked.map(({ at, key }) => {
          const moment = lived.recorded.at(key, at);
          return `${key} at ${at}: ${moment?.claims.map(claimText)}, ${moment?.certain}`;
        });
        expect(texts).toEqual(
          asked.map(({ at, key }) => `${key} at ${at}: ${lived.naive.claims(at, key)}, true`),
        );
      }),
      RUNS,
    );
  });

  it('H4: finds the longest prefix of every retained moment', () => {
    H4_findsTheLongestPrefix(retain, RUNS);
  });
});
