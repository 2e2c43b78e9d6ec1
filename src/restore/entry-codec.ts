import type { K8sMetadata, KeyedEntry, NamedPorts } from '../ipcache/types.ts';
import { isNumericIdentity } from '../model/numeric-identity.ts';
import { isSource, type Source } from '../model/source.ts';
import { addressBits } from '../net/address-words.ts';
import type { PortProtocol } from '../net/port.ts';
import { formatKey, MAX_CLUSTER_ID, parseKey, prefixRegister } from '../net/prefix.ts';
import { type ByteReader, CorruptError } from './byte-reader.ts';
import { type ByteWriter, MAX_NUMBERED_TEXTS } from './byte-writer.ts';

/** An IPCache entry in a checkpoint: the effective claim of a key. */
export type CheckpointEntry = Omit<KeyedEntry, 'shadowed'>;

/**
 * The sets of named ports that were read, by their bytes, so that pods with equal ports share one map. The first of
 * several equal sets may have its own map: its bytes differ if it contains names in full that later sets refer to.
 */
export type PortSets = Map<string, NamedPorts>;

// Flags of an entry. They select the parts that follow.
const IS_CIDR = 1;
const IS_IPV6 = 2;
const HAS_HOST = 4;
const HAS_ENCRYPT_KEY = 8;
const HAS_POD = 16;
const HAS_PORTS = 32;
const HAS_ACCOUNT = 64;
const HAS_CLUSTER_ID = 128;

// One register for all calls, because writer and reader are never called recursively.
const key = prefixRegister();

/**
 * Writes an entry:
 *
 *     flags │ prefix length if CIDR │ cluster id │ 1 or 4 words of address │ identity │ source │ owner │ host │
 *           │ encrypt key │ namespace │ pod │ service account │ count of ports, and for each its name, port, protocol │
 *
 * Sources, owners, hosts, namespaces, accounts and port names repeat, so each is written once and then referenced by
 * number. A typical pod takes about 40 bytes. Throws `CorruptError` if the key is invalid.
 */
export function writeEntry(out: ByteWriter, entry: CheckpointEntry): void {
  if (!parseKey(entry.key, key)) throw new CorruptError(`invalid key ${entry.key}`);
  const { hostIP, encryptKey, k8s } = entry;
  const { namedPorts: ports, serviceAccount = '' } = k8s ?? {};
  const isIPv6 = key.family === 6;
  out.byte(
    (key.form === 'cidr' ? IS_CIDR : 0) |
      (isIPv6 ? IS_IPV6 : 0) |
      (hostIP === undefined ? 0 : HAS_HOST) |
      (encryptKey === 0 ? 0 : HAS_ENCRYPT_KEY) |
      (k8s === undefined ? 0 : HAS_POD) |
      (ports === undefined ? 0 : HAS_PORTS) |
      (serviceAccount === '' ? 0 : HAS_ACCOUNT) |
      (key.clusterID === 0 ? 0 : HAS_CLUSTER_ID),
  );
  if (key.form === 'cidr') out.byte(key.length);
  if (key.clusterID !== 0) out.number(key.clusterID);
  out.word(key.w0);
  if (isIPv6) for (const word of [key.w1, key.w2, key.w3]) out.word(word);
  out.number(entry.identity);
  out.frequentText(entry.source);
  out.frequentText(entry.owner);
  if (hostIP !== undefined) out.frequentText(hostIP);
  if (encryptKey !== 0) out.byte(encryptKey);
  if (k8s === undefined) return;
  out.frequentText(k8s.namespace);
  out.text(k8s.podName);
  if (serviceAccount !== '') out.frequentText(serviceAccount);
  if (ports !== undefined) writePorts(out, ports);
}

function writePorts(out: ByteWriter, ports: NamedPorts): void {
  out.number(ports.size);
  for (const [name, { port, protocol }] of ports) {
    out.frequentText(name);
    out.number(port);
    out.number(protocol);
  }
}

/**
 * Reads an entry. Throws `CorruptError` if it is invalid.
 *
 * @param portSets shared by all entries of a file
 */
export function readEntry(from: ByteReader, portSets: PortSets): CheckpointEntry {
  const flags = from.byte();
  key.family = flags & IS_IPV6 ? 6 : 4;
  key.form = flags & IS_CIDR ? 'cidr' : 'endpoint';
  key.length = flags & IS_CIDR ? from.byte() : addressBits(key.family);
  if (key.length > addressBits(key.family)) throw new CorruptError(`a CIDR has length ${key.length}`);
  key.clusterID = flags & HAS_CLUSTER_ID ? from.number() : 0;
  if (key.clusterID > MAX_CLUSTER_ID) throw new CorruptError(`an entry has address space ${key.clusterID}`);
  key.w0 = from.word();
  key.w1 = flags & IS_IPV6 ? from.word() : 0;
  key.w2 = flags & IS_IPV6 ? from.word() : 0;
  key.w3 = flags & IS_IPV6 ? from.word() : 0;
  const text = formatKey(key);
  return {
    key: text,
    identity: identityOf(from.number()),
    source: sourceOf(from.frequentText()),
    owner: from.frequentText(),
    hostIP: flags & HAS_HOST ? from.frequentText() : undefined,
    encryptKey: flags & HAS_ENCRYPT_KEY ? from.byte() : 0,
    k8s: flags & HAS_POD ? readPod(from, flags, portSets) : undefined,
  };
}

function readPod(from: ByteReader, flags: number, portSets: PortSets): K8sMetadata {
  const namespace = from.frequentText();
  const podName = from.text();
  const hasPorts = (flags & HAS_PORTS) !== 0;
  if (flags & HAS_ACCOUNT) {
    const serviceAccount = from.frequentText();
    return hasPorts
      ? { namespace, podName, serviceAccount, namedPorts: readPorts(from, portSets) }
      : { namespace, podName, serviceAccount };
  }
  return hasPorts ? { namespace, podName, namedPorts: readPorts(from, portSets) } : { namespace, podName };
}

function readPorts(from: ByteReader, portSets: PortSets): NamedPorts {
  const { at } = from;
  const names: string[] = [];
  const numbers: number[] = [];
  for (let count = from.number(); count > 0; count--) {
    names.push(from.frequentText());
    numbers.push(from.number(), from.number());
  }
  const characters = from.charactersSince(at);
  const known = portSets.get(characters);
  if (known !== undefined) return known;
  const ports = new Map<string, PortProtocol>();
  for (const [i, name] of names.entries())
    ports.set(name, { port: numbers[2 * i] ?? 0, protocol: numbers[2 * i + 1] ?? 0 });
  if (portSets.size < MAX_NUMBERED_TEXTS) portSets.set(characters, ports);
  return ports;
}

function identityOf(value: number): KeyedEntry['identity'] {
  if (!isNumericIdentity(value)) throw new CorruptError(`invalid identity ${value}`);
  return value;
}

function sourceOf(text: string): Source {
  if (!isSource(text)) throw new CorruptError(`invalid source ${text}`);
  return text;
}
