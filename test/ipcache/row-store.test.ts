import { describe, expect, it } from 'vitest';
import { PAGE_ROWS } from '../../src/columns/int32-rows.ts';
import { FLAG } from '../../src/ipcache/row-reader.ts';
import { RowStore } from '../../src/ipcache/row-store.ts';
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

function fill(rows: RowStore, slot: number, claim: Claim): void {
  rows.fill(slot, claim, rows.hosts.resolve(claim.hostIP));
}

/** Three rows with nothing in common. */
function threeRows(): RowStore {
  const rows = new RowStore(new MapPrefixTable());
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
  ])('are not equal if they differ in %s; their neighbours are', (_, other) => {
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

  it('are not equal if one is shadowed', () => {
    const rows = threeRows();
    const before = rows.fork();
    rows.setFlag(1, FLAG.shadowed, true);
    expect([before.holdsSame(1, rows), rows.holdsSame(1, before), before.hasFlag(1, FLAG.shadowed)]).toEqual([
      false,
      false,
      false,
    ]);
  });

  it('return the values that were stored in them, as entries and as claims', () => {
    const rows = threeRows();
    const { source, owner, ...entry } = CLAIM;
    expect(rows.entry(1)).toEqual(entry);
    expect(rows.claim(1)).toEqual(CLAIM);
    expect(rows.claim(2)).toEqual({
      identity: 2,
      hostIP: undefined,
      encryptKey: 5,
      k8s: undefined,
      source: 'clustermesh',
      owner: 'b',
    });
    expect([source, owner]).toEqual(['k8s', 'a']);
  });

  it('use 12 bytes each, and 8 for their pods', () => {
    const rows = threeRows();
    expect(rows.bytes).toBe(20 * PAGE_ROWS);
  });

  it('keep the object that describes their pod while other claims have equal values', () => {
    const rows = threeRows();
    const host = rows.hosts.resolve(CLAIM.hostIP);
    rows.update(1, { ...CLAIM, identity: 301, k8s: { ...POD } }, host);
    expect(rows.entry(1).k8s).toBe(POD);
    rows.replace(1, { ...CLAIM, owner: 'b', k8s: { ...POD } }, host);
    expect(rows.entry(1).k8s).toBe(POD);
    rows.replace(1, { ...CLAIM, k8s: undefined }, host);
    expect(rows.entry(1).k8s).toBeUndefined();
    const other = { ...POD, podName: 'web-2' };
    rows.update(1, { ...CLAIM, identity: 302, k8s: other }, host);
    expect(rows.entry(1).k8s).toBe(other);
    rows.update(1, { ...CLAIM, k8s: undefined }, host);
    expect(rows.entry(1).k8s).toBeUndefined();
  });

  it('refer to their hosts while they name them', () => {
    const hosts = new MapPrefixTable();
    const rows = new RowStore(hosts);
    const known = (): unknown => [hosts.size, rows.entry(1).hostIP];
    fill(rows, 0, { identity: 1, source: 'k8s' });
    fill(rows, 1, CLAIM);
    for (const hostIP of ['192.0.2.2', '192.0.2.2', undefined, '192.0.2.3']) {
      rows.update(1, { ...CLAIM, hostIP }, rows.hosts.resolve(hostIP));
      expect(known()).toEqual([hostIP === undefined ? 0 : 1, hostIP]);
    }
    for (const hostIP of ['192.0.2.3', '192.0.2.4']) {
      rows.replace(1, { ...CLAIM, hostIP, owner: 'b' }, rows.hosts.resolve(hostIP));
      expect(known()).toEqual([1, hostIP]);
    }
    rows.clear(1);
    expect(hosts.size).toBe(0);
  });

  it('keep their place in the list of an identity if it stays the same', () => {
    const rows = new RowStore(new MapPrefixTable());
    for (const slot of [0, 1, 2]) fill(rows, slot, CLAIM);
    rows.update(1, { ...CLAIM, encryptKey: 9 }, rows.hosts.resolve(CLAIM.hostIP));
    expect([...rows.slotsOfIdentity(300)]).toEqual([2, 1, 0]);
    for (const identity of [301, 300])
      rows.update(1, { ...CLAIM, identity }, rows.hosts.resolve(CLAIM.hostIP));
    expect([...rows.slotsOfIdentity(300)]).toEqual([1, 2, 0]);
  });

  it('are found by their writers, page by page', () => {
    const rows = new RowStore(new MapPrefixTable());
    const end = 3 * PAGE_ROWS;
    for (let slot = 0; slot < end; slot++) {
      fill(rows, slot, { ...CLAIM, owner: slot % 1400 === 500 ? 'a' : `${slot % 80}` });
    }
    const writer = rows.writers.find(CLAIM);
    const found: number[] = [];
    for (let slot = rows.findRowOf(writer, 0, end); slot < end; slot = rows.findRowOf(writer, slot + 1, end))
      found.push(slot);
    expect(found).toEqual([500, 1900]);
    expect(rows.findRowOf(writer, 501, 1900)).toBe(1900);
    expect(rows.findRowOf(writer, 501, 1901)).toBe(1900);
    // A row that was searched in part, or without result for one writer, is searched again for the next.
    for (const slot of found) rows.clear(slot);
    expect(rows.findRowOf(writer, 0, end)).toBe(end);
    expect(rows.findRowOf(rows.writers.find({ source: 'k8s', owner: '7' }), 1000, end)).toBe(1047);
    expect(rows.findRowOf(rows.writers.find({ source: 'k8s', owner: '7' }), 0, end)).toBe(7);
    fill(rows, 500, CLAIM);
    fill(rows, 1200, CLAIM);
    const again = rows.writers.find(CLAIM);
    expect([rows.findRowOf(again, 0, 100), rows.findRowOf(again, 100, 412)]).toEqual([100, 412]);
    expect(rows.findRowOf(again, 0, end)).toBe(500);
    expect(rows.findRowOf(again, 501, end)).toBe(1200);
  });
});
