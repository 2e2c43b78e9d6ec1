import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { addresses, fresh, node } from './support/node-fixtures.ts';
import { apply, history } from './support/operations.ts';

describe('a checkpoint', () => {
  const full = node('a', {
    clusterID: 3,
    addresses: addresses('InternalIP:10.0.0.1', 'CiliumInternalIP:fd00::1'),
    ipv4AllocCIDR: '10.1.0.0/24',
    ipv6AllocCIDR: 'fd01::/64',
    ipv4SecondaryAllocCIDRs: ['10.2.0.0/24'],
    ipv6SecondaryAllocCIDRs: ['fd02::/64'],
    ipv4HealthIP: '10.0.0.2',
    ipv6HealthIP: 'fd00::2',
    ipv4IngressIP: '10.0.0.3',
    ipv6IngressIP: 'fd00::3',
    encryptionKey: 5,
    labels: new Map([
      ['zone', 'a'],
      ['__proto__', 'x'],
    ]),
    annotations: new Map([['note', 'n']]),
    nodeIdentity: 70_000,
    wireguardPubKey: 'key',
    bootID: 'boot',
  });

  it('survives JSON with every field (including labels such as __proto__)', () => {
    const { manager } = fresh();
    manager.nodeUpdated(full);
    const other = fresh();
    const handed = JSON.parse(JSON.stringify(manager.checkpoint()));
    expect(other.manager.restore(handed)).toBe(1);
    const restored = other.manager.get('east/a');
    expect(restored?.source).toBe('restored');
    expect({ ...restored?.toJSON(), source: 'kvstore' }).toEqual(manager.get('east/a')?.toJSON());
  });

  it('omits the local node, which announces itself', () => {
    const { manager } = fresh();
    manager.nodeUpdated(node('me', { source: 'k8s' }));
    manager.nodeUpdated(node('elsewhere', { source: 'local' }));
    manager.nodeUpdated(node('b'));
    expect(manager.checkpoint().nodes.map(({ name }) => name)).toEqual(['b']);
  });

  it('restores nodes before any source announces them, with the weakest source', () => {
    const { manager } = fresh();
    manager.nodeUpdated(node('a', { addresses: addresses('InternalIP:10.0.0.1') }));
    const { manager: later, ipcache } = fresh();
    later.restore(manager.checkpoint());
    expect(ipcache.get('10.0.0.1')).toMatchObject({ source: 'restored', owner: 'east/a' });
    expect(later.nodeUpdated(node('a', { addresses: addresses('InternalIP:10.0.0.2') }))).toBe('applied');
    expect(later.get('east/a')?.source).toBe('kvstore');
  });

  it('that no source has confirmed when a cluster has synced is withdrawn', () => {
    const { manager } = fresh();
    for (const cluster of ['east', 'west']) {
      for (const name of ['a', 'b']) manager.nodeUpdated(node(name, { cluster }));
    }
    const { manager: later } = fresh();
    later.restore(manager.checkpoint());
    later.nodeUpdated(node('a'));
    expect(later.withdraw({ source: 'restored', cluster: 'east' })).toBe(2);
    expect(Array.from(later.nodes(), ({ fullName }) => fullName).sort()).toEqual([
      'east/a',
      'west/a',
      'west/b',
    ]);
  });

  it.each([
    ['no object', null],
    ['another version', { version: 2, nodes: [] }],
    ['no list', { version: 1, nodes: {} }],
  ])('that is %s is rejected and counted', (_, value) => {
    const { manager } = fresh();
    expect(manager.restore(value)).toBe(0);
    expect(manager.status().rejections.byReason['invalid-checkpoint']).toBe(1);
  });

  it('with invalid nodes restores the valid ones; the others are rejected with their field', () => {
    const { manager } = fresh();
    const good = { name: 'a', cluster: 'east' };
    const bad = [
      7,
      { ...good, name: 7 },
      { ...good, cluster: '' },
      { ...good, clusterID: '1' },
      { ...good, addresses: 'x' },
      { ...good, addresses: [{ type: 'InternalIP' }] },
      { ...good, labels: { zone: 7 } },
      { ...good, encryptionKey: 1000 },
    ];
    expect(manager.restore({ version: 1, nodes: [...bad, good] })).toBe(1);
    expect(manager.status().rejections.recent.map(({ field }) => field)).toEqual([
      'node',
      'name',
      'cluster',
      'clusterID',
      'addresses',
      'addresses[0].ip',
      'labels.zone',
      'encryptionKey',
    ]);
  });

  it('restores the same nodes and addresses in a new manager, whatever its history', () => {
    fc.assert(
      fc.property(history, (operations) => {
        const before = fresh();
        for (const operation of operations) {
          if (operation.op !== 'take') apply(before, operation);
        }
        const after = fresh(before.manager.configuration);
        after.manager.restore(JSON.parse(JSON.stringify(before.manager.checkpoint())));
        const remote = [...before.manager.nodes()].filter(({ source }) => source !== 'local');
        expect(after.manager.size).toBe(remote.length);
        for (const known of remote) {
          const restored = after.manager.get(known.fullName);
          expect(restored && { ...restored.toJSON(), source: known.source }).toEqual(known.toJSON());
        }
      }),
    );
  });
});
