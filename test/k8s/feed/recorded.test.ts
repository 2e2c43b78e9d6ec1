import { readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { decodeClusterService } from '../../../src/kvstore/codec/cluster-service.ts';
import { decodeIdentity } from '../../../src/kvstore/codec/identity.ts';
import { decodeIPIdentityPair } from '../../../src/kvstore/codec/ip-identity-pair.ts';
import { decodeNode } from '../../../src/kvstore/codec/node.ts';
import { formatLabels } from '../../../src/model/labels.ts';
import type { Decoded } from '../../../src/net/fields.ts';
import type { PortProtocol } from '../../../src/net/port.ts';
import { FakeCluster, type SaidObject } from './support/fake-cluster.ts';
import { FeedWorld } from './support/feed-world.ts';

/** Objects that Cilium 1.17's clustermesh-apiserver received, and the key that it wrote for them. */
interface Pair {
  readonly from: string;
  readonly clusterID: number;
  readonly objects: readonly (SaidObject & { readonly kind: string })[];
  readonly key: string;
  readonly value: string;
}

/** Cases whose result differs from the program's, with the reason. */
const DIFFERENT: ReadonlyMap<string, string> = new Map([
  [
    'cilium/state/nodes/v1/atlantic/n6',
    'health IPs of the other family: left out here, the whole key is refused',
  ],
  [
    'cilium/state/nodes/v1/atlantic/n7',
    'a key above 255: the node is refused here, the program cuts it to 8 bits',
  ],
  ['cilium/state/ip/v1/default/10.1.0.13', 'no node: nothing here (K 30), the program writes no host'],
  [
    'clustermesh 94: cilium/state/identities/v1/id/1001',
    'no labels any more: the program leaves the old value',
  ],
  ['cilium/state/identities/v1/id/1002', 'a value with `;`: the labels cannot be read back'],
  ['cilium/state/identities/v1/id/abc', 'no number: refused here (K 44)'],
  ['cilium/state/services/v1/atlantic/shop/overlap', 'one address in two slices: SEMANTICS 3.2'],
]);

const PLURALS: Readonly<Record<string, string>> = {
  CiliumNode: 'ciliumnodes',
  CiliumEndpoint: 'ciliumendpoints',
  CiliumIdentity: 'ciliumidentities',
  Service: 'services',
  Endpoints: 'endpoints',
  EndpointSlice: 'endpointslices',
};

// test/conformance/traces are recordings of the engines; these are recordings of the producers.
const pairs = gunzipSync(readFileSync(new URL('recorded/operator-pairs.jsonl.gz', import.meta.url)))
  .toString()
  .trimEnd()
  .split('\n')
  .map((line): Pair => JSON.parse(line));

function pairsOf(resource: string): readonly (readonly [string, Pair])[] {
  const found = pairs.filter(({ key }) => key.split('/')[2] === resource);
  return found
    .map((pair) => [`${pair.from}: ${pair.key}`, pair] as const)
    .filter(([title]) => ![...DIFFERENT.keys()].some((different) => title.endsWith(` ${different}`)));
}

/** Returns a world that has received the objects from Kubernetes. */
async function given({ objects, clusterID }: Pair): Promise<FeedWorld> {
  const cluster = new FakeCluster();
  if (objects.some(({ kind }) => kind === 'Endpoints')) cluster.missing.add('endpointslices');
  for (const object of objects) cluster.put(PLURALS[object.kind] ?? '', object);
  const world = await new FeedWorld({ clusterID, nodeName: 'another' }, cluster).started();
  world.services.markSynced();
  return world;
}

function decodedValue<T>(decoded: Decoded<T>): T {
  if (!decoded.ok) throw new Error(decoded.rejection.message);
  return decoded.value;
}

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);

type PortsByAddress = ReadonlyMap<string, ReadonlyMap<string, PortProtocol>>;

function plainPorts(addresses: Iterable<readonly [string, ReadonlyMap<string, PortProtocol>]>): object {
  return Object.fromEntries(
    [...addresses].map(([address, ports]) => [
      address,
      Object.fromEntries([...ports].map(([name, { port, protocol }]) => [name, `${port}/${protocol}`])),
    ]),
  );
}

describe('the result from Kubernetes equals the one from the etcd of the same cluster', () => {
  it.each(pairsOf('nodes'))('%s', async (_, pair) => {
    const world = await given(pair);
    const name = pair.key.split('/').at(-1) ?? '';
    const other = new FeedWorld();
    const value = decodedValue(decodeNode({ cluster: 'atlantic', name }, bytes(pair.value), pair.key));
    other.nodes.nodeUpdated({ source: 'custom-resource', ...value });
    expect(world.nodes.get(`atlantic/${name}`)?.toJSON()).toEqual(
      other.nodes.get(`atlantic/${name}`)?.toJSON(),
    );
    expect([...world.ipcache.entries()]).toEqual([...other.ipcache.entries()]);
  });

  it.each(pairsOf('ip'))('%s', async (_, pair) => {
    const world = await given(pair);
    const name = pair.key.split('/').at(-1) ?? '';
    const said = decodedValue(decodeIPIdentityPair(name, bytes(pair.value), pair.key));
    // The apiserver writes 0 if the endpoint has no identity; here it is unmanaged (K 31).
    const identity = said.identity === 0 ? 3 : said.identity;
    const other = new FeedWorld();
    other.ipcache.upsert(name, { ...said, identity, source: 'custom-resource' });
    const found = world.ipcache.get(name);
    // Nor does it write named ports.
    const k8s = found?.k8s && { ...found.k8s, namedPorts: undefined };
    expect({ ...found, k8s }).toEqual(other.ipcache.get(name));
  });

  it.each(pairsOf('identities'))('%s', async (_, pair) => {
    const { identities } = (await given(pair)).feed;
    const name = pair.key.split('/').at(-1) ?? '';
    const said = decodedValue(decodeIdentity(name, bytes(pair.value), pair.key));
    expect(formatLabels(identities.lookupByID(said.id) ?? [])).toBe(formatLabels(said.labels));
  });

  it.each(pairsOf('services'))('%s', async (_, pair) => {
    const world = await given(pair);
    const [namespace = '', name = ''] = pair.key.split('/').slice(-2);
    const at = { cluster: 'atlantic', namespace, name };
    const said = decodedValue(decodeClusterService(at, bytes(pair.value), pair.key));
    const found = world.services.get({ namespace, name });
    const backends: PortsByAddress = new Map(
      [...(found?.endpoints.backends ?? [])].map(([address, { ports }]) => [address, new Map(ports)]),
    );
    expect(plainPorts(backends)).toEqual(plainPorts(said.backends));
    const ports = new Map(found?.service.ports);
    const frontends = new Map([...(found?.service.clusterIPs ?? [])].map((address) => [address, ports]));
    expect(plainPorts(frontends)).toEqual(plainPorts(said.frontends));
    expect(new Map(found?.service.labels)).toEqual(said.labels);
    expect(new Map(found?.service.selector)).toEqual(said.selector);
    expect(found?.service.shared).toBe(said.shared);
  });
});
