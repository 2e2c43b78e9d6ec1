import { expect, it, onTestFinished } from 'vitest';
import { KubernetesFeed } from '../../../src/k8s/feed/kubernetes-feed.ts';
import { KubernetesClient } from '../../../src/k8s/kubernetes-client.ts';
import type { MemoryApiServer } from '../../../src/k8s/memory/memory-api-server.ts';
import { MemoryApiTransport } from '../../../src/k8s/memory/memory-api-transport.ts';
import { textOfBytes } from '../../../src/kvstore/codec/bytes.ts';
import { ServiceCache } from '../../../src/servicecache/service-cache.ts';
import { ApiUser } from '../../k8s/support/api-user.ts';
import { protoFields, zstdProgram } from '../../kvstore/codec/support/slice-proto.ts';
import { advance, settle } from '../../kvstore/support/settle.ts';
import { OperatorOfCluster } from '../support/operator-of-cluster.ts';

const ID = { namespace: 'shop', name: 'db-rw' };
const SLICES = { group: 'discovery.k8s.io', version: 'v1', plural: 'endpointslices' };
const labels = { 'kubernetes.io/service-name': ID.name };

const contentOf = (ip: string): object => ({
  addressType: 'IPv4',
  endpoints: [{ addresses: [ip], conditions: { ready: true } }],
  ports: [{ name: 'sql', port: 5432, protocol: 'TCP' }],
});

const OBJECTS = [
  { apiVersion: 'v1', kind: 'Namespace', metadata: { name: ID.namespace } },
  {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { ...ID, annotations: { 'service.cilium.io/global': 'true' } },
    spec: { clusterIP: '172.16.0.1', ports: [{ name: 'sql', port: 5432 }] },
  },
  {
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    ...contentOf('10.0.0.1'),
    metadata: { namespace: ID.namespace, name: 'db-rw-1', labels },
  },
]
  .map((object) => JSON.stringify(object))
  .join('\n---\n');

type Change = () => Promise<unknown>;

const OUTAGES: Readonly<Record<string, (api: MemoryApiServer, change: Change) => Promise<void>>> = {
  'while the API server is down': async (api, change) => {
    api.down();
    await change();
    api.up();
  },
  'after the API server is back, before anybody has connected again': async (api, change) => {
    api.down();
    await settle(4);
    api.up();
    await change();
  },
  'while connections are cut and the cache of the API server is behind': async (api, change) => {
    api.holdCache();
    api.cut();
    await change();
    await settle(8);
    api.releaseCache();
  },
  'while watches end, and is compacted': async (api, change) => {
    api.endWatches();
    await change();
    api.compact();
  },
  'while the API server is paused, whose connections then break': async (api, change) => {
    api.pause();
    await change();
    await settle(4);
    api.cut();
    api.resume();
  },
};

it.each(Object.keys(OUTAGES))(
  'the last change of a slice that happens %s is applied whole, although nothing follows (Cilium issue 48050)',
  async (outage) => {
    const cluster = new OperatorOfCluster('a', 1);
    const { api, clock } = cluster;
    await cluster.apply(OBJECTS);
    onTestFinished(cluster.operate());
    const source = new KubernetesClient(new MemoryApiTransport(api), { clock, random: () => 0.5 });
    const services = new ServiceCache({ clusterName: 'a' });
    const feed = new KubernetesFeed({
      source,
      services,
      clock,
      random: () => 0.5,
      clusterName: 'a',
      nodeName: 'n1',
      identities: 'none',
    });
    onTestFinished(async () => {
      await feed.stop();
      await source.close();
    });
    services.markSynced();
    feed.start();
    await advance(clock, 3000);

    const addresses = (): unknown => {
      const value = (prefix: string): Uint8Array | undefined => [...cluster.published(prefix).values()][0];
      const service = textOfBytes(value('cilium/state/services/v1/a/') ?? new Uint8Array()) ?? '';
      const slice = zstdProgram(['-d'], value('cilium/state/endpointslices/v1/a/') ?? new Uint8Array());
      const { endpoints } = protoFields(slice) as { readonly endpoints: { readonly addresses: string[] }[] };
      return {
        agent: [...(services.get(ID)?.endpoints.backends.keys() ?? [])],
        service: service.match(/10\.0\.0\.\d/g),
        slice: endpoints.flatMap((endpoint) => endpoint.addresses),
      };
    };
    const all = (...ips: string[]): object => ({ agent: ips, service: ips, slice: ips });
    expect(addresses()).toEqual(all('10.0.0.1'));

    // Another API server with the same etcd accepts the write.
    const elsewhere = new MemoryApiTransport({ handle: (request) => api.handleElsewhere(request) });
    const user = new ApiUser(elsewhere, SLICES, ID.namespace);
    // The new primary replaces the old one in one write.
    await OUTAGES[outage]?.(api, () => user.patch('db-rw-1', contentOf('10.0.0.2')));
    await advance(clock, 120_000);
    expect(addresses()).toEqual(all('10.0.0.2'));
  },
);
