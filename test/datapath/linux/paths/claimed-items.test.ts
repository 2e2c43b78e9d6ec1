import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ClaimedItems } from '../../../../src/datapath/linux/paths/claimed-items.ts';
import { compareWriters, type Source } from '../../../../src/model/source.ts';
import { growthPerItem } from '../../../base/support/cpu-time.ts';

const KEYS = ['a', 'b', 'c'] as const;
const OWNERS = ['n1', 'n2', 'n3'] as const;

const step = fc.record({
  owner: fc.constantFrom(...OWNERS),
  source: fc.constantFrom<Source>('kvstore', 'k8s', 'clustermesh', 'custom-resource'),
  keys: fc.subarray([...KEYS]),
  item: fc.nat(3),
});

describe('items that several owners claim', () => {
  it('are those of the strongest source, then of the first name, after any replacements (naive model)', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 12 }), (steps) => {
        const claimed = new ClaimedItems<number>();
        const model = new Map<string, { owner: string; source: Source; items: Map<string, number> }>();
        for (const { owner, source, keys, item } of steps) {
          const items = new Map(keys.map((key) => [key, item]));
          const before = model.get(owner)?.items ?? new Map<string, number>();
          expect([...claimed.replace({ owner, source }, items)].sort()).toEqual(
            [...new Set([...before.keys(), ...keys])].sort(),
          );
          model.set(owner, { owner, source, items });
          const expected: [string, number][] = [];
          for (const key of KEYS) {
            const [first] = [...model.values()].filter((one) => one.items.has(key)).sort(compareWriters);
            expect(claimed.get(key)).toBe(first?.items.get(key));
            if (first === undefined) continue;
            expected.push([key, first.items.get(key) ?? -1]);
          }
          expect(new Map(claimed.entries())).toEqual(new Map(expected));
          expect(claimed.size).toBe(expected.length);
        }
      }),
    );
  });

  it('costs the same for each of many owners of one key (regression: each node searched all owners of the tunnel)', async () => {
    const growth = await growthPerItem(256, (count) => {
      const claimed = new ClaimedItems<number>();
      const nodes = Array.from({ length: count }, (_, at) => `c1/n${at}`);
      const change = (owner: string, items: ReadonlyMap<string, number>): void => {
        for (const key of claimed.replace({ owner, source: 'kvstore' }, items)) claimed.get(key);
      };
      for (const [at, node] of nodes.entries()) change(node, new Map([['tunnel', at]]));
      for (const node of nodes) change(node, new Map());
      expect(claimed.size).toBe(0);
    });
    expect(growth).toBeLessThan(6);
  });
});
