import { expect, it } from 'vitest';
import { KeyTable } from '../../../src/kvstore/session/key-table.ts';
import { rowOf, TableEvent } from '../../../src/kvstore/session/table-event.ts';
import { bytesOf } from '../../../src/kvstore/session/wire-key-value.ts';

it('finds the row of a key, also if the row of its event belongs to another key by now', () => {
  const keys = new KeyTable();
  const value = new Uint8Array(0);
  const add = (key: string): TableEvent => {
    const kv = { key, value, modRevision: 1 };
    return new TableEvent('create', kv, keys.add(bytesOf(kv), 'p/'.length));
  };
  const [a, b] = [add('p/a'), add('p/b')];
  keys.forget(a.row);
  const c = add('p/c');
  expect(c.row).toBe(a.row);
  const deleted = { type: 'delete', key: 'p/b', value, modRevision: 2 } as const;
  expect([a, b, c, deleted].map((event) => rowOf(event, keys, 'p/'.length))).toEqual([
    -1,
    b.row,
    c.row,
    b.row,
  ]);
});
