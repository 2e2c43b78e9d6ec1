import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { KeyQueue } from '../../../src/datapath/linux/key-queue.ts';

type Step = { readonly add: string; readonly order: number } | { readonly take: 'lowest' | 'highest' };

/** A list of waiting keys without duplicates, which is scanned for the next one. */
class NaiveQueue {
  #waiting: (readonly [order: number, key: string])[] = [];

  get size(): number {
    return this.#waiting.length;
  }

  add(order: number, key: string): void {
    if (!this.#waiting.some(([, one]) => one === key)) this.#waiting.push([order, key]);
  }

  take(first: 'lowest' | 'highest'): string | undefined {
    const orders = this.#waiting.map(([order]) => order);
    const wanted = first === 'lowest' ? Math.min(...orders) : Math.max(...orders);
    const next = this.#waiting.find(([order]) => order === wanted);
    this.#waiting = this.#waiting.filter((one) => one !== next);
    return next?.[1];
  }
}

const STEP: fc.Arbitrary<Step> = fc.oneof(
  fc.constantFrom(...'abcdef').map((add) => ({ add, order: add.charCodeAt(0) % 3 })),
  fc.constantFrom('highest' as const, 'lowest' as const).map((take) => ({ take })),
);

describe('a queue of keys', () => {
  it('returns the same keys as a list: a key that was added again while others were taken is returned once', () => {
    fc.assert(
      fc.property(fc.array(STEP, { maxLength: 60, size: 'max' }), (steps) => {
        const queue = new KeyQueue();
        const naive = new NaiveQueue();
        for (const step of steps) {
          if ('take' in step) expect(queue.shift(step.take)).toBe(naive.take(step.take));
          else {
            queue.add(step.order, step.add);
            naive.add(step.order, step.add);
          }
          expect(queue.size).toBe(naive.size);
        }
      }),
      { numRuns: 100 },
    );
  });
});
