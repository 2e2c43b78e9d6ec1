import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { KeyedQueue } from '../../src/base/keyed-queue.ts';
import { growthPerItem } from './support/cpu-time.ts';

const key = fc.integer({ min: 0, max: 9 });
const step = fc.oneof(
  fc.record({ do: fc.constant('set' as const), key }),
  fc.record({ do: fc.constant('delete' as const), key }),
  fc.record({ do: fc.constantFrom('take' as const, 'clear' as const), key }),
);

describe('a queue of keys', () => {
  it('behaves like a map whose first key can be removed', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        const queue = new KeyedQueue<number, number>();
        const model = new Map<number, number>();
        for (const [time, { do: act, key: at }] of steps.entries()) {
          const [first] = model;
          if (act === 'set') {
            queue.set(at, time);
            model.set(at, time);
          } else if (act === 'delete') expect(queue.delete(at)).toBe(model.delete(at));
          else if (act === 'take') {
            expect(queue.shift()).toEqual(first);
            if (first !== undefined) model.delete(first[0]);
          } else {
            queue.clear();
            model.clear();
          }
          expect([...queue]).toEqual([...model]);
          expect([...queue.values()]).toEqual([...model.values()]);
          expect([queue.size, queue.has(at), queue.get(at)]).toEqual([
            model.size,
            model.has(at),
            model.get(at),
          ]);
        }
      }),
      { numRuns: Number(process.env['PROPERTY_RUNS'] ?? 50) },
    );
  });

  it('removes each of 160,000 keys at a constant cost (regression: a new iterator of a Map for each)', async () => {
    const growth = await growthPerItem(10_000, (count) => {
      const queue = new KeyedQueue<number>();
      for (let i = 0; i < count; i++) queue.set(i, undefined);
      for (let i = 0; i < count; i++) queue.shift();
    });
    expect(growth).toBeLessThan(6);
  });
});
