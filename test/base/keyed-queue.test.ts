import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { KeyedQueue, LinkedList, type ListLink } from '../../src/base/keyed-queue.ts';
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

  it('continues an iteration whose loop deletes the current key, or appends to the end', () => {
    const queue = new KeyedQueue<number>();
    for (const each of [1, 2, 3]) queue.set(each, undefined);
    const visited: number[] = [];
    for (const [each] of queue) {
      visited.push(each);
      if (each < 3) queue.delete(each);
      else if (each === 3) queue.set(4, undefined);
    }
    expect(visited).toEqual([1, 2, 3, 4]);
  });

  it('does not visit the last key if it was deleted during the visit of the one before (regression)', () => {
    const queue = new KeyedQueue<number>();
    for (const each of [1, 2]) queue.set(each, undefined);
    const visited: number[] = [];
    for (const [each] of queue) {
      visited.push(each);
      queue.delete(2);
    }
    expect(visited).toEqual([1]);
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

interface Member extends ListLink<Member> {
  readonly name: string;
}

it('removes a member from any place, which then refers to no other (regression: it kept all later ones in memory)', () => {
  for (const removed of [0, 1, 2]) {
    const list = new LinkedList<Member>();
    const members = ['a', 'b', 'c'].map((name): Member => ({ name, previous: undefined, next: undefined }));
    for (const member of members) list.append(member);
    const [taken] = members.splice(removed, 1);
    if (taken !== undefined) list.remove(taken);
    expect([taken?.previous, taken?.next]).toEqual([undefined, undefined]);
    expect([...list]).toEqual(members);
  }
});
