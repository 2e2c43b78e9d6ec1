import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { IdentityCache } from '../../src/model/identity-cache.ts';
import type { Label, Labels } from '../../src/model/labels.ts';
import type { NumericIdentity } from '../../src/model/numeric-identity.ts';
import { growthPerItem } from '../base/support/cpu-time.ts';

const label: fc.Arbitrary<Label> = fc.record({
  source: fc.constantFrom('k8s', 'reserved'),
  key: fc.constantFrom('app', 'tier'),
  value: fc.constantFrom('a', 'b'),
});
const anyLabels: fc.Arbitrary<Labels> = fc.array(label, { maxLength: 2 });
// Numbers of different lengths, so that their order as texts differs.
const anyIdentity = fc.constantFrom(9, 10, 200).map((id) => id as NumericIdentity);

const step = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({ op: fc.constant('upsert' as const), id: anyIdentity, labels: anyLabels }),
  },
  { weight: 3, arbitrary: fc.record({ op: fc.constant('delete' as const), id: anyIdentity }) },
  { weight: 1, arbitrary: fc.record({ op: fc.constant('clear' as const) }) },
);

/** Returns true if two lists have the same last label of each key. */
function sameLabels(a: Labels, b: Labels): boolean {
  const text = (labels: Labels): string => {
    const last = new Map(labels.map(({ source, key, value }) => [key, [source, value]]));
    return JSON.stringify([last.get('app'), last.get('tier')]);
  };
  return text(a) === text(b);
}

describe('the identities of a cluster', () => {
  it('are delivered to a listener: a replay, then each change once, and the previous labels of a number', () => {
    const cache = new IdentityCache();
    const [web, db] = ['web', 'db'].map((value): Labels => [{ source: 'k8s', key: 'app', value }]);
    const id = (number: number): NumericIdentity => number as NumericIdentity;
    const received: string[] = [];
    const receive =
      (sign: string) =>
      (number: NumericIdentity, labels: Labels): number =>
        received.push(`${sign}${number} ${labels[0]?.value}, now ${cache.lookupByID(number)?.[0]?.value}`);
    cache.upsert(id(1), web ?? []);
    cache.subscribe({ onIdentity: receive('bad'), onIdentityGone: receive('bad') })();
    received.length = 0;
    const unsubscribe = cache.subscribe({ onIdentity: receive('+'), onIdentityGone: receive('-') });
    cache.upsert(id(1), web ?? []);
    cache.upsert(id(1), db ?? []);
    cache.delete(7);
    cache.upsert(id(2), web ?? []);
    cache.delete(1);
    cache.clear();
    unsubscribe();
    cache.upsert(id(3), web ?? []);
    expect(received).toEqual([
      '+1 web, now web',
      '-1 web, now db',
      '+1 db, now db',
      '+2 web, now web',
      '-1 db, now undefined',
      '-2 web, now undefined',
    ]);
  });

  it('are found in few steps, however many have the same labels (regression: one step for each)', () => {
    let compared = 0;
    const cache = new IdentityCache((a, b) => {
      compared++;
      return a - b;
    });
    const labels = [{ source: 'k8s', key: 'app', value: 'a' }];
    const numbers = Array.from({ length: 1000 }, (_, nth) => (nth * 7919) % 1000);
    for (const id of numbers) cache.upsert(id as NumericIdentity, labels);
    expect(compared).toBeLessThan(13 * numbers.length); // log2 of 1000, and the place of the last search
    for (const id of numbers.toSorted((a, b) => a - b)) {
      expect(cache.lookupByLabels(labels)).toBe(id);
      cache.delete(id);
    }
    expect(cache.lookupByLabels(labels)).toBeUndefined();
  });

  it('are deleted in few steps, however many have the same labels (regression: 65,000 took 3 s)', async () => {
    const labels = [{ source: 'k8s', key: 'app', value: 'a' }];
    const growth = await growthPerItem(4_000, (count) => {
      let compared = 0;
      const cache = new IdentityCache((a, b) => {
        compared++;
        return a - b;
      });
      for (let id = 0; id < count; id++) cache.upsert(id as NumericIdentity, labels);
      compared = 0;
      for (let id = count - 1; id > 0; id--) cache.delete(id);
      expect(cache.lookupByLabels(labels)).toBe(0);
      expect(compared).toBeGreaterThan(0);
      expect(compared).toBeLessThan(40 * count);
    });
    expect(growth).toBeLessThan(6);
  });

  it('are found by number and by labels, the smallest number if several have the same labels', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 30 }), anyLabels, (steps, wanted) => {
        const cache = new IdentityCache();
        const model = new Map<number, Labels>();
        for (const each of steps) {
          if (each.op === 'upsert') {
            cache.upsert(each.id, each.labels);
            model.set(each.id, each.labels);
          } else if (each.op === 'delete') {
            expect(cache.delete(each.id)).toBe(model.delete(each.id));
          } else {
            cache.clear();
            model.clear();
          }
          expect(cache.size).toBe(model.size);
          for (const labels of [wanted, ...model.values()]) {
            const ids = [...model].filter(([, other]) => sameLabels(other, labels)).map(([id]) => id);
            const smallest = ids.length === 0 ? undefined : Math.min(...ids);
            expect(cache.lookupByLabels(labels)).toBe(smallest);
          }
        }
        const entries = new Map(cache.entries());
        expect([...entries.keys()].toSorted()).toEqual([...model.keys()].toSorted());
        for (const id of [9, 10, 200, 201]) {
          const [found, expected] = [cache.lookupByID(id), model.get(id)];
          expect(entries.get(id)).toBe(found);
          if (found === undefined || expected === undefined) expect(found).toBe(expected);
          else expect(sameLabels(found, expected)).toBe(true);
        }
      }),
    );
  });
});
