import { describe, expect, it } from 'vitest';
import type { PrefixDocument } from '../../src/client/state-document.ts';
import type { NodeConfiguration } from '../../src/nodemanager/address-claims.ts';
import { NO_INPUTS, startAgent, type TestKey } from './support/agent-under-test.ts';

const IP = 'cilium/state/ip/v1/default';

function node(cluster: string, name: string, fields: Readonly<Record<string, unknown>>): TestKey {
  return [cluster, `cilium/state/nodes/v1/${cluster}/${name}`, { Name: name, Cluster: cluster, ...fields }];
}

/** With this key, the local cluster is in the mesh. */
const OWN: TestKey = ['own', 'cilium/.heartbeat', '2026-11-20T12:00:00Z'];

const V4 = { Type: 'InternalIP', IP: '192.168.0.1' };
const V4_EXTERNAL = { Type: 'ExternalIP', IP: '203.0.113.1' };
const V4_INSIDE = { Type: 'CiliumInternalIP', IP: '10.0.0.1' };
const V6 = { Type: 'InternalIP', IP: 'fd01::1' };
const V6_INSIDE = { Type: 'CiliumInternalIP', IP: 'fd00::1' };
const DUAL_STACK = node('own', 'n1', {
  IPAddresses: [V4, V4_EXTERNAL, V4_INSIDE, V6, V6_INSIDE],
  IPv4HealthIP: '10.0.0.254',
  IPv6HealthIP: 'fd00::fe',
  IPv4AllocCIDR: { IP: '10.0.0.0', Mask: '////AA==' },
  EncryptionKey: 5,
});

async function ipcacheOf(
  key: TestKey,
  network: Partial<NodeConfiguration> = {},
): Promise<Readonly<Record<string, PrefixDocument>>> {
  const { state } = await startAgent([key], '', { network: { ...NO_INPUTS.network, ...network } });
  return state().ipcache;
}

const remote = (encryptKey: number, hostIP?: string): PrefixDocument => ({
  encryptKey,
  ...(hostIP === undefined ? {} : { hostIP }),
  identity: 6,
});
const host = (encryptKey: number, hostIP?: string): PrefixDocument => ({
  ...remote(encryptKey, hostIP),
  identity: 1,
});
const health = (hostIP?: string): PrefixDocument => ({ ...remote(5, hostIP), identity: 4 });

describe('the addresses of a node', () => {
  const tunnel = '192.168.0.1';

  it('are in the ipcache as remote-node, those inside the tunnel with its endpoint and key', async () => {
    expect(await ipcacheOf(DUAL_STACK)).toEqual({
      '10.0.0.1/32': remote(5, tunnel),
      '10.0.0.254/32': health(tunnel),
      '192.168.0.1/32': remote(0),
      '203.0.113.1/32': remote(0),
      'fd00::1/128': remote(5, tunnel),
      'fd00::fe/128': health(tunnel),
      'fd01::1/128': remote(0),
    });
  });

  it('are only those inside the tunnel, as host, if remote-node identities are disabled', async () => {
    expect(await ipcacheOf(DUAL_STACK, { remoteNodeIdentities: false })).toEqual({
      '10.0.0.1/32': host(5, tunnel),
      '10.0.0.254/32': health(tunnel),
      'fd00::1/128': host(5, tunnel),
      'fd00::fe/128': health(tunnel),
    });
  });

  it('all have the tunnel endpoint with encryption, as host if remote-node identities are disabled', async () => {
    const ipcache = await ipcacheOf(DUAL_STACK, { remoteNodeIdentities: false, encryption: true });
    expect(ipcache['192.168.0.1/32']).toEqual(host(0, tunnel));
    expect(ipcache['fd01::1/128']).toEqual(host(0, tunnel));
    expect(ipcache['10.0.0.1/32']).toEqual(host(5, tunnel));
  });

  it('all have the tunnel endpoint with the host firewall, and the key with node encryption', async () => {
    const ipcache = await ipcacheOf(DUAL_STACK, { hostFirewall: true, nodeEncryption: true });
    expect(ipcache['192.168.0.1/32']).toEqual(remote(5, tunnel));
    expect(ipcache['203.0.113.1/32']).toEqual(remote(5, tunnel));
  });

  it('have no tunnel endpoint on a node without an address of the underlay', async () => {
    const six = node('own', 'n6', {
      IPAddresses: [V6, V6_INSIDE],
      IPv6HealthIP: 'fd00::fe',
      EncryptionKey: 5,
    });
    expect(await ipcacheOf(six)).toEqual({
      'fd00::1/128': remote(5),
      'fd00::fe/128': health(),
      'fd01::1/128': remote(0),
    });
    expect(await ipcacheOf(six, { underlay: 'ipv6' })).toEqual({
      'fd00::1/128': remote(5, 'fd01::1'),
      'fd00::fe/128': health('fd01::1'),
      'fd01::1/128': remote(0),
    });
  });

  it('may be missing; the node is added anyway', async () => {
    const { state } = await startAgent([node('own', 'bare', { IPAddresses: null, ClusterID: 7 })]);
    expect(state()).toEqual({
      ipcache: {},
      nodes: [{ addresses: [], cluster: 'own', clusterID: 7, encryptionKey: 0, name: 'bare' }],
      services: {},
    });
  });
});

describe('an entry of a kvstore', () => {
  it('of a CIDR has the length of its mask, of an IP is the full-length prefix, in both families', async () => {
    const { state } = await startAgent([
      ['own', `${IP}/172.20.0.0/16`, { IP: '172.20.0.0', Mask: '//8AAA==', ID: 300 }],
      ['own', `${IP}/fd02::/64`, { IP: 'fd02::', Mask: '//////////8AAAAAAAAAAA==', ID: 301 }],
      ['own', `${IP}/0.0.0.0/0`, { IP: '0.0.0.0', Mask: 'AAAAAA==', ID: 2 }],
      ['own', `${IP}/fd02::7`, { IP: 'fd02::7', ID: 302, HostIP: '192.168.0.1' }],
    ]);
    expect(state().ipcache).toEqual({
      '0.0.0.0/0': { encryptKey: 0, identity: 2 },
      '172.20.0.0/16': { encryptKey: 0, identity: 300 },
      'fd02::/64': { encryptKey: 0, identity: 301 },
      'fd02::7/128': { encryptKey: 0, hostIP: '192.168.0.1', identity: 302 },
    });
  });

  it('of an IP hides the full-length CIDR of the same address', async () => {
    const { state } = await startAgent([
      ['own', `${IP}/10.0.0.7/32`, { IP: '10.0.0.7', Mask: '/////w==', ID: 300 }],
      ['own', `${IP}/10.0.0.7`, { IP: '10.0.0.7', ID: 301 }],
      ['own', `${IP}/10.0.0.8/32`, { IP: '10.0.0.8', Mask: '/////w==', ID: 302 }],
    ]);
    expect(state().ipcache).toEqual({
      '10.0.0.7/32': { encryptKey: 0, identity: 301 },
      '10.0.0.8/32': { encryptKey: 0, identity: 302 },
    });
  });

  it('has the pod and its named ports of all protocols', async () => {
    const NamedPorts = ['TCP', 'UDP', 'SCTP'].map((Protocol, i) => ({
      Name: `p${2 - i}`,
      Port: 80 + i,
      Protocol,
    }));
    const pod = { K8sNamespace: 'shop', K8sPodName: 'web-1' };
    const { state } = await startAgent([
      [
        'own',
        `${IP}/10.0.0.7`,
        { IP: '10.0.0.7', ID: 300, Key: 3, HostIP: '192.168.0.1', ...pod, NamedPorts },
      ],
      ['own', `${IP}/10.0.0.8`, { IP: '10.0.0.8', ID: 300, ...pod, K8sServiceAccount: 'x', Unknown: [1] }],
    ]);
    expect(state().ipcache).toEqual({
      '10.0.0.7/32': {
        encryptKey: 3,
        hostIP: '192.168.0.1',
        identity: 300,
        namespace: 'shop',
        podName: 'web-1',
        namedPorts: { p0: '82/132', p1: '81/17', p2: '80/6' },
      },
      '10.0.0.8/32': {
        encryptKey: 0,
        identity: 300,
        namespace: 'shop',
        podName: 'web-1',
        serviceAccount: 'x',
      },
    });
  });

  it('whose writer calls it host is remote-node here, because it was the host of the writer', async () => {
    const key: TestKey = ['own', `${IP}/10.0.0.1`, { IP: '10.0.0.1', ID: 1, HostIP: '192.168.0.1' }];
    expect(await ipcacheOf(key)).toEqual({ '10.0.0.1/32': remote(0, '192.168.0.1') });
    expect(await ipcacheOf(key, { remoteNodeIdentities: false })).toEqual({
      '10.0.0.1/32': host(0, '192.168.0.1'),
    });
    const far: TestKey = ['far', `${IP}/10.2.0.1`, { IP: '10.2.0.1', ID: 1 }];
    expect(await ipcacheOf(far)).toEqual({ '10.2.0.1/32': remote(0) });
    expect(await ipcacheOf(far, { remoteNodeIdentities: false })).toEqual({ '10.2.0.1/32': host(0) });
  });

  it('without a pod may have named ports', async () => {
    const NamedPorts = [{ Name: 'http', Port: 80, Protocol: 'TCP' }];
    const key: TestKey = ['own', `${IP}/10.0.0.7`, { IP: '10.0.0.7', ID: 300, NamedPorts }];
    const entry = { encryptKey: 0, identity: 300, namedPorts: { http: '80/6' } };
    expect(await ipcacheOf(key)).toEqual({ '10.0.0.7/32': entry });
  });

  it('may have any reserved identity, also in a remote cluster', async () => {
    const { state, logged } = await startAgent([
      OWN,
      ['far', 'cilium/cluster-config/far', { id: 2 }],
      ...[0, 2, 4, 5, 8, 255].map((ID): TestKey => ['far', `${IP}/10.2.0.${ID}`, { IP: `10.2.0.${ID}`, ID }]),
    ]);
    expect(Object.values(state().ipcache).map(({ identity }) => identity)).toEqual([0, 2, 255, 4, 5, 8]);
    expect(logged).toEqual([]);
  });
});

describe('clusters that claim one IP', () => {
  const claim = (cluster: string, ID: number): TestKey => [cluster, `${IP}/10.9.9.9`, { IP: '10.9.9.9', ID }];

  it('are ranked independently of the order: the local cluster first, then the smallest name', async () => {
    const all = [claim('own', 300), claim('b', 301), claim('a', 302)];
    for (const keys of [all, all.toReversed()]) {
      const { state } = await startAgent(keys);
      expect(state().ipcache['10.9.9.9/32']?.identity).toBe(300);
    }
    for (const keys of [all.slice(1), all.slice(1).toReversed()]) {
      const { state } = await startAgent(keys);
      expect(state().ipcache['10.9.9.9/32']?.identity).toBe(302);
    }
  });
});

describe('a service', () => {
  const offer = (cluster: string, backends: unknown): TestKey => [
    cluster,
    `cilium/state/services/v1/${cluster}/shop/web`,
    { cluster, namespace: 'shop', name: 'web', backends },
  ];
  const service = (annotations: string): string =>
    `kind: Service\nmetadata: { name: web, namespace: shop, annotations: { ${annotations} } }\n` +
    'spec: { clusterIP: 172.16.0.1, ports: [{ name: http, port: 80 }] }\n';
  const slice =
    'kind: EndpointSlice\nmetadata: { name: web-1, namespace: shop, labels: { kubernetes.io/service-name: web } }\n' +
    'addressType: IPv4\nports: [{ name: http, port: 8080, protocol: TCP }]\n' +
    'endpoints: [{ addresses: [10.0.0.7] }, { addresses: [10.2.0.7] }, { addresses: [10.0.0.8], conditions: { ready: false } }]\n';
  const http = (Port: number): object => ({ http: { Port, Protocol: 'TCP' } });

  it('that is global has its local backends and those of every remote cluster; the local one wins', async () => {
    const { state } = await startAgent(
      [
        offer('own', { '10.0.0.99': http(1) }),
        offer('far', {
          '10.2.0.7': http(9090),
          '10.2.0.8': { ...http(9090), dns: { Port: 53, Protocol: 'UDP' } },
        }),
        offer('sea', { 'fd03::1': http(9091) }),
      ],
      `${service('service.cilium.io/global: "true"')}---\n${slice}`,
    );
    expect(state().services).toEqual({
      'shop/web': {
        '10.0.0.7': http(8080),
        '10.2.0.7': http(8080),
        '10.2.0.8': { dns: { Port: 53, Protocol: 'UDP' }, ...http(9090) },
        'fd03::1': http(9091),
      },
    });
  });

  it('that is not global has its local backends only, even if it is shared', async () => {
    const far = offer('far', { '10.2.0.8': http(9090) });
    const { state } = await startAgent([far], `${service('service.cilium.io/shared: "true"')}---\n${slice}`);
    expect(state().services).toEqual({ 'shop/web': { '10.0.0.7': http(8080), '10.2.0.7': http(8080) } });
  });

  it('without any backend is announced empty, so that its traffic is refused', async () => {
    const { state } = await startAgent([], service('io.cilium/global-service: "TRUE"'));
    expect(state().services).toEqual({ 'shop/web': {} });
  });

  it('that only remote clusters have is not announced', async () => {
    const { state } = await startAgent([offer('far', { '10.2.0.8': http(9090) })]);
    expect(state().services).toEqual({});
  });
});

describe('a mesh', () => {
  it('of kvstores that contain copies of other clusters (kvstoremesh) is read from the copies', async () => {
    const { state, logged, missing } = await startAgent([
      OWN,
      ['far', 'cilium/cluster-config/far', { id: 2, capabilities: { syncedCanaries: true, cached: true } }],
      ...['nodes', 'services', 'identities', 'ip'].map(
        (resource): TestKey => ['far', `cilium/synced/far/cilium/cache/${resource}/v1`, ''],
      ),
      [
        'far',
        'cilium/cache/nodes/v1/far/n1',
        { Name: 'n1', Cluster: 'far', ClusterID: 2, IPAddresses: [V4_INSIDE] },
      ],
      ['far', 'cilium/cache/ip/v1/far/10.2.0.7', { IP: '10.2.0.7', ID: 131_400 }],
      ['far', 'cilium/cache/ip/v1/sea/10.3.0.7', { IP: '10.3.0.7', ID: 196_900 }],
    ]);
    expect({ logged, missing }).toEqual({ logged: [], missing: [] });
    expect(Object.keys(state().ipcache)).toEqual(['10.0.0.1/32', '10.2.0.7/32']);
  });

  it('of 511 clusters has smaller ranges, and rejects clusters of a mesh of another size', async () => {
    const far: readonly TestKey[] = [
      ['far', 'cilium/cluster-config/far', { id: 300, capabilities: { maxConnectedClusters: 511 } }],
      ['far', `${IP}/10.2.0.7`, { IP: '10.2.0.7', ID: 300 * 32_768 + 256 }],
    ];
    const large = await startAgent(far, '', { maxConnectedClusters: 511 });
    expect(Object.keys(large.state().ipcache)).toEqual(['10.2.0.7/32']);
    const small = await startAgent(far);
    expect(small.state().ipcache).toEqual({});
    expect(small.missing).toEqual([
      expect.stringMatching(/cluster far is incomplete: .*: .* maxConnectedClusters 511/),
    ]);
  });
});
