import { checkArgument, ITERABLE, LIST, NUMBER, OBJECT, objectWith, TEXT } from '../../base/arguments.ts';
import type { ClusterNode, NodeAddress, NodeName } from '../../model/cluster-node.ts';
import { MAX_IDENTITY } from '../../model/numeric-identity.ts';
import type { Family } from '../../net/address-words.ts';
import type { Decoded, Fields } from '../../net/fields.ts';
import { MAX_CLUSTER_ID, Prefix } from '../../net/prefix.ts';
import { bytesOfText } from './bytes.ts';
import { jsonArray, jsonObject, jsonString, jsonStringMap, nullIfEmpty } from './go-json.ts';
import { maskText, readMask } from './mask.ts';
import {
  decodeJson,
  type EncodedValue,
  type FormatVersion,
  readKeyPart,
  VALUE_LIMITS,
  type ValueLimits,
} from './value.ts';

// Types whose address may be a name instead of an IP. Cilium then writes an empty IP.
const NAME_TYPES: ReadonlySet<string> = new Set(['Hostname', 'InternalDNS', 'ExternalDNS']);

function decodeAddress(list: Fields<never>, index: number): NodeAddress | undefined {
  const fields = list.item(index);
  const type = fields.text('Type');
  const ip = fields.address('IP');
  if (ip !== undefined) return { type, ip };
  return NAME_TYPES.has(type)
    ? undefined
    : fields.reject('IP', 'invalid-address', 'is not a valid IP address', '');
}

/** Returns the CIDR of a field: an object or a text. Cilium 1.21 reads both, and 1.22 is to write texts. */
function readCIDR(family: Family, parent: Fields<never>, name: string | number): string {
  const text = typeof parent.value(name) === 'string' ? parent.cidr(name) : undefined;
  if (text !== undefined)
    return text.includes(':') === (family === 6)
      ? text
      : parent.reject(name, 'wrong-family', `must be an IPv${family} CIDR`);
  const fields = parent.item(name);
  const address = fields.addressOf(family, 'IP') ?? fields.reject('IP', 'invalid-address', 'is missing', '');
  const length = readMask(family, fields);
  const prefix = length === undefined ? undefined : Prefix.parse(`${address}/${length}`);
  return prefix?.toString() ?? fields.reject('Mask', 'invalid-mask', 'is missing', '');
}

/**
 * Decodes the value of `…/nodes/v1/<cluster>/<name>`. Ignores `Source`: the reader assigns the source of the kvstore,
 * `kvstore` or `clustermesh`. Reasons of rejection: `too-large`, `too-many`, `missing-field`, `key-mismatch`,
 * `invalid-utf8`, `invalid-json`, `wrong-type`, `out-of-range`, `invalid-address`, `wrong-family`, `invalid-mask`,
 * `invalid-cidr`.
 */
export function decodeNode(
  expected: NodeName,
  value: EncodedValue,
  at: string,
  limits: ValueLimits = VALUE_LIMITS,
): Decoded<ClusterNode> {
  return decodeJson(value, at, limits, (fields) => {
    const cidr = (family: Family, field: string): string | undefined =>
      fields.value(field) === undefined ? undefined : readCIDR(family, fields, field);
    const cidrs = (family: Family, field: string): readonly string[] =>
      fields.list(field, limits.nodeAddresses).items((list, index) => readCIDR(family, list, index));
    // Names every field, because V8 gives each object literal with fields after a spread its own hidden class.
    return {
      name: readKeyPart(fields, 'Name', expected.name),
      cluster: readKeyPart(fields, 'Cluster', expected.cluster),
      clusterID: fields.integer('ClusterID', 0, MAX_CLUSTER_ID) ?? 0,
      addresses: fields.list('IPAddresses', limits.nodeAddresses).items(decodeAddress),
      ipv4AllocCIDR: cidr(4, 'IPv4AllocCIDR'),
      ipv6AllocCIDR: cidr(6, 'IPv6AllocCIDR'),
      ipv4SecondaryAllocCIDRs: cidrs(4, 'IPv4SecondaryAllocCIDRs'),
      ipv6SecondaryAllocCIDRs: cidrs(6, 'IPv6SecondaryAllocCIDRs'),
      ipv4HealthIP: fields.addressOf(4, 'IPv4HealthIP'),
      ipv6HealthIP: fields.addressOf(6, 'IPv6HealthIP'),
      ipv4IngressIP: fields.addressOf(4, 'IPv4IngressIP'),
      ipv6IngressIP: fields.addressOf(6, 'IPv6IngressIP'),
      encryptionKey: fields.integer('EncryptionKey', 0, 0xff) ?? 0,
      labels: fields.strings('Labels', limits.labels),
      annotations: fields.strings('Annotations', limits.labels),
      nodeIdentity: fields.integer('NodeIdentity', 0, MAX_IDENTITY) ?? 0,
      wireguardPubKey: fields.string('WireguardPubKey') ?? '',
      bootID: fields.string('BootID') ?? '',
    };
  });
}

/**
 * Returns a CIDR object. An invalid CIDR is written unchanged, so that readers reject the node and do not assume that
 * it has no CIDR.
 */
function writeCIDR(cidr: string | undefined): string {
  if (cidr === undefined) return 'null';
  const prefix = Prefix.parse(cidr);
  if (prefix === undefined)
    return jsonObject([
      ['IP', jsonString(cidr)],
      ['Mask', 'null'],
    ]);
  return jsonObject([
    ['IP', jsonString(prefix.address)],
    ['Mask', jsonString(maskText(prefix.family, prefix.length))],
  ]);
}

function encodeAddress({ type, ip }: NodeAddress): string {
  return jsonObject([
    ['Type', jsonString(type)],
    ['IP', jsonString(ip)],
  ]);
}

/** The program whose format {@link encodeNode} writes. */
export interface NodeWriter {
  /** Its version; default `1.17`. */
  readonly version?: FormatVersion | undefined;
  /** `local`: the agent of the node, the default. `custom-resource`: an operator, from the CiliumNode. */
  readonly source?: 'local' | 'custom-resource' | undefined;
}

/** Returns the same bytes as Cilium. */
export function encodeNode(node: ClusterNode, writer: NodeWriter = {}): Uint8Array {
  checkArgument('encodeNode: node', node, NODE);
  checkArgument('encodeNode: writer', writer, OBJECT);
  const { version = '1.17', source = 'local' } = writer;
  const cidrs = (list: readonly string[]): string => nullIfEmpty(list.length, jsonArray(list, writeCIDR));
  const since117 = (json: string): string | undefined => (version === '1.8' ? undefined : json);
  const labels = jsonStringMap(node.labels);
  return bytesOfText(
    jsonObject([
      ['Name', jsonString(node.name)],
      ['Cluster', jsonString(node.cluster)],
      ['IPAddresses', nullIfEmpty(node.addresses.length, jsonArray(node.addresses, encodeAddress))],
      ['IPv4AllocCIDR', writeCIDR(node.ipv4AllocCIDR)],
      ['IPv4SecondaryAllocCIDRs', since117(cidrs(node.ipv4SecondaryAllocCIDRs))],
      ['IPv6AllocCIDR', writeCIDR(node.ipv6AllocCIDR)],
      ['IPv6SecondaryAllocCIDRs', since117(cidrs(node.ipv6SecondaryAllocCIDRs))],
      ['IPv4HealthIP', jsonString(node.ipv4HealthIP ?? '')],
      ['IPv6HealthIP', jsonString(node.ipv6HealthIP ?? '')],
      ['IPv4IngressIP', since117(jsonString(node.ipv4IngressIP ?? ''))],
      ['IPv6IngressIP', since117(jsonString(node.ipv6IngressIP ?? ''))],
      ['ClusterID', String(node.clusterID)],
      ['Source', jsonString(source)],
      ['EncryptionKey', String(node.encryptionKey)],
      // An agent writes empty labels as `{}`, an operator as `null`.
      ['Labels', source === 'local' ? labels : nullIfEmpty(node.labels.size, labels)],
      ['Annotations', since117(nullIfEmpty(node.annotations.size, jsonStringMap(node.annotations)))],
      ['NodeIdentity', since117(String(node.nodeIdentity))],
      ['WireguardPubKey', since117(jsonString(node.wireguardPubKey))],
      ['BootID', since117(jsonString(node.bootID))],
    ]),
  );
}

const NODE = objectWith({
  cluster: TEXT,
  name: TEXT,
  clusterID: NUMBER,
  addresses: LIST,
  ipv4SecondaryAllocCIDRs: LIST,
  ipv6SecondaryAllocCIDRs: LIST,
  encryptionKey: NUMBER,
  labels: ITERABLE,
  annotations: ITERABLE,
  nodeIdentity: NUMBER,
  wireguardPubKey: TEXT,
  bootID: TEXT,
});
