import { expect, it } from 'vitest';
import { cleanAll, cleanTable } from '../../../src/datapath/linux/clean-tables.ts';
import { FakeTable } from './support/fake-table.ts';

it('removes as much as possible, and names the remainder', () => {
  const table = new FakeTable();
  for (let i = 0; i < 600; i++) table.there.set(`k${i}`, 'x');
  table.broken.add('k0').add('k300');
  const { removed, remaining } = cleanAll([() => cleanTable(table)]);
  expect([...table.there.keys()]).toEqual(['k0', 'k300']);
  expect(removed).toHaveLength(598);
  expect(remaining).toEqual(['fake k0: fake: EPERM; fake k300: fake: EPERM']);
});
