import { expect, it } from 'vitest';
import { KeyTable } from '../../../src/kvstore/session/key-table.ts';
import { bytesOf } from '../../../src/kvstore/session/wire-key-value.ts';
import { PENDING, SyncKeys, WANTED } from '../../../src/kvstore/stores/sync-keys.ts';

it('the row of a deleted key is used again', () => {
  const table = new KeyTable();
  const keys = new SyncKeys(table, 'p/');
  for (let i = 0; i < 1_000; i++) keys.delete(keys.ensure(`name-${i}`));
  expect([keys.size, table.limit]).toEqual([0, 1]);
});

it('a name in a row that is used again has neither the states nor the value of the deleted name', () => {
  const keys = new SyncKeys(new KeyTable(), 'p/');
  const row = keys.ensure('deleted');
  keys.want(row, 'value');
  keys.update(row, 0, PENDING);
  keys.awaitEcho(row, 7);
  keys.delete(row);
  const reused = keys.ensure('new');
  expect(reused).toBe(row);
  expect([keys.is(row, WANTED | PENDING), keys.wantedAt(row), keys.echoOf(row)]).toEqual([
    false,
    undefined,
    undefined,
  ]);
});

it('the number of puts before an awaited event may exceed 32 bits', () => {
  const keys = new SyncKeys(new KeyTable(), 'p/');
  const row = keys.ensure('name');
  keys.awaitEcho(row, 7);
  expect([2 ** 32 - 1, 2 ** 32, 2 ** 32 + 1].map((puts) => keys.isEchoBefore(row, puts))).toEqual([
    false,
    false,
    true,
  ]);
});

it('a visit frees the rows of keys that only an ended watch knew', () => {
  const table = new KeyTable();
  const keys = new SyncKeys(table, 'p/');
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
