import { describe, expect, it } from 'vitest';
import type { NodeSpec } from '../../src/nodemanager/node-spec.ts';
import { growthPerItem } from '../base/support/cpu-time.ts';
import { fresh, node } from './support/node-fixtures.ts';

/** A node of 1.3 MB, near the maximum size of a value in etcd. */
const COUNT = 32_000;

const ip = (index: number): string => `10.${index >> 16}.${(index >> 8) & 255}.${index & 255}`;

function manyAddresses(from = 0, count = COUNT): NonNullable<NodeSpec['addresses']> {
  return Array.from({ length: count }, (_, index) => ({ type: 'InternalIP', ip: ip(from + index) }));
}

describe.each([true, false])('a node with many addresses (retainOverruled: %s)', (retainOverruled) => {
  it('costs time linear in its addresses: to add, change, move and delete', async () => {
    const growth = await growthPerItem(COUNT / 64, (count) => {
      const { manager, ipcache } = fresh({ retainOverruled });
      manager.nodeUpdated(node('a', { addresses: manyAddresses(0, count) }));
      manager.nodeUpdated(node('a', { addresses: manyAddresses(0, count), encryptionKey: 3 }));
      manager.nodeUpdated(node('a', { addresses: manyAddresses(1_000, count) }));
      expect(ipcache.size).toBe(count);
      expect(ipcache.get(ip(999))).toBeUndefined();
      manager.nodeDeleted(node('a'));
      expect(ipcache.size).toBe(0);
    });
    expect(growth).toBeLessThan(6);
  });

  it('costs time linear in its addresses while a stronger source claims and releases all of them', async () => {
    const stronger = { source: 'kvstore', owner: 'other' } as const;
    const growth = await growthPerItem(COUNT / 64, (count) => {
      const { manager, ipcache } = fresh({ retainOverruled });
      manager.nodeUpdated(node('a', { addresses: manyAddresses(0, count), source: 'clustermesh' }));
      ipcache.batch(() => {
        for (let i = 0; i < count; i++) ipcache.upsert(ip(i), { ...stronger, identity: 77 });
      });
      expect(ipcache.get(ip(5))?.identity).toBe(77);
      ipcache.batch(() => {
        for (let i = 0; i < count; i++) ipcache.delete(ip(i), stronger);
      });
      expect(ipcache.get(ip(5))).toMatchObject({ owner: 'east/a', source: 'clustermesh' });
      expect(ipcache.size).toBe(count);
    });
    expect(growth).toBeLessThan(6);
  });

  it('keeps the last claim on an address that it lists twice, at the position of the first', () => {
    const { manager, ipcache } = fresh({ retainOverruled });
    const addresses = [...manyAddresses(), { type: 'CiliumInternalIP', ip: ip(7) }];
    manager.nodeUpdated(node('a', { addresses, encryptionKey: 9 }));
    expect(ipcache.get(ip(7))?.encryptKey).toBe(9);
    expect(ipcache.get(ip(8))?.encryptKey).toBe(0);
    expect(ipcache.size).toBe(COUNT);
  });
});

it('nodes that all claim one address cost time linear in their number: to add and to delete', async () => {
  const growth = await growthPerItem(128, (count) => {
    const { manager, ipcache } = fresh();
    const names = Array.from({ length: count }, (_, index) => `n${String(index).padStart(6, '0')}`);
    const addresses = manyAddresses(0, 1);
    for (const name of names) manager.nodeUpdated(node(name, { addresses, source: 'clustermesh' }));
    for (const name of names) {
      expect(ipcache.get(ip(0))?.owner).toBe(`east/${name}`);
      manager.nodeDeleted(node(name, { source: 'clustermesh' }));
    }
    expect(ipcache.size).toBe(0);
  });
  expect(growth).toBeLessThan(6);
});

it('nodes that claim one address in a cache of one claim per key are added without a review of all losers (freeze: 8,000 nodes took 40 s)', async () => {
  const growth = await growthPerItem(64, (count) => {
    const { manager, ipcache } = fresh({ retainOverruled: false });
    const addresses = manyAddresses(0, 1);
    for (let i = 0; i < count; i++) manager.nodeUpdated(node(`n${i}`, { addresses }));
    expect(ipcache.get(ip(0))?.owner).toBe(`east/n${count - 1}`);
  });
  expect(growth).toBeLessThan(6);
});
