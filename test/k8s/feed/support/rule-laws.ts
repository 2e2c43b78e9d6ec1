import fc from 'fast-check';
import { expect } from 'vitest';
import { RejectionLog } from '../../../../src/base/rejection.ts';
import { IPCache } from '../../../../src/ipcache/ipcache.ts';
import type { EndpointClaim } from '../../../../src/k8s/endpoint-claim.ts';
import type { AddressSink, FedIPCache } from '../../../../src/k8s/feed/address-holders.ts';
import type { ApiServerAddresses } from '../../../../src/k8s/feed/api-server-addresses.ts';
import { type AnyFeed, type KindReader, ObjectFeed } from '../../../../src/k8s/feed/object-feed.ts';
import type { PrefixMetadata } from '../../../../src/k8s/feed/prefix-metadata.ts';
import type { ParsedCiliumEndpointSlice } from '../../../../src/k8s/parse-cilium-endpoint.ts';
import type { KubernetesObject } from '../../../../src/k8s/resource.ts';
import type { NodeManager } from '../../../../src/nodemanager/node-manager.ts';
import {
  createBackend,
  createEndpointSlice,
  type EndpointSlice,
} from '../../../../src/servicecache/backend.ts';
import { ManualClock } from '../../../base/support/manual-clock.ts';
import type { SaidObject } from './fake-cluster.ts';
import type { FeedWorld, WorldOptions } from './feed-world.ts';
import { ciliumEndpoint, ciliumEndpointSlice, ciliumNode, pod, sliced } from './objects.ts';
import { RecordingMetadata } from './recording-metadata.ts';

/** Returns an object as a reflector delivers it. */
export function stored(said: SaidObject): KubernetesObject {
  return { ...said, metadata: { uid: 'u', resourceVersion: '1', ...said.metadata } };
}

function feedOf<T>(reader: KindReader<T>): ObjectFeed<T> {
  return new ObjectFeed(reader, { rejections: new RejectionLog() });
}

/** Records deletes that are not part of a replacement. */
function deletions(ipcache: IPCache): string[] {
  const gone: string[] = [];
  ipcache.subscribe({
    onChanges: (changes) => {
      for (const { kind, prefix } of changes) if (kind === 'delete') gone.push(prefix);
    },
  });
  return gone;
}

const IPS = ['10.1.0.1', '10.1.0.2', '10.1.0.3'];
const said = fc.record({
  name: fc.constantFrom('a', 'b', 'c'),
  ips: fc.uniqueArray(fc.constantFrom(...IPS), { maxLength: 2 }),
  hostIP: fc.constantFrom('192.0.2.1', '192.0.2.2'),
  createdAt: fc.integer({ min: 0, max: 2 }),
});

/**
 * K 20 to 23: an address belongs to the youngest object that lists it, with the current values of that
 * object.
 */
export function K23_theYoungestHasIt(make: (ipcache: FedIPCache) => AddressSink): void {
  fc.assert(
    fc.property(fc.array(said, { maxLength: 12 }), (changes) => {
      const ipcache = new IPCache();
      const sink = make(ipcache);
      const now = new Map<string, EndpointClaim>();
      for (const { name, ips, hostIP, createdAt } of changes) {
        const k8s = { namespace: 'shop', podName: name };
        const claim = { source: 'k8s', identity: 3, hostIP, encryptKey: 0, k8s } as const;
        const next = ips.length === 0 ? undefined : { ...claim, ips, deleting: false, createdAt, uid: '' };
        const before = now.get(name);
        if (next === undefined && before === undefined) continue;
        sink.change(next, before);
        if (next === undefined) now.delete(name);
        else now.set(name, next);
        for (const ip of IPS) {
          const listing = [...now.values()].filter((one) => one.ips.includes(ip));
          listing.sort(
            (a, b) => b.createdAt - a.createdAt || ((a.k8s?.podName ?? '') < (b.k8s?.podName ?? '') ? 1 : -1),
          );
          const entry = ipcache.get(ip);
          expect(entry?.k8s?.podName).toBe(listing[0]?.k8s?.podName);
          expect(entry?.hostIP).toBe(listing[0]?.hostIP);
        }
      }
    }),
    { numRuns: 200 },
  );
}

/** K 10: an object that was deleted while nothing was watched is removed by the next list. */
export function K10_listsReplace(make: <T>(reader: KindReader<T>) => AnyFeed): void {
  const names = new Set<string>();
  const feed = make<string>({
    kind: 'Thing',
    read: (fields) => fields.map('metadata').string('name'),
    change: (now, before) => {
      if (before !== undefined) names.delete(before);
      if (now !== undefined) names.add(now);
    },
  });
  const put = (name: string): { readonly type: 'put'; readonly object: KubernetesObject } => ({
    type: 'put',
    object: stored({ metadata: { name } }),
  });
  const first = feed.start();
  first.apply([put('a'), put('b')]);
  first.onListed();
  const second = feed.start();
  second.apply([put('b'), put('c')]);
  expect([...names].sort()).toEqual(['a', 'b', 'c']); // a broken watch deletes nothing
  second.onListed();
  expect([...names].sort()).toEqual(['b', 'c']);
}

/**
 * K 35: an endpoint that moves is never missing, its last slice removes it, and the latest of several slices
 * counts.
 */
export function K35_endpointsMove(
  make: (engine: { readonly ipcache: FedIPCache }) => KindReader<ParsedCiliumEndpointSlice>,
): void {
  const ipcache = new IPCache();
  const feed = feedOf(make({ ipcache }));
  const sink = feed.start();
  sink.onListed();
  const put = (slice: string, ...endpoints: object[]): void =>
    sink.apply([{ type: 'put', object: stored(ciliumEndpointSlice(slice, endpoints)) }]);
  const gone = deletions(ipcache);
  const web = (identity: number): object => sliced('web', { ips: ['10.1.0.1'], identity });
  put('s1', web(1001));
  put('s2', web(1002));
  expect(ipcache.get('10.1.0.1')?.identity).toBe(1002);
  put('s1', sliced('other', { ips: ['10.1.0.2'] }));
  expect(ipcache.get('10.1.0.1')?.identity).toBe(1002);
  put('s2', sliced('heir', { ips: ['10.1.0.1'], identity: 1003 }));
  expect(ipcache.get('10.1.0.1')?.identity).toBe(1003);
  expect(gone).toEqual([]);
  put('s2');
  expect(gone).toEqual(['10.1.0.1/32']);
  sink.apply([{ type: 'delete', object: stored(ciliumEndpointSlice('s1', [])) }]);
  expect([...ipcache.entries()]).toEqual([]);
}

/** K 26: labels of a pod that claim a namespace, an account or a cluster are no labels of its identity. */
export async function K26_podsSpeakForThemselves(make: (options: WorldOptions) => FeedWorld): Promise<void> {
  let said: readonly string[] = [];
  const onLabels: WorldOptions['onLabels'] = (_, labels = []) => {
    said = labels.map(({ key, value }) => `${key}=${value}`);
  };
  const world = await make({ onLabels }).started();
  world.cluster.put('namespaces', { metadata: { name: 'shop', labels: { team: 'a' } } });
  const forged = {
    'io.cilium.k8s.namespace.labels.team': 'root',
    'io.cilium.k8s.policy.serviceaccount': 'admin',
    'io.cilium.k8s.policy.cluster': 'pacific',
    'io.kubernetes.pod.namespace': 'kube-system',
  };
  world.cluster.put('pods', pod('web', { labels: { app: 'web', ...forged } }));
  expect(said).toEqual([
    'app=web',
    'io.cilium.k8s.namespace.labels.team=a',
    'io.cilium.k8s.policy.cluster=atlantic',
    'io.kubernetes.pod.namespace=shop',
  ]);
}

/** K 43: an address is the API server's while a slice lists it, and 30 s longer if the slice was deleted. */
export function K43_slicesOwnTheirAddresses(
  make: (metadata: PrefixMetadata, clock: ManualClock) => Pick<ApiServerAddresses, 'change'>,
): void {
  const metadata = new RecordingMetadata();
  const clock = new ManualClock();
  const addresses = make(metadata, clock);
  const slice = (name: string, ...ips: string[]): EndpointSlice => {
    const service = { namespace: 'default', name: 'kubernetes' };
    return createEndpointSlice({
      service,
      name,
      backends: ips.map((address) => createBackend({ address, ports: new Map() })),
    });
  };
  const [first, second] = [slice('a', '192.0.2.10', '198.51.100.7'), slice('b', '198.51.100.7')];
  addresses.change(first, undefined);
  addresses.change(second, undefined);
  addresses.change(slice('a', '192.0.2.10'), first);
  expect(metadata.said.map((said) => said.split('/')[0])).toEqual(['192.0.2.10', '198.51.100.7']);
  addresses.change(undefined, second);
  clock.advance(29_999);
  expect(metadata.said).toHaveLength(2); // it is soon created again
  clock.advance(1);
  expect(metadata.said.map((said) => said.split('/')[0])).toEqual(['192.0.2.10']);
  addresses.change(undefined, slice('a', '192.0.2.10'));
  addresses.change(slice('a', '192.0.2.10'), undefined);
  clock.advance(60_000);
  expect(metadata.said).toHaveLength(1);
}

/** K 37, 38: CiliumNodes do not change the local node, and a change of labels alone is applied. */
export function K38_nodesAreCompared(world: FeedWorld): void {
  const { nodes, cluster } = world;
  world.feed.start();
  cluster.settle();
  const own = { cluster: 'atlantic', name: 'n1', source: 'local' } as const;
  nodes.nodeUpdated({ ...own, addresses: [] });
  cluster.put('ciliumnodes', ciliumNode('n1', {}, { zone: 'x' }));
  cluster.put('ciliumnodes', ciliumNode('n2', {}, { zone: 'a' }));
  cluster.put('ciliumnodes', ciliumNode('n2', {}, { zone: 'b' }));
  expect(sourcesOf(nodes, 'atlantic/n1')).toEqual(['local']);
  cluster.delete('ciliumnodes', 'n1');
  expect(sourcesOf(nodes, 'atlantic/n1')).toEqual(['local']);
  expect(nodes.get('atlantic/n2')?.labels.get('zone')).toBe('b');
}

function sourcesOf(nodes: NodeManager, name: string): readonly string[] {
  return nodes.explain(name)?.claims.map(({ source }) => source) ?? [];
}

/**
 * K 52, 53: beside a kvstore that is complete, lost and complete again. No used address is ever missing,
 * claims of the feed alone are removed, and deleted ones do not stay.
 */
export function K52_noGapBesideAKvstore(make: (options: WorldOptions) => FeedWorld): void {
  const world = make({});
  const { cluster, ipcache, feed } = world;
  feed.start();
  cluster.settle();
  for (const [index, ip] of IPS.entries())
    cluster.put('ciliumendpoints', ciliumEndpoint(`p${index}`, { ips: [ip] }));
  const gone = deletions(ipcache);
  const kvstore = (ip: string): unknown => ipcache.upsert(ip, { source: 'kvstore', identity: 1001 });
  for (const ip of IPS.slice(0, 2)) kvstore(ip); // it is listing
  feed.reportKvstore('ip', 'complete');
  expect(gone.splice(0)).toEqual(['10.1.0.3/32']);
  feed.reportKvstore('ip', 'lost');
  cluster.settle();
  cluster.delete('ciliumendpoints', 'p0', 'shop');
  expect(gone).toEqual([]); // it is back with the list, and p0 still belongs to the kvstore
  ipcache.delete('10.1.0.1', { source: 'kvstore' }); // the kvstore is connected again and complete
  ipcache.delete('10.1.0.2', { source: 'kvstore' });
  expect(ipcache.get('10.1.0.2')?.source).toBe('custom-resource');
  kvstore('10.1.0.2');
  feed.reportKvstore('ip', 'complete');
  expect([...ipcache.entries()].map(({ key, source }) => `${key} ${source}`)).toEqual(['10.1.0.2 kvstore']);
}
