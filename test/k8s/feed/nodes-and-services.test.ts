import { describe, expect, it } from 'vitest';
import { FeedWorld } from './support/feed-world.ts';
import { ciliumNode, endpointSlice, service } from './support/objects.ts';
import { RecordingMetadata } from './support/recording-metadata.ts';

const SPEC = {
  addresses: [
    { type: 'InternalIP', ip: '192.0.2.2' },
    { type: 'InternalIP', ip: 'bad' },
    { type: 'CiliumInternalIP', ip: '10.1.1.1' },
  ],
  ipam: {
    podCIDRs: ['10.1.1.0/24', 'fd00:1::/64', '10.1.2.0/24'],
    pools: { allocated: [{ pool: 'more', cidrs: ['10.1.3.0/24'] }] },
  },
  health: { ipv4: '10.1.1.99', ipv6: 'fd00:1::99' },
  ingress: { ipv4: '10.1.1.98' },
  encryption: { key: 3 },
  nodeidentity: 33_554_433,
  bootid: 'boot',
};

describe('CiliumNodes', () => {
  it('are nodes of the local cluster; only invalid addresses are left out (K 36)', async () => {
    const world = await new FeedWorld().started();
    const metadata = {
      name: 'n2',
      labels: { zone: 'a' },
      annotations: { 'io.cilium.network.wg-pub-key': 'k' },
    };
    world.cluster.put('ciliumnodes', { metadata, spec: SPEC });
    expect(world.nodes.get('atlantic/n2')?.toJSON()).toMatchObject({
      source: 'custom-resource',
      clusterID: 1,
      encryptionKey: 3,
      bootID: 'boot',
      wireguardPubKey: 'k',
      addresses: [SPEC.addresses[0], SPEC.addresses[2]],
      ipv4AllocCIDR: '10.1.1.0/24',
      ipv6AllocCIDR: 'fd00:1::/64',
      ipv4SecondaryAllocCIDRs: ['10.1.2.0/24', '10.1.3.0/24'],
      ipv4HealthIP: '10.1.1.99',
      ipv6HealthIP: 'fd00:1::99',
      ipv4IngressIP: '10.1.1.98',
      labels: { zone: 'a' },
      nodeIdentity: 33_554_433,
    });
    expect(world.rejected.map(({ at, field }) => `${at} ${field}`)).toEqual([
      'CiliumNode n2 spec.addresses[1].ip',
    ]);
    world.cluster.delete('ciliumnodes', 'n2');
    expect(world.nodes.size).toBe(0);
  });

  it('whose labels change are updated (K 38)', async () => {
    const world = await new FeedWorld().started();
    world.cluster.put('ciliumnodes', ciliumNode('n2', SPEC, { zone: 'a' }));
    world.cluster.put('ciliumnodes', ciliumNode('n2', SPEC, { zone: 'b' }));
    expect(world.nodes.get('atlantic/n2')?.labels.get('zone')).toBe('b');
  });

  it('neither announce nor delete the local node (K 37)', async () => {
    const world = await new FeedWorld().started();
    world.nodes.nodeUpdated({ cluster: 'atlantic', name: 'n1', source: 'local', addresses: [] });
    world.cluster.put('ciliumnodes', ciliumNode('n1', SPEC));
    world.cluster.delete('ciliumnodes', 'n1');
    expect(world.nodes.explain('atlantic/n1')?.claims.map(({ source }) => source)).toEqual(['local']);
  });

  it('that are only restored are deleted with the first complete list (K 41)', async () => {
    const world = new FeedWorld();
    for (const name of ['n2', 'gone'])
      world.nodes.nodeUpdated({ cluster: 'atlantic', name, source: 'restored', addresses: [] });
    world.nodes.nodeUpdated({ cluster: 'pacific', name: 'p1', source: 'restored', addresses: [] });
    world.cluster.put('ciliumnodes', ciliumNode('n2', SPEC));
    world.feed.start();
    expect(world.nodes.size).toBe(3);
    world.cluster.settle();
    expect([...world.nodes.nodes()].map(({ fullName }) => fullName).sort()).toEqual([
      'atlantic/n2',
      'pacific/p1',
    ]);
  });
});

describe('Nodes', () => {
  const metadata = {
    name: 'n1',
    labels: { zone: 'a' },
    annotations: {
      'network.cilium.io/ipv4-health-ip': '10.1.1.99',
      'io.cilium.network.ipv4-cilium-host': '10.1.1.1',
      'network.cilium.io/ipv4-pod-cidr': '10.9.0.0/24',
      'network.cilium.io/encryption-key': '7',
      'network.cilium.io/ipv4-Ingress-ip': '10.1.1.98',
    },
  };
  const addresses = [
    { type: 'InternalIP', address: '192.0.2.1' },
    { type: 'InternalIP', address: '192.0.2.99' },
    { type: 'Hostname', address: 'n1' },
    { type: 'InternalIP', address: 'fd00::1' },
    { type: 'ExternalIP', address: '198.51.100.1' },
  ];

  it('set the local one: the first address of each type and family, a CIDR of each family (K 39)', async () => {
    const hostLabels: unknown[] = [];
    const world = await new FeedWorld({ onHostLabels: (labels) => hostLabels.push([...labels]) }).started();
    expect(world.cluster.following).toContain('nodes metadata.name=n1');
    const podCIDRs = ['10.1.1.0/24', '10.1.2.0/24', 'fd00:1::/64'];
    world.cluster.put('nodes', {
      metadata,
      spec: { podCIDRs, podCIDR: '10.1.1.0/24' },
      status: { addresses },
    });
    expect(world.nodes.get('atlantic/n1')?.toJSON()).toMatchObject({
      source: 'k8s',
      addresses: [
        { type: 'InternalIP', ip: '192.0.2.1' },
        { type: 'InternalIP', ip: 'fd00::1' },
        { type: 'ExternalIP', ip: '198.51.100.1' },
      ],
      ipv4AllocCIDR: '10.1.1.0/24',
      ipv6AllocCIDR: 'fd00:1::/64',
      ipv4SecondaryAllocCIDRs: [],
      ipv4HealthIP: undefined,
      encryptionKey: 0,
    });
    expect(hostLabels).toEqual([[['zone', 'a']]]);
  });

  // regression: the router, health and ingress addresses of the local node had no identity, and its CIDRs were wrong
  it('get what Cilium allocated from the CiliumNode, in any order, also beside annotations (K 37)', async () => {
    const node = {
      metadata,
      spec: { podCIDRs: ['10.244.0.0/24'] },
      status: { addresses: addresses.slice(0, 1) },
    };
    const local = { ...ciliumNode('n1', SPEC, { zone: 'old' }) };
    for (const ciliumNodeFirst of [true, false]) {
      const world = await new FeedWorld({ nodeAnnotations: true }).started();
      if (ciliumNodeFirst) world.cluster.put('ciliumnodes', local);
      expect(world.nodes.size).toBe(0);
      world.cluster.put('nodes', node);
      if (!ciliumNodeFirst) world.cluster.put('ciliumnodes', local);
      expect(world.nodes.get('atlantic/n1')?.toJSON()).toMatchObject({
        source: 'k8s',
        labels: { zone: 'a' },
        addresses: [
          { type: 'InternalIP', ip: '192.0.2.1' },
          { type: 'CiliumInternalIP', ip: '10.1.1.1' },
        ],
        ipv4AllocCIDR: '10.1.1.0/24',
        ipv6AllocCIDR: 'fd00:1::/64',
        ipv4SecondaryAllocCIDRs: ['10.1.2.0/24', '10.1.3.0/24'],
        ipv4HealthIP: '10.1.1.99',
        ipv6HealthIP: 'fd00:1::99',
        ipv4IngressIP: '10.1.1.98',
        encryptionKey: 3,
        bootID: 'boot',
      });
      world.cluster.put('ciliumnodes', ciliumNode('n1', {}));
      const kept = {
        ipv4AllocCIDR: '10.244.0.0/24',
        ipv4HealthIP: '10.1.1.99',
        encryptionKey: 7,
        bootID: '',
      };
      expect(world.nodes.get('atlantic/n1')?.toJSON()).toMatchObject(kept);
      world.cluster.delete('ciliumnodes', 'n1');
      expect(world.nodes.get('atlantic/n1')?.toJSON()).toMatchObject(kept);
      world.cluster.put('ciliumnodes', local);
      world.cluster.delete('nodes', 'n1');
      expect(world.nodes.size).toBe(0);
      world.cluster.put('ciliumnodes', ciliumNode('n1', {}));
      expect(world.nodes.size).toBe(0);
    }
  });

  // regression: a pod that had got the address of an earlier router was claimed as host
  it('do not get the router of annotations if the CiliumNode has one of the same family (K 37)', async () => {
    const world = await new FeedWorld({ nodeAnnotations: true }).started();
    const annotations = {
      'network.cilium.io/ipv4-cilium-host': '10.1.1.7',
      'network.cilium.io/ipv6-cilium-host': 'fd00:1::7',
    };
    world.cluster.put('nodes', {
      metadata: { name: 'n1', annotations },
      spec: {},
      status: { addresses: [] },
    });
    const routers = () => Array.from(world.nodes.get('atlantic/n1')?.addresses ?? [], ({ ip }) => ip);
    expect(routers()).toEqual(['10.1.1.7', 'fd00:1::7']);
    world.cluster.put('ciliumnodes', ciliumNode('n1', SPEC));
    expect(routers()).toEqual(['fd00:1::7', '10.1.1.1']);
    world.cluster.delete('ciliumnodes', 'n1');
    expect(routers()).toEqual(['10.1.1.7', 'fd00:1::7']);
  });

  it('have their annotations applied if configured (K 40)', async () => {
    const world = await new FeedWorld({ nodeAnnotations: true }).started();
    world.cluster.put('nodes', { metadata, spec: {}, status: { addresses: [] } });
    expect(world.nodes.get('atlantic/n1')?.toJSON()).toMatchObject({
      addresses: [{ type: 'CiliumInternalIP', ip: '10.1.1.1' }],
      ipv4AllocCIDR: '10.9.0.0/24',
      ipv4HealthIP: '10.1.1.99',
      ipv4IngressIP: '10.1.1.98',
      encryptionKey: 7,
    });
  });
});

describe('Services and their endpoints', () => {
  const CHECKOUT = { namespace: 'shop', name: 'checkout' };
  const backends = (world: FeedWorld, name = 'checkout'): readonly string[] | undefined => {
    const found = world.services.get({ ...CHECKOUT, name });
    return found && [...found.endpoints.backends.keys()].sort();
  };

  it('are joined in any order (K 54)', async () => {
    const world = await new FeedWorld().started();
    world.cluster.put('endpointslices', endpointSlice('s1', 'checkout', ['10.1.0.1']));
    world.cluster.put('services', service('checkout'));
    world.cluster.put('endpointslices', endpointSlice('s2', 'checkout', ['10.1.0.2']));
    expect(backends(world)).toEqual(['10.1.0.1', '10.1.0.2']);
    world.cluster.delete('endpointslices', 's1', 'shop');
    expect(backends(world)).toEqual(['10.1.0.2']);
    world.cluster.delete('services', 'checkout', 'shop');
    expect(backends(world)).toBeUndefined();
  });

  it('a slice that moves to another service is removed from the earlier one (K 10)', async () => {
    const world = await new FeedWorld().started();
    for (const name of ['checkout', 'cart']) world.cluster.put('services', service(name));
    world.cluster.put('endpointslices', endpointSlice('s1', 'checkout', ['10.1.0.1']));
    world.cluster.put('endpointslices', endpointSlice('s1', 'cart', ['10.1.0.1']));
    world.services.markSynced();
    expect([backends(world), backends(world, 'cart')]).toEqual([[], ['10.1.0.1']]);
  });

  it('a change of annotations only is applied (K 42)', async () => {
    const world = await new FeedWorld().started();
    world.cluster.put('services', service('checkout'));
    world.services.markSynced();
    world.cluster.put('services', service('checkout', {}, { 'service.cilium.io/global': 'true' }));
    expect(world.services.get(CHECKOUT)?.service.global).toBe(true);
  });

  it.each([
    [[], 'endpointslices'],
    [['endpointslices/v1'], 'endpointslices'],
    [['endpointslices'], 'endpoints'],
  ])('of an API server without %j are read from %s only (K 13)', async (missing, plural) => {
    const world = new FeedWorld();
    for (const kind of missing) world.cluster.missing.add(kind);
    await world.started();
    const followed = world.cluster.following.filter((kind) => kind.startsWith('endpoint'));
    expect(followed).toEqual([plural]);
  });

  it('stay when an upgraded API server has slices of the same names in place of Endpoints (K 13)', async () => {
    const metadata = new RecordingMetadata();
    const world = new FeedWorld({ metadata });
    const { cluster } = world;
    cluster.missing.add('endpointslices');
    await world.started();
    const namespace = 'default';
    const named = { metadata: { name: 'kubernetes', namespace } };
    cluster.put('services', { ...service('kubernetes'), ...named });
    cluster.put('endpoints', { ...named, subsets: [{ addresses: [{ ip: '192.0.2.10' }] }] });
    cluster.missing.clear();
    cluster.missing.add('endpoints');
    cluster.put('endpointslices', endpointSlice('kubernetes', 'kubernetes', ['192.0.2.10'], namespace));
    cluster.list('endpoints'); // no longer served: the remaining versions are requested
    await Promise.resolve();
    await Promise.resolve();
    expect(cluster.following.filter((kind) => kind.startsWith('endpoint'))).toEqual(['endpointslices']);
    cluster.settle();
    world.clock.advance(60_000);
    const found = world.services.get({ namespace, name: 'kubernetes' });
    expect([...(found?.endpoints.backends.keys() ?? [])]).toEqual(['192.0.2.10']);
    expect(metadata.said).toEqual(['192.0.2.10/32 endpointslice/default/kubernetes']);
    cluster.delete('endpointslices', 'kubernetes', namespace);
    world.clock.advance(60_000);
    expect(metadata.said).toEqual([]);
  });

  it('an empty list of slices is a list: no other kind is requested (K 13)', async () => {
    const world = await new FeedWorld().started();
    expect(world.feed.names).not.toContain('endpoints');
    expect(world.feed.progressOf('endpointslices')?.synced).toBe(true);
  });
});
