import { describe, expect, it } from 'vitest';
import { backendsText, nodeChangeText, nodeText, prefixChangeText } from '../../src/client/change-text.ts';
import type { IPCacheEntry } from '../../src/ipcache/types.ts';
import { Node } from '../../src/nodemanager/node.ts';
import type { NodeFields } from '../../src/nodemanager/node-spec.ts';

const FIELDS: NodeFields = {
  cluster: 'far',
  name: 'n1',
  source: 'k8s',
  clusterID: 2,
  addresses: [
    { type: 'InternalIP', ip: '1.1.1.1' },
    { type: 'ExternalIP', ip: '2.2.2.2' },
  ],
  ipv4AllocCIDR: undefined,
  ipv6AllocCIDR: undefined,
  ipv4SecondaryAllocCIDRs: [],
  ipv6SecondaryAllocCIDRs: [],
  ipv4HealthIP: undefined,
  ipv6HealthIP: undefined,
  ipv4IngressIP: undefined,
  ipv6IngressIP: undefined,
  encryptionKey: 0,
  labels: new Map(),
  annotations: new Map(),
  nodeIdentity: 6,
  wireguardPubKey: '',
  bootID: '',
};

const node = (changes: Partial<NodeFields> = {}): Node => new Node({ ...FIELDS, ...changes });

describe('a change of a node', () => {
  it.each<[Partial<NodeFields>, string]>([
    [{ encryptionKey: 3 }, 'key 0 → 3'],
    [{ ipv4AllocCIDR: '10.0.0.0/24' }, 'IPv4 pods none → 10.0.0.0/24'],
    [{ ipv6AllocCIDR: 'fd00::/64' }, 'IPv6 pods none → fd00::/64'],
    [{ ipv4HealthIP: '1.1.1.2' }, 'IPv4 health none → 1.1.1.2'],
    [{ ipv6HealthIP: 'fd00::2' }, 'IPv6 health none → fd00::2'],
    [{ ipv4IngressIP: '1.1.1.3' }, 'IPv4 ingress none → 1.1.1.3'],
    [{ ipv6IngressIP: 'fd00::3' }, 'IPv6 ingress none → fd00::3'],
    [{ wireguardPubKey: 'wg' }, 'WireGuard key  → wg'],
    [{ source: 'kvstore' }, 'source k8s → kvstore'],
    [{ bootID: 'b' }, 'boot  → b'],
    [{ labels: new Map([['a', 'b']]) }, 'labels or other attributes'],
    [{ addresses: [{ type: 'ExternalIP', ip: '2.2.2.2' }] }, 'InternalIP 1.1.1.1 → none'],
    [
      {
        addresses: [
          { type: 'InternalIP', ip: '1.1.1.9' },
          { type: 'InternalIP', ip: '1.1.1.8' },
          { type: 'ExternalIP', ip: '2.2.2.2' },
        ],
        encryptionKey: 1,
      },
      'InternalIP 1.1.1.1 → 1.1.1.9 1.1.1.8, key 0 → 1',
    ],
    [
      { addresses: [...FIELDS.addresses, { type: 'ExternalIP', ip: '1.1.1.1' }] },
      'ExternalIP none → 1.1.1.1',
    ],
  ])('%j is %s', (changes, detail) => {
    const expected = { sign: '~', kind: 'node', subject: 'far/n1', detail };
    expect(nodeChangeText(node(), node(changes))).toEqual(expected);
  });

  it('is an addition or a deletion with its addresses', () => {
    expect(nodeChangeText(undefined, node())).toEqual({
      sign: '+',
      kind: 'node',
      subject: 'far/n1',
      detail: '1.1.1.1',
    });
    expect(nodeChangeText(node({ encryptionKey: 2 }), undefined)).toEqual({
      sign: '-',
      kind: 'node',
      subject: 'far/n1',
      detail: '1.1.1.1, key 2',
    });
  });
});

it('a node has its internal addresses, else all, and its pod CIDRs', () => {
  expect(nodeText(node({ addresses: [] }).fields)).toBe('no address');
  const external = [{ type: 'ExternalIP', ip: '2.2.2.2' }] as const;
  expect(nodeText(node({ addresses: external, source: 'restored' }).fields)).toBe('2.2.2.2, restored');
  const pods = {
    ipv4AllocCIDR: '10.0.0.0/24',
    ipv6AllocCIDR: 'fd00::/64',
    ipv4SecondaryAllocCIDRs: ['10.0.1.0/24'],
    ipv6SecondaryAllocCIDRs: ['fd01::/64'],
  };
  expect(nodeText(node(pods).fields)).toBe('1.1.1.1, pods 10.0.0.0/24 fd00::/64 10.0.1.0/24 fd01::/64');
});

type Fields = Readonly<Record<string, unknown>>;

describe('a change of a prefix', () => {
  const names = (identity: number): string | undefined => (identity === 300 ? 'app=web' : undefined);
  const entry = (changes: Fields = {}): IPCacheEntry =>
    ({
      identity: 300,
      source: 'k8s',
      owner: '',
      hostIP: undefined,
      encryptKey: 0,
      k8s: undefined,
      ...changes,
    }) as unknown as IPCacheEntry;
  const pod = { namespace: 'shop', podName: 'cart', serviceAccount: '', namedPorts: {} };
  const text = (old: IPCacheEntry | undefined, now: IPCacheEntry | undefined, source = 'k8s'): object =>
    prefixChangeText({ old, new: now, prefix: '10.0.0.1/32' } as never, names, source as never);

  it.each<[Fields, string]>([
    [{ k8s: pod }, 'pod none → shop/cart'],
    [{ identity: 400 }, 'identity 300 (app=web) → 400'],
    [{ identity: 2 }, 'identity 300 (app=web) → world'],
    [{ hostIP: '1.1.1.1' }, 'host none → 1.1.1.1'],
    [{ encryptKey: 3 }, 'key 0 → 3'],
    [{ hostIP: '1.1.1.1', encryptKey: 3 }, 'host none → 1.1.1.1, key 0 → 3'],
    [{}, 'named ports'],
  ])('%j is %s', (changes, detail) => {
    const expected = { sign: '~', kind: 'ip', subject: '10.0.0.1/32', detail };
    expect(text(entry(), entry(changes))).toEqual(expected);
  });

  it('names another service account', () => {
    const before = entry({ k8s: pod });
    const after = entry({ k8s: { ...pod, serviceAccount: 'sa' } });
    expect(text(before, after)).toMatchObject({ detail: 'service account none → sa' });
  });

  it('is an addition or a deletion with the whole entry', () => {
    const whole = entry({ k8s: pod, hostIP: '1.1.1.1', encryptKey: 3 });
    const detail = 'pod shop/cart, identity 300 (app=web), on 1.1.1.1, key 3';
    expect(text(undefined, whole)).toMatchObject({ sign: '+', detail });
    expect(text(whole, undefined)).toMatchObject({ sign: '-', detail });
    expect(text(undefined, whole, 'restored')).toMatchObject({ detail: `${detail}, restored` });
  });
});

it('backends are counted by cluster, the local ones first', () => {
  expect(backendsText([{ cluster: 'b' }, {}, { cluster: 'a' }, { cluster: 'b' }])).toBe(
    '4 backends (1 local, 1 a, 2 b)',
  );
});
