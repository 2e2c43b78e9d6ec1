import { expect, it } from 'vitest';
import { KeyTable } from '../../../src/kvstore/session/key-table.ts';
import { bytesOf } from '../../../src/kvstore/session/wire-key-value.ts';
import { SyncKeys } from '../../../src/kvstore/stores/sync-keys.ts';

it('the row of a deleted key is used again', () => {
  const table = new KeyTable();
  const keys = new SyncKeys(table);
  for (let i = 0; i < 1_000; i++) keys.delete(keys.ensure(`name-${i}`));
  expect([keys.size, table.limit]).toEqual([0, 1]);
});

it('a visit frees the rows of keys that only an ended watch knew', () => {
  const table = new KeyTable();
  const keys = new SyncKeys(table);
  keys.ensure('own');
  table.forgetKnown();
  const foreign = table.add(bytesOf({ key: 'foreign' }), 0);
  table.setVersion(foreign, 5, 0);
  const names = (): (string | undefined)[] => {
    for (const _step of keys.visit(1, () => {}));
    return [table.nameAt(0), table.nameAt(foreign)];
  };
  expect(names()).toEqual(['own', 'foreign']);
  table.forgetKnown();
  expect(names()).toEqual(['own', undefined]);
});
