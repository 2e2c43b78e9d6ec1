import { MemoryBackend } from '../../../src/kvstore/memory/memory-backend.ts';
import type { MemoryServer } from '../../../src/kvstore/memory/memory-server.ts';
import { backendsOf, derivedName, exportsOf, withoutStates } from './model.ts';
import { KEY } from './objects.ts';
import {
  type Cluster,
  identityOf,
  isPublished,
  labelsOf,
  nodeAddresses,
  podAddresses,
  serviceAddresses,
  splitName,
  type World,
} from './world.ts';

/** The keys of a kvstore with their values. Values with times, or in a binary format, are `written`. */
export type Keys = Readonly<Record<string, unknown>>;

const WRITTEN = 'written';
const FAMILIES = ['ipv4', 'ipv6'] as const;

/** Returns the keys below `cilium/state/` which the operator of a cluster writes. */
function stateKeys(cluster: Cluster): Keys {
  return Object.fromEntries([
    ...podKeys(cluster),
    ...nodeKeys(cluster),
    ...serviceKeys(cluster),
    ...exportsOf(cluster).map((name) => [`serviceexports/v1/${cluster.name}/${name}`, WRITTEN] as const),
  ]);
}

function* podKeys(cluster: Cluster): Iterable<readonly [string, unknown]> {
  for (const [fullName, pod] of Object.entries(cluster.pods)) {
    const node = cluster.nodes[pod.node];
    if (node === undefined || !isPublished(cluster, fullName)) continue;
    const [K8sNamespace, K8sPodName] = splitName(fullName);
    const ID = identityOf(cluster, fullName, pod);
    yield [`identities/v1/id/${ID}`, `${labelsOf(cluster, fullName, pod).join(';')};`];
    if (pod.phase === 'creating') continue;
    const [HostIP] = nodeAddresses(cluster, node).internal;
    const NamedPorts = [{ Name: 'http', Port: 8080, Protocol: 'TCP' }];
    const ofPod = { K8sNamespace, K8sPodName, K8sServiceAccount: pod.app, NamedPorts };
    for (const IP of podAddresses(cluster, pod))
      yield [`ip/v1/default/${IP}`, { IP, Mask: null, HostIP, ID, Key: KEY, Metadata: '', ...ofPod }];
  }
}

function* nodeKeys(cluster: Cluster): Iterable<readonly [string, unknown]> {
  for (const [Name, node] of Object.entries(cluster.nodes)) {
    const { internal, router, health, ingress, number } = { ...nodeAddresses(cluster, node), ...node };
    const typed = (Type: string, ips: readonly string[]): readonly object[] =>
      ips.map((IP) => ({ Type, IP }));
    yield [
      `nodes/v1/${cluster.name}/${Name}`,
      {
        Name,
        Cluster: cluster.name,
        IPAddresses: [...typed('InternalIP', internal), ...typed('CiliumInternalIP', router)],
        IPv4AllocCIDR: { IP: `10.${cluster.id}.${number}.0`, Mask: '////AA==' },
        IPv4SecondaryAllocCIDRs: null,
        IPv6AllocCIDR: { IP: `fd00:10:${cluster.id}:${number}::`, Mask: '//////////8AAAAAAAAAAA==' },
        IPv6SecondaryAllocCIDRs: null,
        IPv4HealthIP: health[0],
        IPv6HealthIP: health[1],
        IPv4IngressIP: ingress[0],
        IPv6IngressIP: ingress[1],
        ClusterID: cluster.id,
        Source: 'custom-resource',
        EncryptionKey: KEY,
        Labels: { 'kubernetes.io/hostname': Name },
        Annotations: null,
        NodeIdentity: 0,
        WireguardPubKey: '',
        BootID: '',
      },
    ];
  }
}

function* serviceKeys(cluster: Cluster): Iterable<readonly [string, unknown]> {
  const { name, id } = cluster;
  const backends = (service: string): unknown => {
    const ips = withoutStates(backendsOf(cluster, service)).flatMap(({ pod }) => podAddresses(cluster, pod));
    return Object.fromEntries(ips.sort().map((ip) => [ip, { http: { Protocol: 'TCP', Port: 8080 } }]));
  };
  for (const [fullName, service] of Object.entries(cluster.services)) {
    if (!isPublished(cluster, fullName) || !service.isGlobal || service.isShared === false) continue;
    const [namespace, serviceName] = splitName(fullName);
    const frontends = serviceAddresses(cluster, service).map((ip) => [
      ip,
      { http: { Protocol: 'TCP', Port: 80 } },
    ]);
    yield [
      `services/v1/${name}/${fullName}`,
      {
        cluster: name,
        namespace,
        name: serviceName,
        frontends: Object.fromEntries(frontends),
        backends: backends(fullName),
        hostnames: {},
        labels: {},
        selector: { app: service.app },
        includeExternal: true,
        shared: true,
        clusterID: id,
      },
    ];
    for (const family of FAMILIES) yield [`endpointslices/v1/${name}/${fullName}-${family}`, WRITTEN];
  }
  for (const derived of exportsOf(cluster).map(derivedName)) {
    yield [`services/v1/${name}/${derived}`, WRITTEN];
    for (const family of FAMILIES) yield [`endpointslices/v1/${name}/${derived}-${family}`, WRITTEN];
  }
}

/** Returns the key of a copy: those of addresses and identities contain the name of the cluster only in copies. */
function copiedKey(cluster: string, key: string): string {
  return key
    .replace(/^ip\/v1\/default\//, `ip/v1/${cluster}/`)
    .replace(/^identities\/v1\//, `identities/v1/${cluster}/`);
}

/** Returns all keys that the operator and kvstoremesh of a cluster write. */
export function expectedKeys({ clusters }: World, cluster: Cluster): Keys {
  const own = Object.entries(stateKeys(cluster)).map(
    ([key, value]) => [`cilium/state/${key}`, value] as const,
  );
  const copies = [...cluster.remotes].flatMap((name) => {
    const remote = clusters[name];
    if (remote === undefined) return [];
    return Object.entries(stateKeys(remote)).map(
      ([key, value]) => [`cilium/cache/${copiedKey(name, key)}`, value] as const,
    );
  });
  return Object.fromEntries([...own, ...copies]);
}

/** Returns the keys of a kvstore below `cilium/state/` and `cilium/cache/`. */
export async function keysOf(server: MemoryServer): Promise<Keys> {
  const client = new MemoryBackend({ server });
  const found: Record<string, unknown> = {};
  for (const { key, value } of await client.listPrefix('cilium/')) {
    if (!/^cilium\/(state|cache)\//.test(key)) continue;
    const text = Buffer.from(value).toString();
    const isPlain =
      /\/(ip|nodes)\/v1\//.test(key) || (/\/services\/v1\//.test(key) && !key.includes('/derived-'));
    if (key.includes('/identities/')) found[key] = text;
    else if (isPlain) found[key] = JSON.parse(text);
    else found[key] = WRITTEN;
  }
  await client.close();
  return found;
}
