import type { PortProtocol } from '../../net/port.ts';
import { protocolName } from '../../net/port.ts';
import { formatKeyOf, parsePrefix, prefixRegister } from '../../net/prefix.ts';
import { bytesOfText } from '../bytes.ts';
import {
  asAddress,
  asObject,
  type Decoded,
  decodeWith,
  type JsonObject,
  readArray,
  readInteger,
  readJsonObject,
  readString,
  refuse,
} from './fields.ts';
import { jsonArray, jsonObject, jsonString } from './go-json.ts';
import { maskLength, maskText } from './mask.ts';
import { type PortConfiguration, readPort } from './ports.ts';

/** The pod behind an IP, as far as its writer knew it. */
export interface PodMetadata {
  readonly namespace: string;
  readonly podName: string;
  readonly namedPorts?: ReadonlyMap<string, PortProtocol>;
}

/** What a cluster says of one of its IPs (WIRE, "IPIdentityPair"). */
export interface IPIdentityPair {
  /** Canonical: `10.1.2.3` for an endpoint, `10.1.0.0/16` for a CIDR. Equals the key's name. */
  readonly key: string;
  readonly identity: number;
  /** Canonical; undefined when the writer left it empty. */
  readonly hostIP?: string;
  readonly encryptKey: number;
  /** Undefined when there are neither names nor named ports, as upstream (pkg/ipcache/kvstore.go, 1.8 to 1.17). */
  readonly k8s?: PodMetadata;
}

const register = prefixRegister();

/** The canonical form of a key's name, or `undefined` when it is no IP. */
function canonicalName(name: string): string | undefined {
  return parsePrefix(name, register) ? formatKeyOf(name, register) : undefined;
}

/**
 * Checks the name of an IP key. Only the canonical spelling is taken: two keys that spell one prefix in two
 * ways would be one claim, and the delete of either would remove it. Original writers write no other.
 */
function readKeyName(name: string): string {
  const canonical = canonicalName(name);
  if (canonical === undefined) return refuse('invalid-key', 'key', name, 'is not an IP or prefix');
  return canonical === name ? name : refuse('invalid-key', 'key', name, `is not canonical: ${canonical}`);
}

/** The name that the value itself claims: `IP`, with the length of `Mask` if there is one. */
function nameInValue(json: JsonObject): string {
  const ip = readString(json, 'IP');
  const mask = readString(json, 'Mask');
  if (mask === '') return ip;
  const family = asAddress(ip, 'IP').includes(':') ? 6 : 4;
  const length = maskLength(family, mask);
  return length === undefined
    ? refuse('invalid-mask', 'Mask', mask, `is not a contiguous IPv${family} mask in base64`)
    : `${ip}/${length}`;
}

function checkAgreement(json: JsonObject, name: string): void {
  const claimed = nameInValue(json);
  if (claimed === name) return; // the usual case, at the cost of one comparison
  const canonical =
    canonicalName(claimed) ?? refuse('invalid-address', 'IP', claimed, 'is not an IP address');
  if (canonical !== name) refuse('key-mismatch', 'IP', canonical, `the key says ${name}`);
}

// Host IPs repeat: a thousand nodes stand behind a million pods. Keeping one string of each saves parsing and memory.
const KNOWN_HOSTS = 4096;
const hosts = new Map<string, string>();

function readHostIP(json: JsonObject): string | undefined {
  const text = readString(json, 'HostIP');
  if (text === '') return undefined;
  const known = hosts.get(text);
  if (known !== undefined) return known;
  const host = asAddress(text, 'HostIP');
  if (hosts.size >= KNOWN_HOSTS) hosts.clear();
  hosts.set(text, host);
  return host;
}

function readNamedPorts(json: JsonObject): PortConfiguration | undefined {
  const items = readArray(json, 'NamedPorts');
  if (items.length === 0) return undefined;
  const ports = new Map<string, PortProtocol>();
  items.forEach((item, index) => {
    const path = `NamedPorts[${index}]`;
    const object = asObject(item, path);
    ports.set(readString(object, 'Name', `${path}.Name`), readPort(object, path));
  });
  return ports;
}

function readPod(json: JsonObject): PodMetadata | undefined {
  const namespace = readString(json, 'K8sNamespace');
  const podName = readString(json, 'K8sPodName');
  const namedPorts = readNamedPorts(json);
  if (namespace === '' && podName === '' && namedPorts === undefined) return undefined;
  return namedPorts === undefined ? { namespace, podName } : { namespace, podName, namedPorts };
}

/**
 * Decodes the value of `…/ip/v1/<address space>/<name>`. Reasons of refusal: `invalid-key`, `key-mismatch`,
 * `invalid-json`, `wrong-type`, `out-of-range`, `invalid-address`, `invalid-mask`, `unknown-protocol`.
 *
 * @param name what follows the prefix in the key
 * @param at the whole key, for the rejection
 */
export function decodeIPIdentityPair(name: string, value: Uint8Array, at: string): Decoded<IPIdentityPair> {
  return decodeWith(at, () => {
    const key = readKeyName(name);
    const json = readJsonObject(value);
    checkAgreement(json, key);
    const pair: { -readonly [K in keyof IPIdentityPair]: IPIdentityPair[K] } = {
      key,
      identity: readInteger(json, 'ID', 0xffff_ffff),
      encryptKey: readInteger(json, 'Key', 0xff),
    };
    const hostIP = readHostIP(json);
    if (hostIP !== undefined) pair.hostIP = hostIP;
    const k8s = readPod(json);
    if (k8s !== undefined) pair.k8s = k8s;
    return pair;
  });
}

function writeNamedPorts(ports: PortConfiguration | undefined): string | undefined {
  if (ports === undefined || ports.size === 0) return undefined;
  return jsonArray([...ports], ([name, { port, protocol }]) =>
    jsonObject([
      ['Name', jsonString(name)],
      ['Port', String(port)],
      ['Protocol', jsonString(protocolName(protocol))],
    ]),
  );
}

const omitEmpty = (text: string | undefined): string | undefined =>
  text === undefined || text === '' ? undefined : jsonString(text);

/** The value as the original writes it. `pair.key` must be canonical; named ports keep their order. */
export function encodeIPIdentityPair(pair: IPIdentityPair): Uint8Array {
  const [ip = '', length] = pair.key.split('/');
  const mask = length === undefined ? 'null' : jsonString(maskText(ip.includes(':') ? 6 : 4, Number(length)));
  return bytesOfText(
    jsonObject([
      ['IP', jsonString(ip)],
      ['Mask', mask],
      ['HostIP', jsonString(pair.hostIP ?? '')],
      ['ID', String(pair.identity)],
      ['Key', String(pair.encryptKey)],
      ['Metadata', '""'],
      ['K8sNamespace', omitEmpty(pair.k8s?.namespace)],
      ['K8sPodName', omitEmpty(pair.k8s?.podName)],
      ['NamedPorts', writeNamedPorts(pair.k8s?.namedPorts)],
    ]),
  );
}
