import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { ConfigFile, ConfigListing } from '../../../src/clustermesh/config-directory.ts';
import type { ConfigSource } from '../../../src/clustermesh/config-follower.ts';
import { KubernetesFeed } from '../../../src/k8s/feed/kubernetes-feed.ts';
import { KubernetesClient } from '../../../src/k8s/kubernetes-client.ts';
import { MemoryApiTransport } from '../../../src/k8s/memory/memory-api-transport.ts';
import { decodeClusterService } from '../../../src/kvstore/codec/cluster-service.ts';
import { MemoryBackend } from '../../../src/kvstore/memory/memory-backend.ts';
import { mirroredName } from '../../../src/operator/mirrored-slices/slice-content.ts';
import { ServiceCache } from '../../../src/servicecache/service-cache.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { advance } from '../../kvstore/support/settle.ts';
import { OperatorOfCluster } from '../support/operator-of-cluster.ts';
import { addressesOf, type ServedSlice, SLICES } from './support/slice-world.ts';

/** The folder with the configurations of remote clusters. */
class Folder implements ConfigSource {
  readonly clusters: Map<string, OperatorOfCluster> = new Map();
  /** Files that are not configurations. */
  readonly broken: Map<string, ConfigFile> = new Map();
  #onChange = (): void => {};

  list(): Promise<ConfigListing> {
    const listing = new Map<string, ConfigFile>();
    for (const [name, { server, clock }] of this.clusters) {
      const connect = (): MemoryBackend => new MemoryBackend({ server, clock, random: () => 0.5 });
      listing.set(name, { kind: 'config', hash: name, connect });
    }
    for (const [name, file] of this.broken) listing.set(name, file);
    return Promise.resolve(listing);
  }

  watch(onChange: () => void): (() => void) & Disposable {
    this.#onChange = onChange;
    return Object.assign(() => {}, { [Symbol.dispose]: () => {} });
  }

  changed(): void {
    this.#onChange();
  }
}

function service(ip: string): string {
  return `
apiVersion: v1
kind: Namespace
metadata: { name: shop }
---
apiVersion: v1
kind: Service
metadata:
  name: checkout
  namespace: shop
  uid: service-of-${ip}
  annotations:
    service.cilium.io/global: "true"
    service.cilium.io/global-sync-endpoint-slices: "true"
spec: { clusterIP: 10.96.0.1, ipFamilies: [IPv4], ports: [{ name: http, port: 80, protocol: TCP }] }
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: { name: checkout-x, namespace: shop, labels: { kubernetes.io/service-name: checkout } }
addressType: IPv4
ports: [{ name: http, port: 8080, protocol: TCP }]
endpoints: [{ addresses: [${ip}], conditions: { ready: true }, nodeName: node-1 }]
`;
}

const ATLANTIC_IP = '10.1.0.10';
const BALTIC_IP = '10.2.0.10';
const IN_ATLANTIC = mirroredName('checkout', 'baltic', 'checkout-x');
const IN_BALTIC = mirroredName('checkout', 'atlantic', 'checkout-x');

let clock: ManualClock;
let atlantic: OperatorOfCluster;
let baltic: OperatorOfCluster;
let folder: Folder;
const stops: (() => Promise<void>)[] = [];

function follow(cluster: OperatorOfCluster, remotes: Folder, serviceTTLMs?: number): () => Promise<void> {
  const stop = cluster.operate({
    remotes,
    serviceTTLMs,
    endpointSliceSync: { endpointsPerSlice: 100, batchMs: 500 },
  });
  stops.push(stop);
  return stop;
}

async function slicesOf(cluster: OperatorOfCluster): Promise<Readonly<Record<string, string>>> {
  const user = cluster.user(SLICES, 'shop');
  const { body } = await user.ask({ path: user.path() });
  const { items } = body as { readonly items: readonly ServedSlice[] };
  return Object.fromEntries(items.map(({ metadata, endpoints }) => [metadata.name, addressesOf(endpoints)]));
}

beforeEach(async () => {
  clock = new ManualClock();
  atlantic = new OperatorOfCluster('atlantic', 1, clock);
  baltic = new OperatorOfCluster('baltic', 2, clock);
  folder = new Folder();
  folder.clusters.set('baltic', baltic);
  await atlantic.apply(service(ATLANTIC_IP));
  await baltic.apply(service(BALTIC_IP));
});

afterEach(async () => {
  for (const stop of stops.splice(0)) await stop();
});

describe('two clusters with operators that synchronize slices', () => {
  it('write the backends of each other, and neither export nor feed them again', async () => {
    const other = new Folder();
    other.clusters.set('atlantic', atlantic);
    follow(atlantic, folder);
    follow(baltic, other);
    await advance(clock, 20_000);
    expect(await slicesOf(atlantic)).toEqual({ 'checkout-x': ATLANTIC_IP, [IN_ATLANTIC]: BALTIC_IP });
    expect(await slicesOf(baltic)).toEqual({ 'checkout-x': BALTIC_IP, [IN_BALTIC]: ATLANTIC_IP });
    const slices = [...atlantic.published('cilium/state/endpointslices/v1/').keys()];
    expect(slices).toEqual(['cilium/state/endpointslices/v1/atlantic/shop/checkout-x']);
    const key = 'cilium/state/services/v1/atlantic/shop/checkout';
    const value = atlantic.published(key).get(key) ?? new Uint8Array();
    const decoded = decodeClusterService(
      { cluster: 'atlantic', namespace: 'shop', name: 'checkout' },
      value,
      key,
    );
    expect(decoded.ok && [...decoded.value.backends.keys()]).toEqual([ATLANTIC_IP]);

    const kubernetes = new KubernetesClient(new MemoryApiTransport(atlantic.api), { clock });
    const services = new ServiceCache({ clusterName: 'atlantic' });
    const feed = new KubernetesFeed({
      source: kubernetes,
      clusterName: 'atlantic',
      nodeName: 'node-1',
      clock,
      services,
      identities: 'none',
      selection: { headless: true },
    });
    feed.start();
    await advance(clock, 5000);
    const known = services.get({ namespace: 'shop', name: 'checkout' });
    expect([...(known?.endpoints.backends.values() ?? [])].map(({ address }) => address)).toEqual([
      ATLANTIC_IP,
    ]);
    await feed.stop();
    await kubernetes.close();
  });

  it('keep the slices of a cluster that does not answer, also over a restart, until its configuration is deleted', async () => {
    const stopBaltic = baltic.operate();
    stops.push(stopBaltic);
    const stop = follow(atlantic, folder);
    await advance(clock, 20_000);
    const both = { 'checkout-x': ATLANTIC_IP, [IN_ATLANTIC]: BALTIC_IP };
    expect(await slicesOf(atlantic)).toEqual(both);
    await stop();
    folder.clusters.delete('baltic');
    folder.broken.set('baltic', { kind: 'unusable', reason: 'unreadable' });
    const again = follow(atlantic, folder);
    await advance(clock, 60_000);
    expect(await slicesOf(atlantic)).toEqual(both);
    await again();
    folder.broken.clear();
    folder.clusters.set('baltic', new OperatorOfCluster('baltic', 2, clock)); // an empty kvstore
    follow(atlantic, folder);
    await advance(clock, 60_000);
    expect(await slicesOf(atlantic)).toEqual(both);
    folder.clusters.clear();
    folder.changed();
    await advance(clock, 20_000);
    expect(await slicesOf(atlantic)).toEqual({ 'checkout-x': ATLANTIC_IP });
  });

  it.each<ConfigFile>([
    { kind: 'other' }, // regression: the slices were deleted at once
    { kind: 'unusable', reason: 'unreadable' }, // regression: the slices were kept after the file had been deleted
  ])(
    'keep the slices of a cluster while its file is $kind since the start, until the file is deleted',
    async (file) => {
      stops.push(baltic.operate());
      const stop = follow(atlantic, folder);
      await advance(clock, 20_000);
      await stop();
      folder.clusters.clear();
      folder.broken.set('baltic', file);
      follow(atlantic, folder);
      await advance(clock, 60_000);
      expect(await slicesOf(atlantic)).toEqual({ 'checkout-x': ATLANTIC_IP, [IN_ATLANTIC]: BALTIC_IP });
      folder.broken.clear();
      folder.changed();
      await advance(clock, 20_000);
      expect(await slicesOf(atlantic)).toEqual({ 'checkout-x': ATLANTIC_IP });
    },
  );

  it('delete the slices of a cluster after the service TTL, also if it was never reached, and write them again', async () => {
    stops.push(baltic.operate());
    const stop = follow(atlantic, folder, 60_000);
    await advance(clock, 20_000);
    const [own, both] = [
      { 'checkout-x': ATLANTIC_IP },
      { 'checkout-x': ATLANTIC_IP, [IN_ATLANTIC]: BALTIC_IP },
    ];
    const cut = (): void => {
      const connect = (): never => {
        throw new Error('unreachable');
      };
      folder.clusters.clear();
      folder.broken.set('baltic', { kind: 'config', hash: 'other', connect });
      folder.changed();
    };
    const reconnect = async (): Promise<void> => {
      folder.broken.clear();
      folder.clusters.set('baltic', baltic);
      folder.changed();
      await advance(clock, 80_000);
    };
    const expectExpiry = async (): Promise<void> => {
      await advance(clock, 50_000);
      expect(await slicesOf(atlantic)).toEqual(both);
      await advance(clock, 20_000);
      expect(await slicesOf(atlantic)).toEqual(own);
    };
    cut();
    await expectExpiry();
    await reconnect();
    expect(await slicesOf(atlantic)).toEqual(both);
    await stop();
    cut();
    follow(atlantic, folder, 60_000);
    await expectExpiry();
    await reconnect();
    expect(await slicesOf(atlantic)).toEqual(both);
  });

  it('delete the slice of a service that the other cluster does not share any more', async () => {
    stops.push(baltic.operate());
    follow(atlantic, folder);
    await advance(clock, 20_000);
    expect(Object.keys(await slicesOf(atlantic))).toContain(IN_ATLANTIC);
    const services = baltic.user({ group: '', version: 'v1', plural: 'services' }, 'shop');
    await services.patch('checkout', { metadata: { annotations: { 'service.cilium.io/shared': 'false' } } });
    await advance(clock, 20_000);
    expect(await slicesOf(atlantic)).toEqual({ 'checkout-x': ATLANTIC_IP });
  });
});
