import type { ClusterNode, NodeAddress } from '../model/cluster-node.ts';
import { MAX_IDENTITY } from '../model/numeric-identity.ts';
import type { NodeSpec } from '../nodemanager/node-spec.ts';
import { type ObjectFields, readClusterScopedName, readStringMap } from './parse-object.ts';

/** Maximum length of each list of a node, as for a value of the kvstore. */
const MAX_ITEMS = 1024;

/** Name and id of the cluster of the parsed nodes. */
export interface NodeCluster {
  readonly clusterName: string;
  readonly clusterID: number;
}

type AllocCIDRs = Pick<
  ClusterNode,
  'ipv4AllocCIDR' | 'ipv6AllocCIDR' | 'ipv4SecondaryAllocCIDRs' | 'ipv6SecondaryAllocCIDRs'
>;

/** Returns the first CIDR of each family as the primary one, the others as secondary ones (KUBERNETES 36). */
function allocCIDRs(cidrs: readonly string[]): AllocCIDRs {
  const [ipv6AllocCIDR, ...ipv6SecondaryAllocCIDRs] = cidrs.filter((cidr) => cidr.includes(':'));
  const [ipv4AllocCIDR, ...ipv4SecondaryAllocCIDRs] = cidrs.filter((cidr) => !cidr.includes(':'));
  return { ipv4AllocCIDR, ipv6AllocCIDR, ipv4SecondaryAllocCIDRs, ipv6SecondaryAllocCIDRs };
}

function readCIDRs(list: ObjectFields): readonly string[] {
  return list.items((cidrs, index) => cidrs.cidr(index));
}

/**
 * Returns the addresses of a list with their types. If `types` is given, other types (such as `Hostname`) are ignored.
 *
 * @param field name of the field with the IP
 */
function readAddresses(
  list: ObjectFields,
  field: string,
  types?: readonly string[] | undefined,
): readonly NodeAddress[] {
  return list.items((addresses, index) => {
    const fields = addresses.item(index);
    const type = fields?.text('type');
    if (fields === undefined || type === undefined || types?.includes(type) === false) return undefined;
    const address = fields.address(field);
    return address === undefined ? undefined : { type, ip: address };
  });
}

/** Returns a number; 0 if it is absent, undefined if it is invalid. */
function readNumber(fields: ObjectFields, name: string, max: number): number | undefined {
  return fields.value(name) === undefined ? 0 : fields.integer(name, 0, max);
}

/** Returns the value of an annotation under its current name, otherwise under its old name. */
function annotation(annotations: ReadonlyMap<string, string>, name: string): string | undefined {
  return annotations.get(`network.cilium.io/${name}`) ?? annotations.get(`io.cilium.network.${name}`);
}

/** The fields read by {@link readCiliumNode}. */
export const CILIUM_NODE_FIELDS: readonly string[] = [
  ...['metadata.labels', 'metadata.annotations', 'spec.addresses', 'spec.ipam.podCIDRs', 'spec.ipam.pools'],
  ...['spec.health', 'spec.ingress', 'spec.encryption', 'spec.nodeidentity', 'spec.bootid'],
];

/**
 * Returns a `cilium.io/v2` `CiliumNode` as a node of the local cluster (KUBERNETES 36). An invalid address or CIDR is
 * rejected, and the rest of the node is used. If the encryption key or the identity is invalid, the whole node is
 * rejected.
 */
export function readCiliumNode(
  fields: ObjectFields,
  { clusterName: cluster, clusterID }: NodeCluster,
): (ClusterNode & NodeSpec) | undefined {
  const name = readClusterScopedName(fields);
  const metadata = fields.map('metadata');
  const spec = fields.map('spec');
  const ipam = spec.map('ipam');
  const pools = ipam.map('pools').list('allocated', MAX_ITEMS);
  const pooled = pools.items((list, index) => list.item(index)?.list('cidrs', MAX_ITEMS)).flatMap(readCIDRs);
  const health = spec.map('health');
  const ingress = spec.map('ingress');
  const annotations = readStringMap(metadata, 'annotations');
  const encryptionKey = readNumber(spec.map('encryption'), 'key', 255);
  const nodeIdentity = readNumber(spec, 'nodeidentity', MAX_IDENTITY);
  if (name === undefined || encryptionKey === undefined || nodeIdentity === undefined) return undefined;
  return {
    name,
    cluster,
    clusterID,
    source: 'custom-resource',
    addresses: readAddresses(spec.list('addresses', MAX_ITEMS), 'ip'),
    ...allocCIDRs([...readCIDRs(ipam.list('podCIDRs', MAX_ITEMS)), ...pooled]),
    ipv4HealthIP: health.addressOf(4, 'ipv4'),
    ipv6HealthIP: health.addressOf(6, 'ipv6'),
    ipv4IngressIP: ingress.addressOf(4, 'ipv4'),
    ipv6IngressIP: ingress.addressOf(6, 'ipv6'),
    encryptionKey,
    labels: readStringMap(metadata, 'labels'),
    annotations,
    nodeIdentity,
    wireguardPubKey: annotation(annotations, 'wg-pub-key') ?? '',
    bootID: spec.string('bootid') ?? '',
  };
}

/**
 * Reads annotations (KUBERNETES 40) under their current name, otherwise under their old name. A rejection contains the
 * name that was read.
 */
class NodeAnnotations {
  readonly #annotations: ObjectFields | undefined;

  /** If `annotations` is undefined, all values are absent. */
  constructor(annotations: ObjectFields | undefined) {
    this.#annotations = annotations;
  }

  /** Returns the current name of an annotation if it is present, else the old name. */
  #nameOf(annotation: string): string {
    const name = `network.cilium.io/${annotation}`;
    return this.#annotations?.value(name) === undefined ? `io.cilium.network.${annotation}` : name;
  }

  address(family: 4 | 6, annotation: string): string | undefined {
    return this.#annotations?.addressOf(family, this.#nameOf(annotation));
  }

  cidr(annotation: string): string | undefined {
    return this.#annotations?.cidr(this.#nameOf(annotation));
  }

  get encryptionKey(): number {
    const name = this.#nameOf('encryption-key');
    const text = this.#annotations?.string(name) ?? '';
    const key = /^\d{1,3}$/.test(text) ? Number(text) : Number.NaN;
    if (key <= 255) return key;
    if (text !== '') this.#annotations?.reject(name, 'out-of-range', 'must be a number from 0 to 255');
    return 0;
  }

  get ciliumHosts(): readonly NodeAddress[] {
    const ips = [this.address(4, 'ipv4-cilium-host'), this.address(6, 'ipv6-cilium-host')];
    return ips.flatMap((ip) => (ip === undefined ? [] : { type: 'CiliumInternalIP', ip }));
  }
}

/** Returns the first address of each type and family (KUBERNETES 39). */
function firstOfEachType(addresses: readonly NodeAddress[]): readonly NodeAddress[] {
  const first = new Map<string, NodeAddress>();
  for (const address of addresses) {
    const key = `${address.type} ${address.ip.includes(':')}`;
    if (!first.has(key)) first.set(key, address);
  }
  return [...first.values()];
}

function firstOfEachFamily(cidrs: readonly string[]): readonly string[] {
  return [false, true].flatMap((isIPv6) => cidrs.find((cidr) => cidr.includes(':') === isIPv6) ?? []);
}

/** The fields read by {@link readNode}. */
export const NODE_FIELDS: readonly string[] = [
  ...['metadata.labels', 'metadata.annotations', 'spec.podCIDR', 'spec.podCIDRs', 'status.addresses'],
];

/**
 * Returns a v1 `Node` as the local node (KUBERNETES 39). Annotations are read only if `withAnnotations` is true
 * (KUBERNETES 40).
 */
export function readNode(
  fields: ObjectFields,
  { clusterName: cluster, clusterID }: NodeCluster,
  withAnnotations: boolean,
): NodeSpec | undefined {
  const name = readClusterScopedName(fields);
  if (name === undefined) return undefined;
  const metadata = fields.map('metadata');
  const spec = fields.map('spec');
  const annotations = new NodeAnnotations(withAnnotations ? metadata.map('annotations') : undefined);
  const list = fields.map('status').list('addresses', MAX_ITEMS);
  const listed = readCIDRs(spec.list('podCIDRs', MAX_ITEMS));
  const single = listed.length > 0 ? undefined : spec.cidr('podCIDR');
  const specified = single === undefined ? listed : [single];
  const annotated = [annotations.cidr('ipv4-pod-cidr'), annotations.cidr('ipv6-pod-cidr')];
  const cidrs = firstOfEachFamily(specified.length > 0 ? specified : annotated.flatMap((cidr) => cidr ?? []));
  return {
    name,
    cluster,
    clusterID,
    source: 'k8s',
    addresses: [
      ...firstOfEachType(readAddresses(list, 'address', ['InternalIP', 'ExternalIP'])),
      ...annotations.ciliumHosts,
    ],
    ...allocCIDRs(cidrs),
    ipv4HealthIP: annotations.address(4, 'ipv4-health-ip'),
    ipv6HealthIP: annotations.address(6, 'ipv6-health-ip'),
    ipv4IngressIP: annotations.address(4, 'ipv4-Ingress-ip'), // the capital I is that of Cilium
    ipv6IngressIP: annotations.address(6, 'ipv6-Ingress-ip'),
    encryptionKey: annotations.encryptionKey,
    labels: readStringMap(metadata, 'labels'),
  };
}
