import { describe, expect, it } from 'vitest';
import { TurnGate } from '../../../src/base/turn-gate.ts';
import { IPCache } from '../../../src/ipcache/ipcache.ts';
import type { IPCacheChange } from '../../../src/ipcache/types.ts';
import type { EndpointClaim } from '../../../src/k8s/endpoint-claim.ts';
import { AddressHolders } from '../../../src/k8s/feed/address-holders.ts';
import { SlicedEndpointReader } from '../../../src/k8s/feed/endpoint-readers.ts';
import type { ParsedCiliumEndpointSlice } from '../../../src/k8s/parse-cilium-endpoint.ts';
import { FeedWorld } from './support/feed-world.ts';
import { ciliumEndpoint, ciliumEndpointSlice, pod, sliced } from './support/objects.ts';

const BY_SLICES = { endpoints: 'ciliumendpointslices' } as const;
const IP = '10.1.0.10';

function kinds(world: FeedWorld): string[] {
  const seen: string[] = [];
  const onChanges = (changes: readonly IPCacheChange[]): void => {
    for (const { kind, prefix, new: now } of changes)
      seen.push(`${kind} ${prefix} ${now?.k8s?.podName ?? ''}`);
  };
  world.ipcache.subscribe({ onChanges });
  seen.length = 0;
  return seen;
}

describe('CiliumEndpoints', () => {
  it('claim each of their addresses, with identity, host, key and pod (K 31)', async () => {
    const world = await new FeedWorld().started();
    const ports = [
      { name: 'http', port: 8080, protocol: 'TCP' },
      { name: 'odd', port: 1, protocol: 'XTP' },
    ];
    const ips = [IP, 'fd00::10'];
    world.cluster.put('ciliumendpoints', ciliumEndpoint('web', { ips, key: 3, ports }));
    expect(world.at(IP)).toBe('1001 shop/web 192.0.2.1 3 custom-resource');
    expect(world.at('fd00::10')).toBe('1001 shop/web 192.0.2.1 3 custom-resource');
    expect([...(world.ipcache.get(IP)?.k8s?.namedPorts?.keys() ?? [])]).toEqual(['http']);
    expect(world.rejected.map(({ field }) => field)).toEqual(['status.named-ports[1].protocol']);
  });

  it('have the service account of their pod, also in a slice; a change of it alone is a change', async () => {
    const withAccount = (account: string): object => {
      const { metadata, status } = ciliumEndpoint('web');
      return { metadata, status: { ...(status as object), 'service-account': account } };
    };
    const world = await new FeedWorld().started();
    world.cluster.put('ciliumendpoints', withAccount('default') as ReturnType<typeof ciliumEndpoint>);
    expect(world.ipcache.get(IP)?.k8s).toMatchObject({ podName: 'web', serviceAccount: 'default' });
    const changes = kinds(world);
    world.cluster.put('ciliumendpoints', withAccount('web') as ReturnType<typeof ciliumEndpoint>);
    expect(world.ipcache.get(IP)?.k8s?.serviceAccount).toBe('web');
    expect(changes).toHaveLength(1);
    const bySlices = await new FeedWorld(BY_SLICES).started();
    const endpoint = { ...sliced('web'), 'service-account': 'default' };
    bySlices.cluster.put('ciliumendpointslices', ciliumEndpointSlice('ces-1', [endpoint]));
    expect(bySlices.ipcache.get(IP)?.k8s?.serviceAccount).toBe('default');
  });

  it('without identity are unmanaged, and without key have none (K 31)', async () => {
    const world = await new FeedWorld().started();
    world.cluster.put('ciliumendpoints', ciliumEndpoint('web', { identity: 0 }));
    expect(world.at(IP)).toBe('3 shop/web 192.0.2.1 0 custom-resource');
  });

  it('without networking, node or IP claim nothing, and lose their earlier claims (K 30)', async () => {
    const world = await new FeedWorld().started();
    const lessThan = ciliumEndpoint('web');
    for (const less of [{ node: '' }, { ips: [] }]) {
      world.cluster.put('ciliumendpoints', lessThan);
      expect(world.at(IP)).toBeDefined();
      world.cluster.put('ciliumendpoints', ciliumEndpoint('web', less));
      expect(world.at(IP)).toBeUndefined();
    }
    world.cluster.put('ciliumendpoints', { ...lessThan, status: {} });
    expect(world.at(IP)).toBeUndefined();
  });

  it('of the local node count as well: restored endpoints are read this way (K 33)', async () => {
    const world = await new FeedWorld().started();
    world.cluster.put('ciliumendpoints', ciliumEndpoint('own', { node: '192.0.2.1' }));
    expect(world.at(IP)).toContain('shop/own');
  });

  it('with an invalid identity or key claim nothing, because another number would decide about traffic', async () => {
    const world = await new FeedWorld().started();
    const spoilt = (status: object): void =>
      world.cluster.put('ciliumendpoints', {
        ...ciliumEndpoint('web'),
        status: { ...(ciliumEndpoint('web')['status'] as object), ...status },
      });
    spoilt({ identity: { id: '1001' } });
    expect(world.at(IP)).toBeUndefined();
    spoilt({ encryption: { key: 256 } });
    expect(world.at(IP)).toBeUndefined();
    spoilt({});
    expect(world.at(IP)).toBeDefined();
    expect(world.rejected.map(({ field }) => field)).toEqual(['status.identity.id', 'status.encryption.key']);
  });

  it('that were deleted while disconnected are removed after the next list (K 10)', async () => {
    const world = await new FeedWorld().started();
    world.cluster.put('ciliumendpoints', ciliumEndpoint('web'));
    world.cluster.disconnect('ciliumendpoints');
    world.cluster.delete('ciliumendpoints', 'web', 'shop');
    expect(world.at(IP)).toBeDefined(); // a broken watch deletes nothing
    world.cluster.list('ciliumendpoints');
    expect(world.at(IP)).toBeUndefined();
  });
});

describe('an address that several pods list', () => {
  it('belongs to the one that is not being deleted, then to the youngest, then to the greatest name (K 23)', async () => {
    const world = await new FeedWorld().started();
    const says = (name: string, said: Parameters<typeof pod>[1]): string | undefined => {
      world.cluster.put('pods', pod(name, said));
      return world.at(IP)?.split(' ')[1];
    };
    expect(says('b', { createdAt: 5 })).toBe('shop/b');
    expect(says('a', { createdAt: 5 })).toBe('shop/b');
    expect(says('c', { createdAt: 1 })).toBe('shop/b');
    expect(says('d', { createdAt: 9 })).toBe('shop/d');
    expect(says('d', { createdAt: 9, deleting: true })).toBe('shop/b');
  });

  it('is written for the next pod when that one is deleted (K 23)', async () => {
    const world = await new FeedWorld().started();
    world.cluster.put('pods', pod('old', { createdAt: 1 }));
    world.cluster.put('pods', pod('new', { createdAt: 2 }));
    for (const name of ['a', 'b', 'c']) world.cluster.put('ciliumendpoints', ciliumEndpoint(name));
    world.cluster.put('ciliumendpoints', ciliumEndpoint('d', { ips: ['10.1.0.11'] }));
    expect(world.feed.status().contested).toBe(2);
    for (const name of ['a', 'b', 'c']) world.cluster.delete('ciliumendpoints', name, 'shop');
    expect(world.feed.status().contested).toBe(1);
    world.cluster.delete('pods', 'new', 'shop');
    expect(world.at(IP)).toContain('shop/old');
    world.cluster.delete('pods', 'old', 'shop');
    expect(world.at(IP)).toBeUndefined();
    expect(world.feed.status().contested).toBe(0);
  });

  it('stays with its new pod if the finished one is deleted late (K 20, 22)', async () => {
    const world = await new FeedWorld().started();
    world.cluster.put('pods', pod('old', { createdAt: 1 }));
    world.cluster.put('pods', pod('new', { createdAt: 2 }));
    world.cluster.put('pods', pod('old', { createdAt: 1, phase: 'Succeeded' }));
    world.cluster.delete('pods', 'old', 'shop');
    expect(world.at(IP)).toContain('shop/new');
  });

  it('belongs to its CiliumEndpoint, not to a pod that only Kubernetes lists (K 24)', async () => {
    const world = await new FeedWorld().started();
    world.cluster.put('pods', pod('web'));
    expect(world.at(IP)).toBe('3 shop/web 192.0.2.1 0 k8s');
    world.cluster.put('ciliumendpoints', ciliumEndpoint('web'));
    expect(world.at(IP)).toBe('1001 shop/web 192.0.2.1 0 custom-resource');
    world.cluster.delete('ciliumendpoints', 'web', 'shop');
    expect(world.at(IP)).toBe('3 shop/web 192.0.2.1 0 k8s');
  });
});

describe('Pods', () => {
  it('claim as unmanaged, with the key of the local node and the ports of their containers (K 18, 19)', async () => {
    const world = await new FeedWorld({ encryptKey: 4 }).started();
    const ports = [
      { name: 'http', containerPort: 80 },
      { containerPort: 81 },
      { name: 'http', containerPort: 8080, protocol: 'UDP' },
      { name: 'zero', containerPort: 0 },
      { name: 'odd', containerPort: 5, protocol: 'XTP' },
    ];
    world.cluster.put('pods', pod('web', { ports, ips: [IP, IP, 'fd00::10', ''] }));
    expect(world.at(IP)).toBe('3 shop/web 192.0.2.1 4 k8s');
    expect([...(world.ipcache.get(IP)?.k8s?.namedPorts ?? [])]).toEqual([
      ['http', { port: 8080, protocol: 17 }],
    ]);
  });

  it.each<[string, Parameters<typeof pod>[1]]>([
    ['on the network of the host', { hostNetwork: true }],
    ['that have succeeded', { phase: 'Succeeded' }],
    ['that have failed', { phase: 'Failed' }],
    ['without address', { ips: [] }],
    ['without host IP', { hostIP: '' }],
  ])('%s claim nothing, and lose their earlier claims (K 17, 18)', async (_, said) => {
    const world = await new FeedWorld().started();
    world.cluster.put('pods', pod('web'));
    world.cluster.put('pods', pod('web', said));
    expect(world.at(IP)).toBeUndefined();
  });

  it('that terminate keep their addresses until they are deleted (K 17)', async () => {
    const world = await new FeedWorld().started();
    world.cluster.put('pods', pod('web', { deleting: true }));
    expect(world.at(IP)).toContain('shop/web');
  });

  it('whose host IP and pod IP arrive in one event are complete immediately (K 21)', async () => {
    const world = await new FeedWorld().started();
    world.cluster.put('pods', { ...pod('web'), status: { phase: 'Pending' } });
    world.cluster.put('pods', pod('web'));
    expect(world.at(IP)).toContain('192.0.2.1');
    world.cluster.put('pods', pod('web', { hostIP: '192.0.2.9' }));
    expect(world.at(IP)).toContain('192.0.2.9');
  });

  it('of the local node only are requested if CiliumEndpoints exist (K 12)', async () => {
    const world = await new FeedWorld().started();
    expect(world.cluster.following).toContain('pods spec.nodeName=n1');
  });

  it('of all nodes are requested without that CRD, until its endpoints are listed (K 12)', async () => {
    const world = new FeedWorld();
    world.cluster.missing.add('ciliumendpoints');
    await world.started();
    expect(world.cluster.following).toContain('pods');
    world.cluster.put('pods', pod('far', { nodeName: 'n2' }));
    expect(world.at(IP)).toContain('shop/far');
    world.cluster.missing.delete('ciliumendpoints');
    world.cluster.put('ciliumendpoints', ciliumEndpoint('far', { node: '192.0.2.2' }));
    const seen = kinds(world);
    world.cluster.list('ciliumendpoints');
    expect(world.cluster.following).toContain('pods spec.nodeName=n1');
    world.cluster.settle();
    expect(world.ipcache.explain(IP)?.claims.map(({ source }) => source)).toEqual(['custom-resource']);
    expect(seen.filter((change) => change.startsWith('delete'))).toEqual([]);
  });
});

describe('CiliumEndpointSlices', () => {
  it('claim the same as CiliumEndpoints (K 34)', async () => {
    const world = await new FeedWorld(BY_SLICES).started();
    world.cluster.put('ciliumendpointslices', ciliumEndpointSlice('s1', [sliced('web', { key: 2 })]));
    expect(world.at(IP)).toBe('1001 shop/web 192.0.2.1 2 custom-resource');
    world.cluster.delete('ciliumendpointslices', 's1');
    expect(world.at(IP)).toBeUndefined();
  });

  it('an endpoint that moves between them is never missing (K 35)', async () => {
    const world = await new FeedWorld(BY_SLICES).started();
    world.cluster.put('ciliumendpointslices', ciliumEndpointSlice('s1', [sliced('web')]));
    const seen = kinds(world);
    world.cluster.put('ciliumendpointslices', ciliumEndpointSlice('s2', [sliced('web')]));
    world.cluster.put('ciliumendpointslices', ciliumEndpointSlice('s1', []));
    expect(world.at(IP)).toContain('shop/web');
    expect(seen).toEqual([]);
  });

  it('an address that moves from one endpoint of a slice to another is never free (K 35)', async () => {
    const world = await new FeedWorld(BY_SLICES).started();
    world.cluster.put('ciliumendpointslices', ciliumEndpointSlice('s1', [sliced('a')]));
    const seen = kinds(world);
    world.cluster.put('ciliumendpointslices', ciliumEndpointSlice('s1', [sliced('b')]));
    expect(seen).toEqual([`upsert ${IP}/32 b`]);
  });

  it('the slice in which an endpoint appeared or changed last counts; when it is deleted, the next (K 35)', async () => {
    const world = await new FeedWorld(BY_SLICES).started();
    const put = (slice: string, identity: number): void =>
      world.cluster.put('ciliumendpointslices', ciliumEndpointSlice(slice, [sliced('web', { identity })]));
    put('s2', 2000);
    put('s1', 1000);
    expect(world.at(IP)).toContain('1000 ');
    put('s2', 2000); // writes the same again
    expect(world.at(IP)).toContain('1000 ');
    put('s2', 2001);
    expect(world.at(IP)).toContain('2001 ');
    world.cluster.put('ciliumendpointslices', ciliumEndpointSlice('s2', []));
    expect(world.at(IP)).toContain('1000 ');
    put('s2', 2002);
    world.cluster.put('ciliumendpointslices', ciliumEndpointSlice('s1', []));
    expect(world.at(IP)).toContain('2002 ');
  });

  it('the slice to which an endpoint moves while the objects missing in a list are deleted counts (regression: the slice created last did)', async () => {
    const turns: (() => void)[] = [];
    const nextTurn = (turn: () => void): void => void turns.push(turn);
    const gate = new TurnGate({ clock: { now: () => 0 }, nextTurn, weightPerTurn: 1 });
    const world = new FeedWorld({ ...BY_SLICES, gate });
    const put = (slice: string, createdAt: number, ...endpoints: readonly object[]): void =>
      world.cluster.put('ciliumendpointslices', ciliumEndpointSlice(slice, endpoints, { createdAt }));
    put('s1', 1);
    put('s2', 2, sliced('web', { identity: 2000 }));
    await world.started();
    put('s1', 1, sliced('web', { identity: 1000 }));
    const isComplete = (): boolean =>
      world.feed.status().kinds.some(({ name, complete }) => name === 'ciliumendpointslices' && complete);
    expect(isComplete()).toBe(false);
    for (let turn = turns.shift(); turn !== undefined; turn = turns.shift()) {
      turn();
      for (let tick = 0; tick < 8; tick++) await Promise.resolve();
    }
    expect(isComplete()).toBe(true);
    expect(world.at(IP)).toContain('1000 ');
  });

  it('the fields of an endpoint in a slice before its last change do not count any more (K 35)', async () => {
    const world = await new FeedWorld(BY_SLICES).started();
    const put = (slice: string, identity: number): void =>
      world.cluster.put('ciliumendpointslices', ciliumEndpointSlice(slice, [sliced('web', { identity })]));
    put('s1', 1000);
    put('s2', 2000);
    put('s1', 1001);
    put('s1', 1000);
    expect(world.at(IP)).toContain('1000 ');
  });

  it('an endpoint without address claims nothing if it counts, and staying without one is no change', async () => {
    const world = await new FeedWorld(BY_SLICES).started();
    const put = (slice: string, ips: readonly string[]): void =>
      world.cluster.put('ciliumendpointslices', ciliumEndpointSlice(slice, [sliced('web', { ips })]));
    put('s1', [IP]);
    put('s2', []);
    expect(world.at(IP)).toBeUndefined();
    put('s1', [IP, 'fd00::10']);
    put('s2', []);
    expect(world.at(IP)).toContain('shop/web');
    put('s2', [IP]);
    put('s2', []);
    expect(world.at(IP)).toBeUndefined();
  });

  it.each([
    ['s3', 's2', 's9'],
    ['s9', 's3', 's2'],
    ['s2', 's9', 's3'],
  ])(
    'of one list, the slice that was created last counts, then the greater name: %s, %s, %s (K 35)',
    async (...order) => {
      const world = new FeedWorld(BY_SLICES);
      const createdAt: Readonly<Record<string, number>> = { s2: 5, s3: 5, s9: 1 };
      for (const slice of order) {
        const endpoint = sliced('web', { identity: Number(slice.slice(1)) });
        world.cluster.put(
          'ciliumendpointslices',
          ciliumEndpointSlice(slice, [endpoint], { createdAt: createdAt[slice] ?? 0 }),
        );
      }
      await world.started();
      expect(world.at(IP)).toContain('3 shop/web');
    },
  );

  it('with one endpoint are compared in few steps, however many they are (regression: 4,000 took 0.5 s)', () => {
    const COUNT = 500;
    let reads = 0;
    const rank = { deleting: false, createdAt: 1, uid: '' };
    const k8s = { namespace: 'shop', podName: 'web' };
    const slices = Array.from({ length: COUNT }, (_, index): ParsedCiliumEndpointSlice => {
      const identity = 1 + ((index * 379) % COUNT);
      const claim: EndpointClaim = { source: 'custom-resource', identity, k8s, ips: [IP], ...rank };
      return {
        get name() {
          reads++;
          return String(identity).padStart(3, '0');
        },
        createdAt: 1,
        endpoints: new Map([['shop/web', claim]]),
      };
    });
    const ipcache = new IPCache();
    const reader = new SlicedEndpointReader({ ipcache, holders: new AddressHolders(ipcache) });
    const identity = (): number | undefined => ipcache.get(IP)?.identity;
    reader.start();
    for (const slice of slices) reader.change(slice, undefined);
    reader.start();
    for (const slice of slices) reader.change(slice, slice);
    expect(identity()).toBe(COUNT);
    const used = slices.toSorted((a, b) => (a.name < b.name ? 1 : -1));
    for (const slice of used.slice(0, -1)) reader.change(undefined, slice);
    expect(identity()).toBe(1);
    for (const slice of used.slice(-1)) reader.change(undefined, slice);
    expect(identity()).toBeUndefined();
    expect(reads).toBeGreaterThan(COUNT);
    expect(reads).toBeLessThan(150 * COUNT);
  });
});

describe('an address', () => {
  it('is compared in few steps, however many objects list it (regression: 8,000 took 20 s)', () => {
    const COUNT = 2_000;
    let compared = 0;
    const claims = Array.from({ length: COUNT }, (_, index): EndpointClaim => {
      const k8s = { namespace: 'shop', podName: `web-${String(index).padStart(4, '0')}` };
      const rank = {
        deleting: false,
        createdAt: 1,
        get uid() {
          compared++;
          return 'uid';
        },
      };
      const claim = {
        source: 'custom-resource',
        identity: 1001,
        hostIP: '192.0.2.1',
        k8s,
        ips: [IP],
      } as const;
      return Object.assign(rank, claim);
    });
    const ipcache = new IPCache();
    const holders = new AddressHolders(ipcache);
    const holder = (): string | undefined => ipcache.get(IP)?.k8s?.podName;
    for (const claim of claims) holders.change(claim, undefined);
    expect([holder(), holders.contested]).toEqual(['web-1999', 1]);
    for (const claim of claims.slice(0, 1000).toReversed()) holders.change(undefined, claim);
    expect(holder()).toBe('web-1999');
    for (const claim of claims.slice(1001)) holders.change(undefined, claim);
    expect([holder(), holders.contested]).toEqual(['web-1000', 0]);
    expect(compared).toBeGreaterThan(COUNT);
    expect(compared).toBeLessThan(100 * COUNT);
  });
});
