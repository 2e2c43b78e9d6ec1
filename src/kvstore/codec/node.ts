import type { ClusterNode, NodeAddress, NodeName } from '../../net/cluster-node.ts';
import { Prefix } from '../../net/prefix.ts';
import { bytesOfText } from '../bytes.ts';
import {
  asAddress,
  asObject,
  asPrefix,
  type Decoded,
  decodeWith,
  fieldOf,
  type JsonObject,
  readAddressOf,
  readArray,
  readInteger,
  readJsonObject,
  readName,
  readString,
  readStringMap,
  refuse,
} from './fields.ts';
import { jsonArray, jsonObject, jsonString, jsonStringMap, nullIfEmpty } from './go-json.ts';
import { maskLength, maskText } from './mask.ts';

/** Highest cluster id of any mesh: 511 clusters of 15 identity bits. */
const MAX_CLUSTER_ID = 511;

// Types whose address need not be an IP; upstream writes an empty one, which says nothing to anybody.
const NAME_TYPES: ReadonlySet<string> = new Set(['Hostname', 'InternalDNS', 'ExternalDNS']);

function readAddresses(json: JsonObject): readonly NodeAddress[] {
  return readArray(json, 'IPAddresses').flatMap((item, index) => {
    const path = `IPAddresses[${index}]`;
    const object = asObject(item, path);
    const type = readName(object, 'Type', `${path}.Type`);
    const ip = readString(object, 'IP', `${path}.IP`);
    return ip === '' && NAME_TYPES.has(type) ? [] : [{ type, ip: asAddress(ip, `${path}.IP`) }];
  });
}

function asCIDR(family: 4 | 6, value: unknown, path: string): string {
  const object = asObject(value, path);
  const address = asAddress(readString(object, 'IP', `${path}.IP`), `${path}.IP`);
  if (address.includes(':') !== (family === 6)) {
    return refuse('wrong-family', `${path}.IP`, address, `must be an IPv${family} address`);
  }
  const mask = readString(object, 'Mask', `${path}.Mask`);
  const length = maskLength(family, mask);
  if (length !== undefined) return asPrefix(address, length, path).toString();
  return refuse('invalid-mask', `${path}.Mask`, mask, `is not a contiguous IPv${family} mask in base64`);
}

function readCIDR(family: 4 | 6, json: JsonObject, name: string): string | undefined {
  const value = fieldOf(json, name);
  return value === undefined ? undefined : asCIDR(family, value, name);
}

function readCIDRs(family: 4 | 6, json: JsonObject, name: string): readonly string[] {
  return readArray(json, name).map((value, index) => asCIDR(family, value, `${name}[${index}]`));
}

function readNodeKey(json: JsonObject, expected: NodeName): NodeName {
  const name = readName(json, 'Name');
  const cluster = readName(json, 'Cluster');
  if (cluster !== expected.cluster)
    refuse('key-mismatch', 'Cluster', cluster, `the key says ${expected.cluster}`);
  if (name !== expected.name) refuse('key-mismatch', 'Name', name, `the key says ${expected.name}`);
  return { cluster, name };
}

/**
 * Decodes the value of `…/nodes/v1/<cluster>/<name>`. The `Source` in the value is ignored: the reader's
 * store decides. Reasons of refusal: `missing-field`, `key-mismatch`, `invalid-json`, `wrong-type`,
 * `out-of-range`, `invalid-address`, `wrong-family`, `invalid-mask`.
 */
export function decodeNode(expected: NodeName, value: Uint8Array, at: string): Decoded<ClusterNode> {
  return decodeWith(at, () => {
    const json = readJsonObject(value);
    const { name, cluster } = readNodeKey(json, expected);
    // Every field named, none spread: V8 gives objects that go on after a spread a hidden class of their own each.
    return {
      name,
      cluster,
      clusterID: readInteger(json, 'ClusterID', MAX_CLUSTER_ID),
      addresses: readAddresses(json),
      ipv4AllocCIDR: readCIDR(4, json, 'IPv4AllocCIDR'),
      ipv6AllocCIDR: readCIDR(6, json, 'IPv6AllocCIDR'),
      ipv4SecondaryAllocCIDRs: readCIDRs(4, json, 'IPv4SecondaryAllocCIDRs'),
      ipv6SecondaryAllocCIDRs: readCIDRs(6, json, 'IPv6SecondaryAllocCIDRs'),
      ipv4HealthIP: readAddressOf(4, json, 'IPv4HealthIP'),
      ipv6HealthIP: readAddressOf(6, json, 'IPv6HealthIP'),
      ipv4IngressIP: readAddressOf(4, json, 'IPv4IngressIP'),
      ipv6IngressIP: readAddressOf(6, json, 'IPv6IngressIP'),
      encryptionKey: readInteger(json, 'EncryptionKey', 0xff),
      labels: readStringMap(json, 'Labels'),
      annotations: readStringMap(json, 'Annotations'),
      nodeIdentity: readInteger(json, 'NodeIdentity', 0xffff_ffff),
      wireguardPubKey: readString(json, 'WireguardPubKey'),
      bootID: readString(json, 'BootID'),
    };
  });
}

function writeCIDR(cidr: string | undefined): string {
  const prefix = cidr === undefined ? undefined : Prefix.parse(cidr);
  if (prefix === undefined) return 'null';
  return jsonObject([
    ['IP', jsonString(prefix.address)],
    ['Mask', jsonString(maskText(prefix.family, prefix.length))],
  ]);
}

function writeAddress({ type, ip }: NodeAddress): string {
  return jsonObject([
    ['Type', jsonString(type)],
    ['IP', jsonString(ip)],
  ]);
}

/** The value as the original writes it (1.17's fields, which 1.8 reads too). */
export function encodeNode(node: ClusterNode): Uint8Array {
  const cidrs = (list: readonly string[]): string => nullIfEmpty(list.length, jsonArray(list, writeCIDR));
  return bytesOfText(
    jsonObject([
      ['Name', jsonString(node.name)],
      ['Cluster', jsonString(node.cluster)],
      ['IPAddresses', nullIfEmpty(node.addresses.length, jsonArray(node.addresses, writeAddress))],
      ['IPv4AllocCIDR', writeCIDR(node.ipv4AllocCIDR)],
      ['IPv4SecondaryAllocCIDRs', cidrs(node.ipv4SecondaryAllocCIDRs)],
      ['IPv6AllocCIDR', writeCIDR(node.ipv6AllocCIDR)],
      ['IPv6SecondaryAllocCIDRs', cidrs(node.ipv6SecondaryAllocCIDRs)],
      ['IPv4HealthIP', jsonString(node.ipv4HealthIP ?? '')],
      ['IPv6HealthIP', jsonString(node.ipv6HealthIP ?? '')],
      ['IPv4IngressIP', jsonString(node.ipv4IngressIP ?? '')],
      ['IPv6IngressIP', jsonString(node.ipv6IngressIP ?? '')],
      ['ClusterID', String(node.clusterID)],
      ['Source', '"local"'],
      ['EncryptionKey', String(node.encryptionKey)],
      ['Labels', jsonStringMap(node.labels)],
      ['Annotations', nullIfEmpty(node.annotations.size, jsonStringMap(node.annotations))],
      ['NodeIdentity', String(node.nodeIdentity)],
      ['WireguardPubKey', jsonString(node.wireguardPubKey)],
      ['BootID', jsonString(node.bootID)],
    ]),
  );
}
