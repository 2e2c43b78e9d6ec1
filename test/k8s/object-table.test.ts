import fc from 'fast-check';
import { expect, it } from 'vitest';
import { type ObjectName, ObjectTable } from '../../src/k8s/object-table.ts';

const name = fc.record({
  namespace: fc.constantFrom(undefined, 'a', 'a/b'),
  name: fc.constantFrom('x', 'b/x', 'y'),
});
const step = fc.oneof(
  fc.record({ type: fc.constant('set' as const), name, value: fc.nat(9) }),
  fc.record({ type: fc.constant('delete' as const), name }),
);

it('is a map by namespace and name', () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 20 }), (steps) => {
      const table = new ObjectTable<number>();
      let model: { readonly text: string; readonly value: number }[] = [];
      const text = (of: ObjectName): string => JSON.stringify([of.namespace ?? '', of.name]);
      for (const one of steps) {
        model = model.filter((other) => other.text !== text(one.name));
        if (one.type === 'set') {
          table.set(one.name, one.value);
          model.push({ text: text(one.name), value: one.value });
          expect(table.get(one.name)).toBe(one.value);
        } else {
          table.delete(one.name);
          expect(table.get(one.name)).toBeUndefined();
        }
        expect(table.size).toBe(model.length);
        const all = [...table.entries()].map(([of, value]) => ({ text: text(of), value }));
        const sorted = (list: typeof all): typeof all => list.sort((a, b) => (a.text < b.text ? -1 : 1));
        expect(sorted(all)).toEqual(sorted([...model]));
      }
    }),
  );
});

it('allows its entries to be deleted during an iteration', () => {
  const table = new ObjectTable<number>();
  for (const namespace of ['a', 'b']) for (const one of ['x', 'y']) table.set({ namespace, name: one }, 1);
  const seen: string[] = [];
  for (const [of] of table.entries()) {
    seen.push(`${of.namespace}/${of.name}`);
    table.delete(of);
  }
  expect(seen).toEqual(['a/x', 'a/y', 'b/x', 'b/y']);
  expect(table.size).toBe(0);
});
