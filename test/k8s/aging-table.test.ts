import fc from 'fast-check';
import { expect, it } from 'vitest';
import { AgingTable } from '../../src/k8s/aging-table.ts';
import type { ObjectName } from '../../src/k8s/object-table.ts';

const name = fc.record({ namespace: fc.constantFrom(undefined, 'a'), name: fc.constantFrom('x', 'y', 'z') });
const step = fc.oneof(
  fc.record({ type: fc.constant('set' as const), name, value: fc.nat(9) }),
  fc.record({ type: fc.constant('delete' as const), name }),
  fc.record({ type: fc.constant('age' as const) }),
);

interface Aged {
  readonly text: string;
  readonly value: number;
  readonly old: boolean;
}

const textOf = ({ namespace = '', name: own }: ObjectName): string => `${namespace}/${own}`;
const textsOf = (entries: readonly Aged[]): readonly string[] =>
  entries.map(({ text, value }) => `${text}=${value}`).sort();

it('is a map by namespace and name, and returns entries that were not set since it aged', () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 20 }), (steps) => {
      const table = new AgingTable<number>();
      let model: readonly Aged[] = [];
      for (const one of steps) {
        if (one.type === 'age') {
          table.age();
          model = model.map((entry) => ({ ...entry, old: true }));
        } else {
          const text = textOf(one.name);
          model = model.filter((entry) => entry.text !== text);
          if (one.type === 'delete') table.delete(one.name);
          else {
            table.set(one.name, one.value);
            model = [...model, { text, value: one.value, old: false }];
          }
          expect(table.get(one.name)).toBe(model.find((entry) => entry.text === text)?.value);
        }
        expect(table.size).toBe(model.length);
        const old = [...table.oldEntries()].map(([of, value]) => ({ text: textOf(of), value, old: true }));
        expect(textsOf(old)).toEqual(textsOf(model.filter((entry) => entry.old)));
        for (const { text, value } of model) {
          const [namespace, own = ''] = text.split('/');
          expect(table.get({ namespace, name: own })).toBe(value);
        }
      }
    }),
  );
});

it('allows old entries to be deleted, or set, during an iteration', () => {
  const table = new AgingTable<number>();
  for (const own of ['x', 'y', 'z']) table.set({ name: own }, 1);
  table.age();
  const seen: string[] = [];
  for (const [of] of table.oldEntries()) {
    seen.push(of.name);
    table.delete(of);
    table.set({ name: 'z' }, 2);
  }
  expect(seen).toEqual(['x', 'y']);
  expect(table.size).toBe(1);
});
