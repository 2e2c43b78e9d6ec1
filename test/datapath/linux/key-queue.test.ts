import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { KeyQueue } from '../../../src/datapath/linux/key-queue.ts';
import { growthPerItem } from '../../base/support/cpu-time.ts';

type Step =
  | { readonly do: 'set'; readonly key: string; readonly rank: number }
  | { readonly do: 'delete'; readonly key: string }
  | { readonly do: 'shift' };

/** A list of keys without duplicates, which is scanned for the first one. */
class NaiveQueue {
  waiting: { readonly key: string; readonly rank: number }[] = [];

  set(key: string, rank: number): void {
    if (this.waiting.some((one) => one.key === key && one.rank === rank)) return;
    this.delete(key);
    this.waiting.push({ key, rank });
  }

  delete(key: string): boolean {
    const { length } = this.waiting;
    this.waiting = this.waiting.filter((one) => one.key !== key);
    return this.waiting.length < length;
  }

  first(first: 'lowest' | 'highest'): { readonly key: string; readonly rank: number } | undefined {
    const ranks = this.waiting.map(({ rank }) => rank);
    const wanted = first === 'lowest' ? Math.min(...ranks) : Math.max(...ranks);
    return this.waiting.find(({ rank }) => rank === wanted);
  }
}

const KEY = fc.constantFrom(...'abcdef');
const STEP: fc.Arbitrary<Step> = fc.oneof(
  fc.record({ do: fc.constant('set' as const), key: KEY, rank: fc.integer({ min: 0, max: 2 }) }),
  fc.record({ do: fc.constant('delete' as const), key: KEY }),
  fc.constant({ do: 'shift' as const }),
);

describe.each(['lowest', 'highest'] as const)('a queue of keys with the %s rank first', (first) => {
  it('returns the same keys as a list, whatever is set and deleted meanwhile', () => {
    fc.assert(
      fc.property(fc.array(STEP, { maxLength: 60, size: 'max' }), (steps) => {
        const queue = new KeyQueue(first);
        const naive = new NaiveQueue();
        for (const step of steps) {
          if (step.do === 'set') {
            queue.set(step.key, step.rank);
            naive.set(step.key, step.rank);
          } else if (step.do === 'delete') expect(queue.delete(step.key)).toBe(naive.delete(step.key));
          else {
            const key = naive.first(first)?.key;
            expect(queue.shift()).toBe(key);
            if (key !== undefined) naive.delete(key);
          }
          const { key, rank } = queue.first() ?? {};
          expect({ key, rank }).toEqual({ key: undefined, rank: undefined, ...naive.first(first) });
          expect(queue.size).toBe(naive.waiting.length);
          for (const one of 'abcdef')
            expect(queue.has(one)).toBe(naive.waiting.some(({ key: queued }) => queued === one));
        }
      }),
      { numRuns: 100 },
    );
  });

  it('finds them at a constant cost if the first rank alternates (regression: each search read all keys)', async () => {
    const growth = await growthPerItem(300, (items) => {
      const keys = new KeyQueue(first);
      for (let n = 0; n < items; n++) keys.set(`key${n}`, 5);
      for (let n = 0; n < items; n++) {
        keys.set(`new${n}`, first === 'lowest' ? n % 2 : 10 - (n % 2));
        keys.first();
        keys.delete(`new${n}`);
      }
    });
    expect(growth).toBeLessThan(6);
  }, 60_000);
});
