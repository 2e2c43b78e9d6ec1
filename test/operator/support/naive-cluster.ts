import ipaddr from 'ipaddr.js';

/**
 * Returns the kvstore content for the objects of a cluster, computed from the objects each time without the
 * parsers, caches and codecs of the program.
 */

/** An object of the API server. */
export interface NaiveObject {
  readonly kind: string;
  readonly metadata: {
    readonly name: string;
    readonly namespace?: string;
    readonly labels?: Readonly<Record<string, string>>;
    readonly annotations?: Readonly<Record<string, string>>;
    readonly [field: string]: unknown;
  };
  readonly [field: string]: unknown;
}

/** The objects of a cluster, and the clusters for which they are written. */
export interface NaiveCluster {
  readonly name: string;
  readonly id: number;
  readonly version: '1.8' | '1.17';
  readonly slices: boolean;
  readonly proxyName?: string | undefined;
  /** Creation time of an object in seconds: of two objects that list an address the younger has it. */
  readonly createdAt: (object: NaiveObject) => number;
  /**
   * Whether a Namespace without the annotation is global; undefined: all namespaces are exported, also unknown ones.
   */
  readonly globalByDefault?: boolean | undefined;
  /** Resources that are written. */
  readonly resources: ReadonlySet<string>;
}

interface RawPort {
  readonly name?: string;
  readonly port: number;
  readonly protocol?: string;
}

interface RawService extends NaiveObject {
  readonly spec: {
    readonly type?: string;
    readonly clusterIP?: string;
    readonly clusterIPs?: readonly string[];
    readonly ports?: readonly RawPort[] | null;
    readonly selector?: Readonly<Record<string, string>>;
  };
}

/** An EndpointSlice, or Endpoints. */
interface RawEndpoints extends NaiveObject {
  readonly addressType?: string;
  readonly ports?: readonly RawPort[] | null;
  readonly endpoints?:
    | readonly {
        readonly addresses?: readonly string[];
        readonly hostname?: string;
        readonly zone?: string;
        readonly topology?: Readonly<Record<string, string>>;
        readonly hints?: { readonly forZones?: readonly { readonly name: string }[] };
        readonly conditions?: { readonly ready?: boolean; readonly terminating?: boolean };
      }[]
    | null;
  readonly subsets?: readonly {
    readonly addresses?: readonly { readonly ip: string; readonly hostname?: string }[];
    readonly ports?: readonly RawPort[] | null;
  }[];
}

interface RawNode extends NaiveObject {
  readonly spec?: {
    readonly addresses?: readonly { readonly type: string; readonly ip: string }[];
    readonly encryption?: { readonly key?: number };
    readonly health?: { readonly ipv4?: string; readonly ipv6?: string };
    readonly ingress?: { readonly ipv4?: string; readonly ipv6?: string };
    readonly ipam?: { readonly podCIDRs?: readonly string[] };
    readonly nodeidentity?: number;
    readonly bootid?: string;
  };
}

interface RawEndpoint extends NaiveObject {
  readonly status?: {
    readonly identity?: { readonly id?: number };
    readonly encryption?: { readonly key?: number };
    readonly networking?: {
      readonly node?: string;
      readonly addressing?: readonly { readonly ipv4?: string; readonly ipv6?: string }[];
    };
    readonly 'named-ports'?: readonly RawPort[];
    readonly 'service-account'?: string;
  };
}

type Ports = Record<string, { Protocol: string; Port: number }>;

/** Returns the canonical address; undefined if the value is no address. */
function canonical(ip: unknown): string | undefined {
  if (typeof ip !== 'string' || !ipaddr.isValid(ip)) return undefined;
  if (!ip.includes(':') && ip.split('.').length !== 4) return undefined;
  return ipaddr.process(ip).toString();
}

function family(ip: unknown): 4 | 6 | undefined {
  const address = canonical(ip);
  return address === undefined ? undefined : address.includes(':') ? 6 : 4;
}

function text(value: unknown): string {
  return JSON.stringify(value, (_, part) =>
    typeof part === 'object' && part !== null && !Array.isArray(part)
      ? Object.fromEntries(Object.entries(part).sort(([a], [b]) => (a < b ? -1 : 1)))
      : part,
  );
}

/** Returns the value with its fields in a fixed order; text that is no JSON is unchanged. */
export function comparableValue(value: string): string {
  try {
    return text(JSON.parse(value));
  } catch {
    return value;
  }
}

function said(metadata: NaiveObject['metadata'], ...names: string[]): string | undefined {
  const found = names.map((name) => metadata.annotations?.[name]).find((value) => value !== undefined);
  return found?.toLowerCase();
}

/** Returns true if a service's annotations share it. */
export function isSharedService({ metadata }: NaiveObject, version: '1.8' | '1.17'): boolean {
  const global = said(metadata, 'service.cilium.io/global', 'io.cilium/global-service') === 'true';
  const shared = said(metadata, 'service.cilium.io/shared', 'io.cilium/shared-service');
  const isShared = shared === undefined ? global : shared === 'true';
  return isShared && (version === '1.8' || global);
}

function portsOf(list: readonly RawPort[] | null | undefined): Ports {
  const ports: Ports = {};
  for (const { name, port, protocol } of list ?? [])
    if (port > 0 && port < 65536) ports[name ?? ''] = { Protocol: protocol || 'TCP', Port: port };
  return ports;
}

export function firstPorts(list: readonly RawPort[] | null | undefined): Ports {
  return portsOf([...(list ?? [])].reverse());
}

interface Slice {
  readonly name: string;
  readonly backends: Map<string, Ports>;
}

/** Returns the slices of a service, or its Endpoints as one slice. */
export function slicesOf(objects: readonly NaiveObject[], service: NaiveObject, slices: boolean): Slice[] {
  const { name, namespace } = service.metadata;
  const found: Slice[] = [];
  for (const object of objects as readonly RawEndpoints[]) {
    if (object.metadata.namespace !== namespace) continue;
    const backends = new Map<string, Ports>();
    if (slices && object.kind === 'EndpointSlice') {
      if (object.metadata.labels?.['kubernetes.io/service-name'] !== name) continue;
      if (object.addressType === 'FQDN') continue;
      for (const { addresses, conditions } of object.endpoints ?? [])
        for (const ip of (addresses ?? []).flatMap((one) => canonical(one) ?? []))
          if (conditions?.ready !== false && !backends.has(ip)) backends.set(ip, portsOf(object.ports));
    } else if (!slices && object.kind === 'Endpoints' && object.metadata.name === name) {
      for (const { addresses, ports } of object.subsets ?? [])
        for (const ip of (addresses ?? []).flatMap((one) => canonical(one.ip) ?? []))
          backends.set(ip, { ...backends.get(ip), ...portsOf(ports) });
    } else continue;
    found.push({ name: object.metadata.name, backends });
  }
  return found.sort((a, b) => (a.name < b.name ? -1 : 1));
}

function serviceValue(
  objects: readonly NaiveObject[],
  service: RawService,
  { name: cluster, id, version, slices }: NaiveCluster,
): unknown {
  const { spec, metadata } = service;
  if (!['ClusterIP', 'NodePort', 'LoadBalancer'].includes(spec.type ?? 'ClusterIP')) return undefined;
  const first = spec.clusterIP ?? spec.clusterIPs?.[0] ?? '';
  if (first === '' || !isSharedService(service, version)) return undefined;
  const found = slicesOf(objects, service, slices);
  if (found.length === 0) return undefined;
  const backends: Record<string, Ports> = {};
  for (const slice of found)
    for (const [ip, ports] of slice.backends) backends[ip] = { ...ports, ...backends[ip] };
  const ips = first === 'None' ? [] : (spec.clusterIPs ?? [first]).flatMap((ip) => canonical(ip) ?? []);
  const frontends = Object.fromEntries(
    (version === '1.8' ? ips.slice(0, 1) : ips).map((ip) => [ip, firstPorts(spec.ports)]),
  );
  const names = { cluster, namespace: metadata.namespace, name: metadata.name };
  const both = {
    ...names,
    frontends,
    backends,
    labels: metadata.labels ?? {},
    selector: spec.selector ?? {},
  };
  if (version === '1.8') return both;
  const hostnames: Record<string, string> = {};
  const zones: Record<string, object> = {};
  for (const object of objects as readonly RawEndpoints[])
    for (const { hostname = '', addresses, zone = '', hints } of endpointsOf(object, metadata, slices))
      for (const ip of addresses.flatMap((one) => canonical(one) ?? [])) {
        if (hostname !== '' && backends[ip] !== undefined) hostnames[ip] ??= hostname;
        if (zone !== '' && backends[ip] !== undefined)
          zones[ip] ??= { zone, forZones: hints?.forZones ?? [] };
      }
  const includeExternal = said(metadata, 'service.cilium.io/global', 'io.cilium/global-service') === 'true';
  const located = Object.keys(zones).length === 0 ? {} : { zones };
  return { ...both, hostnames, ...located, includeExternal, shared: true, clusterID: id };
}

interface LocatedAddresses {
  readonly hostname?: string | undefined;
  readonly zone?: string | undefined;
  readonly hints?: { readonly forZones?: readonly object[] } | undefined;
  readonly addresses: readonly string[];
}

function endpointsOf(
  object: RawEndpoints,
  { name, namespace }: NaiveObject['metadata'],
  slices: boolean,
): readonly LocatedAddresses[] {
  if (object.metadata.namespace !== namespace) return [];
  if (slices && object.kind === 'EndpointSlice')
    return object.metadata.labels?.['kubernetes.io/service-name'] === name
      ? (object.endpoints ?? []).map((endpoint) => ({
          ...endpoint,
          zone: endpoint.zone ?? endpoint.topology?.['topology.kubernetes.io/zone'],
          addresses: endpoint.addresses ?? [],
        }))
      : [];
  if (slices || object.kind !== 'Endpoints' || object.metadata.name !== name) return [];
  return (object.subsets ?? []).flatMap(({ addresses = [] }) =>
    addresses.map(({ ip, hostname }) => ({ hostname, addresses: [ip] })),
  );
}

function maskOf(bits: number, length: number): string {
  const bytes = Array.from(
    { length: bits / 8 },
    (_, i) => (0xff00 >> Math.min(8, Math.max(0, length - 8 * i))) & 0xff,
  );
  return Buffer.from(bytes).toString('base64');
}

interface CIDRValue {
  readonly IP: string;
  readonly Mask: string;
}

/** Returns a CIDR without host bits, as marshalled by Go. */
export function cidrValue(cidr: string): { family: 4 | 6; value: CIDRValue } | undefined {
  if (!ipaddr.isValidCIDR(cidr)) return undefined;
  const [address, length] = ipaddr.parseCIDR(cidr);
  const isMapped = address.kind() === 'ipv6' && (address as ipaddr.IPv6).isIPv4MappedAddress();
  const plain = isMapped ? (address as ipaddr.IPv6).toIPv4Address() : address;
  const bits = isMapped ? length - 96 : length;
  const size = plain.kind() === 'ipv4' ? 32 : 128;
  const bytes = plain
    .toByteArray()
    .map((byte, i) => byte & (0xff00 >> Math.min(8, Math.max(0, bits - 8 * i))));
  const IP = ipaddr.fromByteArray(bytes).toString();
  return { family: size === 32 ? 4 : 6, value: { IP, Mask: maskOf(size, bits) } };
}

function nodeValue(
  { metadata, spec = {} }: RawNode,
  { name: Cluster, id: ClusterID, version }: NaiveCluster,
): unknown {
  const EncryptionKey = spec.encryption?.key ?? 0;
  if (metadata['deletionTimestamp'] !== undefined || EncryptionKey > 255 || EncryptionKey < 0)
    return undefined;
  const cidrs = (spec.ipam?.podCIDRs ?? []).flatMap((cidr) => cidrValue(cidr) ?? []);
  const of = (which: 4 | 6): readonly CIDRValue[] =>
    cidrs.filter((cidr) => cidr.family === which).map(({ value }) => value);
  const ip = (address: unknown, which: 4 | 6): string =>
    family(address) === which ? (canonical(address) ?? '') : '';
  const orNull = <T extends object>(map: T | undefined): T | null =>
    map === undefined || Object.keys(map).length === 0 ? null : map;
  const addresses = (spec.addresses ?? []).flatMap(({ type: Type, ip: one }) => {
    const IP = canonical(one);
    return IP === undefined ? [] : { Type, IP };
  });
  const rest = (list: readonly CIDRValue[]): readonly CIDRValue[] | null =>
    list.length > 1 ? list.slice(1) : null;
  const annotations = metadata.annotations ?? {};
  return {
    Name: metadata.name,
    Cluster,
    IPAddresses: addresses.length === 0 ? null : addresses,
    IPv4AllocCIDR: of(4)[0] ?? null,
    IPv6AllocCIDR: of(6)[0] ?? null,
    IPv4HealthIP: ip(spec.health?.ipv4, 4),
    IPv6HealthIP: ip(spec.health?.ipv6, 6),
    ClusterID,
    Source: 'custom-resource',
    EncryptionKey,
    Labels: orNull(metadata.labels),
    ...(version === '1.8'
      ? {}
      : {
          IPv4SecondaryAllocCIDRs: rest(of(4)),
          IPv6SecondaryAllocCIDRs: rest(of(6)),
          IPv4IngressIP: ip(spec.ingress?.ipv4, 4),
          IPv6IngressIP: ip(spec.ingress?.ipv6, 6),
          Annotations: orNull(annotations),
          NodeIdentity: spec.nodeidentity ?? 0,
          WireguardPubKey:
            annotations['network.cilium.io/wg-pub-key'] ?? annotations['io.cilium.network.wg-pub-key'] ?? '',
          BootID: spec.bootid ?? '',
        }),
  };
}

/** Returns the distinct addresses of an endpoint; none if it has no node. */
function listedBy({ status }: RawEndpoint): readonly string[] {
  const { node, addressing = [] } = status?.networking ?? {};
  if (canonical(node) === undefined) return [];
  const all = addressing.flatMap(({ ipv4, ipv6 }) => [ipv4, ipv6]);
  return [...new Set(all.flatMap((ip) => canonical(ip) ?? []))];
}

export function ipValue(ip: string, { metadata, status = {} }: RawEndpoint): unknown {
  const ports = new Map<string, unknown>();
  for (const { name, port, protocol } of status['named-ports'] ?? [])
    if (name) ports.set(name, { Name: name, Port: port, Protocol: protocol || 'TCP' });
  return {
    IP: ip,
    Mask: null,
    HostIP: canonical(status.networking?.node),
    ID: status.identity?.id ?? 0,
    Key: status.encryption?.key ?? 0,
    Metadata: '',
    K8sNamespace: metadata.namespace,
    K8sPodName: metadata.name,
    ...(status['service-account'] ? { K8sServiceAccount: status['service-account'] } : {}),
    ...(ports.size === 0 ? {} : { NamedPorts: [...ports.values()] }),
  };
}

export function identityValue(
  { 'security-labels': labels = {} }: NaiveObject,
  { name: cluster }: NaiveCluster,
): string | undefined {
  const all = Object.entries(labels as Readonly<Record<string, string>>).map(([name, value]) => {
    const [, source = 'unspec', key = name] = /^([^:]*):(.*)$/.exec(name) ?? [];
    return { source, key, value };
  });
  if (all.length === 0) return undefined;
  const named = all.find(({ key }) => key === 'io.cilium.k8s.policy.cluster');
  if (named === undefined) all.push({ source: 'k8s', key: 'io.cilium.k8s.policy.cluster', value: cluster });
  else if (named.source !== 'k8s' || named.value !== cluster) return undefined;
  all.sort((a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : a.source < b.source ? -1 : 1));
  return all.map((one) => `${one.source}:${one.key}=${one.value};`).join('');
}

/** Returns the namespaces whose objects are exported; undefined: all. */
function globalNamespaces(
  objects: readonly NaiveObject[],
  { globalByDefault }: NaiveCluster,
): ReadonlySet<string> | undefined {
  if (globalByDefault === undefined) return undefined;
  const global = objects.filter(({ kind, metadata }) => {
    const value = metadata.annotations?.['clustermesh.cilium.io/global'];
    return kind === 'Namespace' && (value === undefined ? globalByDefault : value.toLowerCase() === 'true');
  });
  return new Set(global.map(({ metadata }) => metadata.name));
}

/** Returns the expected content of the kvstore: values by key, comparable by {@link comparableValue}. */
export function naiveKeys(
  objects: Iterable<NaiveObject>,
  cluster: NaiveCluster,
): ReadonlyMap<string, string> {
  const existing = [...objects];
  const global = globalNamespaces(existing, cluster);
  const namespaceOf = ({ kind, metadata, 'security-labels': labels }: NaiveObject): string | undefined =>
    kind === 'CiliumIdentity'
      ? (labels as Readonly<Record<string, string>>)['k8s:io.kubernetes.pod.namespace']
      : metadata.namespace;
  const all = existing.filter(
    (object) => object.kind === 'CiliumNode' || (global?.has(namespaceOf(object) ?? '') ?? true),
  );
  const keys = new Map<string, string>();
  const put = (resource: string, key: string, value: unknown): void => {
    if (value === undefined || !cluster.resources.has(resource)) return;
    keys.set(`cilium/state/${resource}/v1/${key}`, typeof value === 'string' ? value : text(value));
  };
  const isSelected = ({ labels = {} }: NaiveObject['metadata']): boolean =>
    labels['service.kubernetes.io/service-proxy-name'] === cluster.proxyName &&
    (cluster.version === '1.17' || !('service.kubernetes.io/headless' in labels));
  const isServiceEndpoints = (object: NaiveObject): boolean =>
    object.kind === 'EndpointSlice' || isSelected(object.metadata);
  const followed = all.filter(isServiceEndpoints);
  for (const object of all) {
    const { name, namespace } = object.metadata;
    if (object.kind === 'Service' && isSelected(object.metadata))
      put(
        'services',
        `${cluster.name}/${namespace}/${name}`,
        serviceValue(followed, object as RawService, cluster),
      );
    if (object.kind === 'CiliumNode')
      put('nodes', `${cluster.name}/${name}`, nodeValue(object as RawNode, cluster));
    if (object.kind === 'CiliumIdentity' && /^\d+$/.test(name))
      put('identities', `id/${name}`, identityValue(object, cluster));
  }
  const rank = (object: NaiveObject): readonly [boolean, number, string] => [
    object.metadata['deletionTimestamp'] === undefined,
    cluster.createdAt(object),
    `${object.metadata.namespace}/${object.metadata.name}`,
  ];
  const weaker = (a: NaiveObject, b: NaiveObject): number => {
    const [x, y] = [rank(a), rank(b)];
    if (x[0] !== y[0]) return x[0] ? 1 : -1;
    return x[1] === y[1] ? (x[2] < y[2] ? -1 : 1) : x[1] - y[1];
  };
  const endpoints = all
    .filter(({ kind }) => kind === 'CiliumEndpoint')
    .sort(weaker) as readonly RawEndpoint[];
  for (const endpoint of endpoints)
    for (const ip of listedBy(endpoint)) put('ip', `default/${ip}`, ipValue(ip, endpoint));
  return keys;
}
