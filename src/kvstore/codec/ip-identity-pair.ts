import { checkArgument, shaped } from '../../base/arguments.ts';
import { MAX_IDENTITY } from '../../model/numeric-identity.ts';
import { type Decoded, type Fields, type RejectField, rejectInput } from '../../net/fields.ts';
import { protocolName } from '../../net/port.ts';
import {
  canonicalAddress,
  canonicalKey,
  formatKeyOf,
  parsePrefix,
  prefixRegister,
} from '../../net/prefix.ts';
import { bytesOfText } from './bytes.ts';
import { jsonArray, jsonObject, jsonString } from './go-json.ts';
import { scanIPIdentityPair } from './ip-pair-scanner.ts';
import { JsonBytes } from './json-bytes.ts';
import { maskText, readMask } from './mask.ts';
import { type PodMetadata, podOf, readNamedPorts } from './pod-metadata.ts';
import type { PortConfiguration } from './ports.ts';
import { decodeJson, type EncodedValue, VALUE_LIMITS, type ValueLimits } from './value.ts';

/** One IP of a cluster (WIRE, "IPIdentityPair"). */
export interface IPIdentityPair {
  /**
   * Canonical: `10.1.2.3` for an endpoint, `10.1.0.0/16` for a CIDR, `10.1.2.3@5` in the address space of cluster 5.
   * Equals the name in the key.
   */
  readonly key: string;
  readonly identity: number;
  /** Canonical; undefined if the value has none. */
  readonly hostIP?: string | undefined;
  readonly encryptKey: number;
  /** Undefined if the value has neither names nor named ports, as in Cilium (pkg/ipcache/kvstore.go, 1.8 to 1.17). */
  readonly k8s?: PodMetadata | undefined;
}

const register = prefixRegister();

/** Returns the address or CIDR of a key without its address space, which values do not contain. */
function withoutSpace(key: string): string {
  const at = key.lastIndexOf('@');
  return at < 0 ? key : key.slice(0, at);
}

/** Returns the id of the address space of a pair: 0 unless its key ends in `@` and the id of a cluster. */
export function addressSpaceOf({ key }: Pick<IPIdentityPair, 'key'>): number {
  const at = key.lastIndexOf('@');
  return at < 0 ? 0 : Number(key.slice(at + 1));
}

/**
 * Returns the name of an IP key if it is canonical, otherwise rejects it. If two spellings were accepted, two keys
 * would be one claim, and the delete of either key would remove the claim. Cilium writes only canonical names.
 */
function readKeyName(name: string): string {
  const canonical = canonicalKey(name);
  if (canonical === undefined) return rejectInput('invalid-key', 'key', name, 'is not an IP or prefix');
  return canonical === name
    ? name
    : rejectInput('invalid-key', 'key', name, `is not canonical: use ${canonical}`);
}

/** Returns the name in the value: `IP`, with the length of `Mask` if it is set. */
function nameInValue(fields: Fields<never>): string {
  const ip = fields.string('IP') ?? '';
  // A length or an address space could otherwise equal that of the key.
  if (/[/@]/.test(ip)) fields.reject('IP', 'invalid-address', 'is not a valid IP address', ip);
  if (fields.value('Mask') === undefined) return ip;
  const address = fields.address('IP') ?? '';
  const length = readMask(address.includes(':') ? 6 : 4, fields);
  return length === undefined ? ip : `${address}/${length}`;
}

/** Rejects a value whose IP and mask differ from its key. */
function checkNameInValue(fields: Fields<never>, key: string): void {
  const claimed = nameInValue(fields);
  if (claimed === key) return; // fast path: one comparison
  if (!parsePrefix(claimed, register))
    fields.reject('IP', 'invalid-address', 'is not a valid IP address', claimed);
  const canonical = formatKeyOf(claimed, register);
  const name = withoutSpace(key);
  if (canonical !== name) fields.reject('IP', 'key-mismatch', `must be ${name}, as in the key`, canonical);
}

function readPod(
  fields: Fields<never>,
  limits: ValueLimits,
  drop: RejectField<undefined>,
): PodMetadata | undefined {
  const namespace = fields.string('K8sNamespace') ?? '';
  const podName = fields.string('K8sPodName') ?? '';
  const serviceAccount = fields.string('K8sServiceAccount') ?? '';
  return podOf(namespace, podName, serviceAccount, readNamedPorts(fields, limits.podPorts, drop));
}

/**
 * Decodes the value of `…/ip/v1/default/<name>`. Reasons of rejection: `invalid-key`, `key-mismatch`,
 * `too-large`, `too-many`, `invalid-json`, `wrong-type`, `out-of-range`, `invalid-address`, `invalid-mask`. Drops a
 * named port if its protocol is unknown: `unknown-protocol`.
 *
 * @param name the part of the key after the prefix
 * @param at the whole key, for the rejection
 */
export function decodeIPIdentityPair(
  name: string,
  value: EncodedValue,
  at: string,
  limits: ValueLimits = VALUE_LIMITS,
): Decoded<IPIdentityPair> {
  const scanned =
    value instanceof Uint8Array ? scanIPIdentityPair(name, value, 0, value.length, limits) : undefined;
  return scanned === undefined ? parseIPIdentityPair(name, value, at, limits) : { ok: true, value: scanned };
}

/** The general decoder of {@link decodeIPIdentityPair}: any JSON, and the reason if it is rejected. */
export function parseIPIdentityPair(
  name: string,
  value: EncodedValue,
  at: string,
  limits: ValueLimits,
): Decoded<IPIdentityPair> {
  return decodeJson(value, at, limits, (fields, drop) => {
    const key = readKeyName(name);
    checkNameInValue(fields, key);
    const pair: { -readonly [K in keyof IPIdentityPair]: IPIdentityPair[K] } = {
      key,
      identity: fields.integer('ID', 0, MAX_IDENTITY) ?? 0,
      encryptKey: fields.integer('Key', 0, 0xff) ?? 0,
    };
    const hostIP = fields.address('HostIP');
    if (hostIP !== undefined) pair.hostIP = hostIP;
    const k8s = readPod(fields, limits, drop);
    if (k8s !== undefined) pair.k8s = k8s;
    return pair;
  });
}

function namedPortsText(ports: PortConfiguration | undefined): string | undefined {
  if (ports === undefined || ports.size === 0) return undefined;
  return jsonArray([...ports], ([name, { port, protocol }]) =>
    jsonObject([
      ['Name', jsonString(name)],
      ['Port', String(port)],
      ['Protocol', jsonString(protocolName(protocol))],
    ]),
  );
}

/** The current JSON. Encoding is not re-entrant. */
const out = new JsonBytes();

/* The constant parts of the JSON. */
const START = bytesOfText('{"IP":');
const MASK = bytesOfText(',"Mask":');
const NULL = bytesOfText('null');
const HOST_IP = bytesOfText(',"HostIP":');
const ID = bytesOfText(',"ID":');
const KEY = bytesOfText(',"Key":');
const METADATA = bytesOfText(',"Metadata":""');
const NAMESPACE = bytesOfText(',"K8sNamespace":');
const POD_NAME = bytesOfText(',"K8sPodName":');
const SERVICE_ACCOUNT = bytesOfText(',"K8sServiceAccount":');
const END = bytesOfText('}');

/** Writes a field, unless it is empty. */
function writeText(field: Uint8Array, text: string | undefined): void {
  if (text === undefined || text === '') return;
  out.ascii(field);
  out.string(text);
}

function writePod({ namespace, podName, serviceAccount, namedPorts }: PodMetadata): void {
  writeText(NAMESPACE, namespace);
  writeText(POD_NAME, podName);
  writeText(SERVICE_ACCOUNT, serviceAccount);
  const ports = namedPortsText(namedPorts);
  if (ports !== undefined) out.json(`,"NamedPorts":${ports}`);
}

const PAIR = shaped<IPIdentityPair>(
  'must have a key, an identity and an encryptKey',
  ({ key, identity, encryptKey }) =>
    typeof key === 'string' && typeof identity === 'number' && typeof encryptKey === 'number',
);

/** Returns the same bytes as Cilium. `pair.key` must be canonical. The order of named ports is kept. */
export function encodeIPIdentityPair(pair: IPIdentityPair): Uint8Array {
  checkArgument('encodeIPIdentityPair: pair', pair, PAIR);
  write(pair);
  return out.copy();
}

/** Like {@link encodeIPIdentityPair}, but the bytes are valid only until the next pair is encoded. */
export function viewOfIPIdentityPair(pair: IPIdentityPair): Uint8Array {
  write(pair);
  return out.view();
}

/**
 * Returns true if the pair that was encoded last has no named ports, and its value has the form that Go writes. Each
 * decoder accepts such a value if it is not too large. If false, a decoder must check the value. Reads no bytes,
 * because the processor waits for bytes that were just written.
 */
export function isPlainPair({ key, identity, hostIP = '', encryptKey, k8s }: IPIdentityPair): boolean {
  return (
    out.isPlain &&
    isInteger(identity, MAX_IDENTITY) &&
    isInteger(encryptKey, 0xff) &&
    k8s?.namedPorts === undefined &&
    (hostIP === '' || canonicalAddress(hostIP) === hostIP) &&
    canonicalKey(key) === key &&
    !key.includes('@')
  );
}

function isInteger(value: number, max: number): boolean {
  return Number.isInteger(value) && value >= 0 && value <= max;
}

function write(pair: IPIdentityPair): void {
  const { identity, hostIP = '', encryptKey, k8s } = pair;
  const name = withoutSpace(pair.key);
  const slash = name.indexOf('/');
  const ip = slash < 0 ? name : name.slice(0, slash);
  out.begin();
  out.ascii(START);
  out.string(ip);
  out.ascii(MASK);
  if (slash < 0) out.ascii(NULL);
  else out.string(maskText(ip.includes(':') ? 6 : 4, Number(name.slice(slash + 1))));
  out.ascii(HOST_IP);
  out.string(hostIP);
  out.ascii(ID);
  out.number(identity);
  out.ascii(KEY);
  out.number(encryptKey);
  out.ascii(METADATA);
  if (k8s !== undefined) writePod(k8s);
  out.ascii(END);
}
