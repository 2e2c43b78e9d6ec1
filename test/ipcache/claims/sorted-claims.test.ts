import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  claimOf,
  listOf,
  type SortedClaims,
  withClaim,
  withoutClaim,
} from '../../../src/ipcache/claims/sorted-claims.ts';
import { IPCache } from '../../../src/ipcache/ipcache.ts';
import type { ClaimWriter } from '../../../src/ipcache/types.ts';
import { compareWriters } from '../../../src/model/source.ts';
import { growthPerItem } from '../../base/support/cpu-time.ts';

interface Claim extends ClaimWriter {
  readonly value: number;
}

describe('sorted claims', () => {
  it('are those of a list that is sorted after each change, and earlier ones do not change', () => {
    const owner = fc.integer({ min: 0, max: 999 }).map(String);
    const source = fc.constantFrom('kvstore' as const, 'generated' as const);
    const change = fc.record({ source, owner, isDelete: fc.boolean() });
    fc.assert(
      fc.property(fc.array(change, { minLength: 500, maxLength: 1000, size: 'max' }), (changes) => {
        let claims: SortedClaims<Claim> = [];
        let naive: Claim[] = [];
        const earlier: (readonly [SortedClaims<Claim>, readonly Claim[]])[] = [];
        changes.forEach(({ isDelete, ...writer }, value) => {
          const known = naive.find((claim) => compareWriters(claim, writer) === 0);
          expect(claimOf(claims, writer)).toBe(known);
          naive = naive.filter((claim) => claim !== known);
          if (!isDelete || known === undefined) {
            const claim = { ...writer, value };
            naive = [...naive, claim].sort(compareWriters);
            claims = withClaim(claims, claim);
          } else claims = withoutClaim(claims, writer);
          if (value % 100 === 0) earlier.push([claims, naive]);
        });
        for (const [then, list] of [...earlier, [claims, naive] as const]) expect(listOf(then)).toEqual(list);
        for (const claim of naive) {
          expect(claims.every((block) => block.length > 0)).toBe(true);
          claims = withoutClaim(claims, claim);
        }
        expect(claims).toEqual([]);
      }),
      { numRuns: 20 },
    );
  });

  it.each([
    ['waiting', 1],
    ['overruled', undefined],
  ])(
    '%s: a change of one of 64,000 on a key costs the same (regression: it copied all)',
    async (_, maxEntries) => {
      const growth = await growthPerItem(4000, (count) => {
        const cache = new IPCache({ maxEntries });
        cache.upsert('10.0.0.1', { source: 'kvstore', identity: 1 });
        for (let at = 0; at < count; at++)
          cache.upsert('10.0.0.2', { source: 'kvstore', owner: `${at}`, identity: 2 });
        for (let at = 0; at < count; at++) cache.delete('10.0.0.2', { source: 'kvstore', owner: `${at}` });
      });
      expect(growth).toBeLessThan(6);
    },
  );
});
