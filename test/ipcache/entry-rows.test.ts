import { describe, expect, it } from 'vitest';
import { PAGE_ROWS } from '../../src/base/int32-rows.ts';
import { FLAG } from '../../src/ipcache/entry-reader.ts';
import { EntryRows } from '../../src/ipcache/entry-rows.ts';
import type { Claim } from '../../src/ipcache/types.ts';
import { MapPrefixTable } from '../net/support/map-prefix-table.ts';

const POD = { namespace: 'shop', podName: 'web-1' };
const CLAIM: Claim = {
  identity: 300,
  hostIP: '192.0.2.1',
  encryptKey: 3,
  k8s: POD,
  source: 'k8s',
  owner: 'a',
};

function fill(rows: EntryRows, slot: number, claim: Claim): void {
  rows.fill(slot, claim, rows.hosts.resolve(claim.hostIP));
}

/** Three rows with nothing in common. */
function threeRows(): EntryRows {
  const rows = new EntryRows(new MapPrefixTable());
  fill(rows, 0, { identity: 1, hostIP: '192.0.2.7', source: 'kvstore' });
  fill(rows, 1, CLAIM);
  fill(rows, 2, { identity: 2, encryptKey: 5, source: 'clustermesh', owner: 'b' });
  return rows;
}

describe('rows of entries', () => {
  it.each<[string, Partial<Claim>]>([
    ['identity', { identity: 301 }],
    ['host', { hostIP: '192.0.2.2' }],
    ['host that takes the number of the one before', { hostIP: '192.0.2.3' }],
    ['key', { encryptKey: 4 }],
    ['pod', { k8s: { ...POD } }],
  ])('are not said to be the same when they have another %s, those beside them are', (_, other) => {
    const rows = threeRows();
    const before = rows.fork();
    rows.clear(1);
    fill(rows, 1, { ...CLAIM, ...other });
    expect([0, 1, 2].map((slot) => before.holdsSame(slot, rows))).toEqual([true, false, true]);
    expect([0, 1, 2].map((slot) => rows.holdsSame(slot, before))).toEqual([true, false, true]);
    rows.clear(1);
    fill(rows, 1, CLAIM);
    expect([0, 1, 2].map((slot) => before.holdsSame(slot, rows))).toEqual([true, true, true]);
  });

  it('are not said to be the same when one is shadowed', () => {
    const rows = threeRows();
    const before = rows.fork();
    rows.mark(1, FLAG.shadowed, true);
    expect([before.holdsSame(1, rows), rows.holdsSame(1, before), before.has(1, FLAG.shadowed)]).toEqual([
      false,
      false,
      false,
    ]);
  });

  it('give back what was put in them, as entries and as claims', () => {
    const rows = threeRows();
    const { source, owner, ...entry } = CLAIM;
    expect(rows.entry(1)).toEqual(entry);
    expect(rows.claim(1)).toEqual(CLAIM);
    expect(rows.claim(2)).toEqual({
      ...{ identity: 2, hostIP: undefined, encryptKey: 5, k8s: undefined },
      ...{ source: 'clustermesh', owner: 'b' },
    });
    expect([source, owner]).toEqual(['k8s', 'a']);
  });

  it('take 20 bytes each, and 8 for their pods', () => {
    const rows = threeRows();
    expect(rows.bytes).toBe(28 * PAGE_ROWS);
  });

  it('are found by their writers, page by page', () => {
    const rows = new EntryRows(new MapPrefixTable());
    const end = 3 * PAGE_ROWS;
    for (let slot = 0; slot < end; slot++) {
      fill(rows, slot, { ...CLAIM, owner: slot % 700 === 500 ? 'a' : `${slot % 80}` });
    }
    const writer = rows.writers.find(CLAIM);
    const found: number[] = [];
    for (
      let slot = rows.findWriter(writer, 0, end);
      slot < end;
      slot = rows.findWriter(writer, slot + 1, end)
    )
      found.push(slot);
    expect(found).toEqual([500, 1200]);
    expect(rows.findWriter(writer, 501, 1200)).toBe(1200);
    expect(rows.findWriter(writer, 501, 1201)).toBe(1200);
    for (const slot of found) rows.clear(slot);
    expect(rows.findWriter(writer, 0, end)).toBe(end);
    fill(rows, 1200, CLAIM);
    expect(rows.findWriter(rows.writers.find(CLAIM), 0, end)).toBe(1200);
  });
});
