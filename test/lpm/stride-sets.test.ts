import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { PAGE_ROWS } from '../../src/columns/int32-rows.ts';
import { StrideSets } from '../../src/lpm/stride-sets.ts';

/**
 * Returns the number of bits behind a number's first one, for the longest of `nets` that is a prefix of
 * `net`; or -1.
 */
function longestOf(nets: Iterable<number>, net: number): number {
  const text = net.toString(2);
  return Math.max(
    -1,
    ...Array.from(nets, (each) => each.toString(2))
      .filter((each) => text.startsWith(each))
      .map((each) => each.length - 1),
  );
}

describe('sets of prefixes that share a stem', () => {
  const net = fc.oneof(fc.integer({ min: 1, max: 511 }), fc.constantFrom(1, 2, 3, 31, 32, 255, 256, 511));

  it('contain the prefixes that were added and not removed, and find the longest around each prefix', () => {
    const step = fc.record({ which: fc.nat(2), net, asked: net, fork: fc.nat(9) });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60, size: 'max' }), (steps) => {
        let sets = new StrideSets();
        const numbers = [0, 0, 0];
        const models = [new Set<number>(), new Set<number>(), new Set<number>()];
        for (const { which, net, asked, fork } of steps) {
          const model = models[which] ?? expect.fail();
          const set = numbers[which] ?? 0;
          if (fork === 0) {
            const before = sets;
            sets = sets.fork();
            before.add(set, net);
          }
          numbers[which] = model.has(net) ? sets.remove(set, net) : sets.add(set, net);
          if (!model.delete(net)) model.add(net);
          models.forEach((each, i) => {
            expect(sets.has(numbers[i] ?? 0, asked)).toBe(each.has(asked));
            expect(sets.longest(numbers[i] ?? 0, asked)).toBe(longestOf(each, asked));
          });
          expect(numbers[which] === 0).toBe(model.size === 0);
        }
      }),
    );
  });

  it('have rows of their own after a fork, which the other one releases', () => {
    const sets = new StrideSets();
    const set = sets.add(sets.add(0, 2), 5);
    const fork = sets.fork();
    sets.remove(sets.remove(set, 2), 5);
    fork.add(fork.add(0, 7), 6);
    expect([2, 5, 6, 7].map((net) => fork.has(set, net))).toEqual([true, true, false, false]);
  });

  it('need no room while they have one prefix, and reuse that of empty sets', () => {
    const sets = new StrideSets();
    for (let net = 1; net < 512; net++) expect(sets.longest(sets.add(0, net), net)).toBeGreaterThanOrEqual(0);
    expect(sets.bytes).toBe(0);
    for (let i = 0; i < 10_000; i++) sets.remove(sets.remove(sets.add(sets.add(0, 2), 5), 2), 5);
    const two = sets.add(sets.add(0, 2), 5);
    expect(sets.bytes).toBe(64 * PAGE_ROWS);
    expect([sets.longest(two, 256), sets.longest(two, 511), sets.longest(two, 5)]).toEqual([1, -1, 2]);
  });
});
