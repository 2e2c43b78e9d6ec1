import { expect, it } from 'vitest';
import { KeyTable } from '../../../src/kvstore/session/key-table.ts';
import { SyncKeys } from '../../../src/kvstore/stores/sync-keys.ts';

it('the row of a deleted key is used again', () => {
  const table = new KeyTable();
  const keys = new SyncKeys(table);
  for (let i = 0; i < 1_000; i++) keys.delete(keys.ensure(`name-${i}`));
  expect([keys.size, table.limit]).toEqual([0, 1]);
});
