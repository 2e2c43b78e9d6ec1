import { describe, expect, it } from 'vitest';
import type { Claim } from '../../src/ipcache/types.ts';
import { addresses, fresh, node } from './support/node-fixtures.ts';

const IP = '10.0.0.1';
const ON_IP = { addresses: addresses(`InternalIP:${IP}`) };
const POD: Claim = { identity: 1000, source: 'kvstore', owner: 'pods' };
const BOTH_MODES = [true, false];

/** A manager with nodes `names` of source k8s, all with the same address. */
function sharing(retainOverruled: boolean, ...names: readonly string[]) {
  const rig = fresh({ retainOverruled });
  for (const name of names) rig.manager.nodeUpdated(node(name, { source: 'k8s', ...ON_IP }));
  const told: string[] = [];
  rig.manager.subscribe({
    nodeAdd: ({ name }) => void told.push(name),
    nodeUpdate: (_, { name }) => void told.push(name),
    nodeDelete: ({ name }) => void told.push(name),
  });
  return {
    ...rig,
    told,
    holder: (): string | undefined => rig.ipcache.get(IP)?.owner,
    lost: (name: string): readonly unknown[] | undefined =>
      rig.manager.explain(`east/${name}`)?.lostAddresses.map(({ ip, holder }) => [ip, holder?.owner]),
  };
}

describe('an address with one slot', () => {
  it('belongs to the last writer of equal rank; the other does not reclaim it', () => {
    const { holder, lost, told } = sharing(false, 'a', 'b');
    expect([holder(), lost('a'), lost('b')]).toEqual(['east/b', [[IP, 'east/b']], []]);
    expect(told, 'an equal one is not waited for').toEqual(['a', 'b']);
  });

  it('is reclaimed by a node that is written again unchanged', () => {
    const { manager, holder } = sharing(false, 'a', 'b');
    expect(manager.nodeUpdated(node('a', { source: 'k8s', ...ON_IP }))).toBe('unchanged');
    expect(holder()).toBe('east/a');
  });

  it.each([
    ['a', 'b'],
    ['b', 'a'],
  ])('goes to the first claimant by name when it is free (%s before %s)', (...names) => {
    const { ipcache, holder, lost } = sharing(false, ...names);
    ipcache.upsert(IP, POD);
    expect([holder(), lost('a'), lost('b')]).toEqual(['pods', [[IP, 'pods']], [[IP, 'pods']]]);
    ipcache.delete(IP, POD);
    expect([holder(), lost('a'), lost('b')]).toEqual(['east/a', [], [[IP, 'east/a']]]);
  });

  it('goes to the remaining claimants when one of them has released it', () => {
    const { manager, ipcache, holder } = sharing(false, 'a', 'b', 'c');
    ipcache.upsert(IP, POD);
    manager.nodeUpdated(node('b', { source: 'k8s' }));
    ipcache.delete(IP, POD);
    expect(holder()).toBe('east/a');
  });

  it('is reclaimed from a weaker source that had it in the meantime', () => {
    const { ipcache, holder, lost } = sharing(false, 'a');
    ipcache.upsert(IP, POD);
    ipcache.batch(() => {
      ipcache.delete(IP, POD);
      ipcache.upsert(IP, { identity: 1, source: 'restored' });
    });
    expect([holder(), lost('a')]).toEqual(['east/a', []]);
  });
});

describe.each(BOTH_MODES)('an address that another one holds (retainOverruled %s)', (retain) => {
  it('stays lost when the source of the node changes', () => {
    const { manager, ipcache, lost } = sharing(retain, 'a');
    ipcache.upsert(IP, POD);
    manager.nodeUpdated(node('a', { source: 'custom-resource', ...ON_IP }));
    expect(lost('a')).toEqual([[IP, 'pods']]);
  });

  it('does not belong to the node if another source holds it under the same name', () => {
    const { manager, ipcache, lost, told } = sharing(retain, 'a');
    ipcache.upsert(IP, { ...POD, owner: 'east/a' });
    manager.nodeUpdated(node('a', { source: 'k8s', ...ON_IP, bootID: '2' }));
    expect(lost('a')).toEqual([[IP, 'east/a']]);
    expect(told).toEqual(['a']);
  });

  it('stays with its owner after the end', () => {
    const { manager, ipcache, holder } = sharing(retain, 'a');
    ipcache.upsert(IP, POD);
    manager.close();
    ipcache.delete(IP, POD);
    expect(holder()).toBe(retain ? 'east/a' : undefined);
    expect(manager.explain('east/a')?.announced?.name).toBe('a');
  });
});

describe('an IPCache without room, including waiting claims,', () => {
  const TWO = { addresses: addresses(`InternalIP:${IP}`, 'InternalIP:10.0.0.2') };

  it('gets an address that it had no room for when the node is announced again', () => {
    const { manager, ipcache } = fresh({}, { maxEntries: 1, maxWaiting: 0 });
    manager.nodeUpdated(node('b', { addresses: addresses('InternalIP:10.0.0.9') }));
    manager.nodeUpdated(node('a', TWO));
    const lost = (): readonly unknown[] | undefined =>
      manager.explain('east/a')?.lostAddresses.map(({ ip, holder }) => [ip, holder]);
    const none = [IP, '10.0.0.2'].map((ip) => [ip, undefined]);
    expect(lost()).toEqual(none);
    manager.configure({ nodeEncryption: true });
    expect(lost()).toEqual(none);
    manager.nodeDeleted({ cluster: 'east', name: 'b', source: 'kvstore' });
    expect(manager.nodeUpdated(node('a', TWO))).toBe('unchanged');
    expect([lost(), ipcache.get(IP)?.owner]).toEqual([[['10.0.0.2', undefined]], 'east/a']);
  });
});

it('the configuration is that of the options, and by default that of a cluster in plain text over IPv4', () => {
  const given = {
    remoteNodeIdentities: false,
    encryption: true,
    nodeEncryption: true,
    hostFirewall: true,
    underlay: 'ipv6',
  } as const;
  expect(fresh(given).manager.configuration).toEqual(given);
  expect(fresh().manager.configuration).toEqual({
    remoteNodeIdentities: true,
    encryption: false,
    nodeEncryption: false,
    hostFirewall: false,
    underlay: 'ipv4',
  });
});

it('a node with many addresses follows changes of the configuration in both directions', () => {
  const { manager, ipcache } = fresh();
  const ips = Array.from({ length: 20 }, (_, i) => `10.0.0.${i + 1}`);
  manager.nodeUpdated(
    node('a', { addresses: addresses(...ips.map((ip) => `InternalIP:${ip}`)), encryptionKey: 3 }),
  );
  const keys = (): readonly unknown[] => [...new Set(ips.map((ip) => ipcache.get(ip)?.encryptKey))];
  expect(keys()).toEqual([0]);
  for (const nodeEncryption of [true, false, true]) {
    manager.configure({ nodeEncryption });
    expect(keys()).toEqual([nodeEncryption ? 3 : 0]);
  }
  manager.nodeDeleted({ cluster: 'east', name: 'a', source: 'kvstore' });
  expect(ipcache.size).toBe(0);
});
