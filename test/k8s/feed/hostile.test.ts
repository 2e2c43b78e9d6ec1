import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { spoiltJson } from '../../base/support/spoilt-json.ts';
import type { SaidObject } from './support/fake-cluster.ts';
import { FeedWorld } from './support/feed-world.ts';
import {
  ciliumEndpoint,
  ciliumEndpointSlice,
  ciliumNode,
  endpointSlice,
  pod,
  service,
  sliced,
} from './support/objects.ts';
import { RecordingMetadata } from './support/recording-metadata.ts';

const RULES = { ingress: [{ fromCIDRSet: [{ cidr: '10.0.0.0/8', except: ['10.1.0.0/16'] }] }] };
const BLOCKS = { ingress: [{ from: [{ ipBlock: { cidr: '10.0.0.0/8', except: ['10.1.0.0/16'] } }] }] };

/** A good object of each kind. */
const GOOD: Readonly<Record<string, SaidObject>> = {
  pods: pod('good', { ports: [{ name: 'http', containerPort: 80 }] }),
  ciliumendpoints: ciliumEndpoint('good', { key: 1, ports: [{ name: 'http', port: 80, protocol: 'TCP' }] }),
  ciliumendpointslices: ciliumEndpointSlice('good', [sliced('good')]),
  ciliumnodes: ciliumNode('good', {
    addresses: [{ type: 'InternalIP', ip: '192.0.2.9' }],
    ipam: { podCIDRs: ['10.1.0.0/24'] },
    encryption: { key: 1 },
  }),
  nodes: {
    metadata: { name: 'n1', annotations: { 'network.cilium.io/encryption-key': '7' } },
    spec: { podCIDRs: ['10.1.0.0/24'] },
    status: { addresses: [{ type: 'InternalIP', address: '192.0.2.1' }] },
  },
  namespaces: { metadata: { name: 'shop', labels: { team: 'a' } } },
  services: service('good'),
  endpointslices: endpointSlice('good', 'good', ['10.1.0.1']),
  ciliumidentities: { metadata: { name: '1001' }, 'security-labels': { 'k8s:app': 'web' } },
  ciliumnetworkpolicies: { metadata: { name: 'good', namespace: 'shop' }, spec: RULES },
  networkpolicies: { metadata: { name: 'good', namespace: 'shop' }, spec: BLOCKS },
  ciliumcidrgroups: { metadata: { name: 'good' }, spec: { externalCIDRs: ['10.0.0.0/8'] } },
};

function world(slices = false): Promise<FeedWorld> {
  const options = { nodeAnnotations: true, onLabels: () => {}, metadata: new RecordingMetadata() };
  return new FeedWorld({
    ...options,
    endpoints: slices ? 'ciliumendpointslices' : 'ciliumendpoints',
  }).started();
}

function asObject(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null ? { ...value } : {};
}

/** Invalid JSON does not reach this code. */
function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Returns the whole state of a world as text. */
function knows({ ipcache, nodes, services, feed }: FeedWorld): string {
  const held = [
    [...ipcache.entries()],
    nodes.snapshot(),
    services.services(),
    [...feed.identities.entries()],
  ];
  return JSON.stringify(held, (_, value: unknown) => (value instanceof Map ? [...value] : value));
}

describe('hostile objects', () => {
  it.each([
    ['pods', 'Pod shop/good', { status: 7 }],
    ['ciliumendpoints', 'CiliumEndpoint shop/good', { status: 7 }],
    ['ciliumendpointslices', 'CiliumEndpointSlice good', { namespace: 7 }],
    ['ciliumnodes', 'CiliumNode good', { spec: 7 }],
    ['nodes', 'Node n1', { spec: 7 }],
    ['namespaces', 'Namespace shop', { metadata: { name: 'shop', labels: 7 } }],
    ['services', 'Service shop/good', { spec: 7 }],
    ['endpointslices', 'EndpointSlice shop/good', { endpoints: 7 }],
    ['ciliumidentities', 'CiliumIdentity 1001', { 'security-labels': { ':': '' } }],
    ['networkpolicies', 'NetworkPolicy shop/good', { spec: 7 }],
    ['ciliumnetworkpolicies', 'CiliumNetworkPolicy shop/good', { spec: 7 }],
    ['ciliumcidrgroups', 'CiliumCIDRGroup good', { spec: 7 }],
  ])('of %s are rejected as %s', async (plural, place, spoilt) => {
    const { cluster, rejected } = await world(plural === 'ciliumendpointslices');
    const good = GOOD[plural];
    if (good === undefined) throw new Error(`no object of ${plural}`);
    cluster.put(plural, { ...good, ...spoilt });
    expect([...new Set(rejected.map((one) => one.at))]).toEqual([place]);
  });

  it.each(Object.keys(GOOD))(
    '%s that were spoilt in any place are refused by field, and the others go on',
    async (plural) => {
      const good = GOOD[plural];
      if (good === undefined) throw new Error(plural);
      const { metadata } = good;
      const name = plural === 'ciliumidentities' ? '9' : 'bad';
      const identity = { name, ...(metadata.namespace === undefined ? {} : { namespace: 'shop' }), uid: 'u' };
      const property = fc.asyncProperty(spoiltJson([JSON.stringify(good)]), async ({ bytes }) => {
        const one = await world(plural === 'ciliumendpointslices');
        const spoilt = asObject(parsed(Buffer.from(bytes).toString()));
        const { namespace: _, ...others } = asObject(spoilt['metadata']); // null is no namespace
        one.cluster.put(plural, { ...spoilt, metadata: { ...others, ...identity } });
        one.cluster.put(plural, good);
        expect(knows(one)).toContain(plural === 'nodes' ? '192.0.2.1' : knownBy(plural));
        for (const { field, message } of one.rejected) {
          expect(field).not.toBe('');
          expect(message.length).toBeLessThan(1_000);
        }
      });
      await fc.assert(property, { numRuns: Math.min(60, fc.readConfigureGlobal().numRuns ?? 60) });
    },
  );

  it('names that would become other keys, or lines of a log, are rejected', async () => {
    const one = await world();
    for (const bad of ['a/b', 'a\nb', ' ', '\u007f', 'x'.repeat(254)]) one.cluster.put('pods', pod(bad));
    expect(one.rejected.map(({ field }) => field)).toEqual(Array(5).fill('metadata.name'));
    one.cluster.put('pods', pod('__proto__', { ips: ['10.1.0.99'], namespace: 'constructor' }));
    expect(one.at('10.1.0.99')).toContain('constructor/__proto__');
  });

  it('an unknown phase is rejected by field, and the pod keeps its state', async () => {
    const one = await world();
    one.cluster.put('pods', pod('web', { phase: 'Sleeping' }));
    expect(one.at('10.1.0.10')).toContain('shop/web');
    expect(one.rejected.map(({ field }) => field)).toEqual(['status.phase']);
  });

  it('invalid and unlimited addresses are rejected, and the valid ones remain', async () => {
    const one = await world();
    one.cluster.put(
      'ciliumendpoints',
      ciliumEndpoint('web', { ips: ['010.1.0.1', '10.1.0.10', '10.1.0.10/24'] }),
    );
    expect(one.at('10.1.0.10')).toContain('shop/web');
    const many = Array.from({ length: 100_000 }, (_, n) => `10.${n >> 16}.${(n >> 8) & 255}.${n & 255}`);
    one.cluster.put('ciliumendpoints', ciliumEndpoint('web', { ips: many }));
    expect(one.at('10.1.0.10')).toBeUndefined();
    expect(one.rejected.at(-1)?.reason).toBe('too-many');
  });

  it('10 MB of annotations are not kept: the fields are rejected, or not read', async () => {
    const one = await world();
    const annotations = { huge: 'x'.repeat(10_000_000) };
    const heavy = (plural: string): void => {
      const good = GOOD[plural];
      if (good !== undefined)
        one.cluster.put(plural, { ...good, metadata: { ...good.metadata, annotations } });
    };
    for (const plural of Object.keys(GOOD)) heavy(plural);
    expect(knows(one).length).toBeLessThan(100_000);
    expect(one.nodes.get('atlantic/good')?.annotations.size).toBe(0);
    expect(one.rejected.map(({ at, field, reason }) => `${at} ${field} ${reason}`)).toEqual([
      'CiliumNode good metadata.annotations too-large',
    ]);
  });

  it('are counted in the status of their kind', async () => {
    const one = await world();
    one.cluster.put('ciliumendpoints', ciliumEndpoint('web', { node: 'nowhere' }));
    const kind = one.feed.status().kinds.find(({ name }) => name === 'ciliumendpoints');
    expect(kind).toMatchObject({ objects: 0, rejected: 1 });
    expect(one.feed.status().rejections.byReason).toEqual({ 'invalid-address': 1 });
  });
});

function knownBy(plural: string): string {
  const known: Readonly<Record<string, string>> = {
    pods: '10.1.0.10',
    ciliumendpoints: '10.1.0.10',
    ciliumendpointslices: '10.1.0.10',
    ciliumnodes: '192.0.2.9',
    services: '10.96.0.7',
    ciliumidentities: '1001',
  };
  return known[plural] ?? '[';
}
