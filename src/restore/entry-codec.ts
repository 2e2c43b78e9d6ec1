import type { K8sMetadata, KeyedEntry, NamedPorts } from '../ipcache/types.ts';
import { isNumericIdentity } from '../model/numeric-identity.ts';
import { isSource, type Source } from '../model/source.ts';
import { type ByteBuffer, DamagedError } from '../net/byte-buffer.ts';
import { readKey, writeKey } from '../net/key-record.ts';
import type { PortProtocol } from '../net/port.ts';
import { formatKey, parseKey, prefixRegister } from '../net/prefix.ts';
import { MAX_NUMBERED_TEXTS, type NumberedTexts } from './numbered-texts.ts';

/** An IPCache entry in a checkpoint: the effective claim of a key. */
export type CheckpointEntry = Omit<KeyedEntry, 'shadowed'>;

/**
 * The sets of named ports that were read, by their bytes, so that pods with equal ports share one map. The first of
 * several equal sets may have its own map: its bytes differ if it has names in full, which later sets have as numbers.
 */
export type PortSets = Map<string, NamedPorts>;

// Flags of an entry, in addition to those of its key. They select the parts that follow.
const HAS_HOST = 4;
const HAS_ENCRYPT_KEY = 8;
const HAS_POD = 16;
const HAS_PORTS = 32;
const HAS_ACCOUNT = 64;

// One register for all calls, because writer and reader are never called recursively.
const key = prefixRegister();

/**
 * Writes an entry:
 *
 *     flags and key │ identity │ source │ owner │ host │ encrypt key │ namespace │ pod │ service account │
 *                   │ count of ports, and for each its name, port, protocol │
 *
 * Sources, owners, hosts, namespaces, accounts and port names are numbered texts, because they repeat. A typical pod
 * takes about 40 bytes. Throws {@link DamagedError} if the key is invalid.
 */
export function writeEntry(out: ByteBuffer, texts: NumberedTexts, entry: CheckpointEntry): void {
  if (!parseKey(entry.key, key)) throw new DamagedError(`invalid key ${entry.key}`);
  const { hostIP, encryptKey, k8s } = entry;
  const { namedPorts: ports, serviceAccount = '' } = k8s ?? {};
  const flags =
    (hostIP === undefined ? 0 : HAS_HOST) |
    (encryptKey === 0 ? 0 : HAS_ENCRYPT_KEY) |
    (k8s === undefined ? 0 : HAS_POD) |
    (ports === undefined ? 0 : HAS_PORTS) |
    (serviceAccount === '' ? 0 : HAS_ACCOUNT);
  writeKey(out, key, flags);
  out.writeNumber(entry.identity);
  texts.write(out, entry.source);
  texts.write(out, entry.owner);
  if (hostIP !== undefined) texts.write(out, hostIP);
  if (encryptKey !== 0) out.writeByte(encryptKey);
  if (k8s === undefined) return;
  texts.write(out, k8s.namespace);
  out.writeText(k8s.podName);
  if (serviceAccount !== '') texts.write(out, serviceAccount);
  if (ports === undefined) return;
  out.writeNumber(ports.size);
  for (const [name, { port, protocol }] of ports) {
    texts.write(out, name);
    out.writeNumber(port);
    out.writeNumber(protocol);
  }
}

/**
 * Reads an entry. Throws {@link DamagedError} if it is invalid.
 *
 * @param texts shared by all entries of a file, like `portSets`
 */
export function readEntry(from: ByteBuffer, texts: NumberedTexts, portSets: PortSets): CheckpointEntry {
  const flags = readKey(from, key);
  return {
    key: formatKey(key),
    identity: identityOf(from.readNumber()),
    source: sourceOf(texts.read(from)),
    owner: texts.read(from),
    hostIP: flags & HAS_HOST ? texts.read(from) : undefined,
    encryptKey: flags & HAS_ENCRYPT_KEY ? from.readByte() : 0,
    k8s: flags & HAS_POD ? readPod(from, texts, flags, portSets) : undefined,
  };
}

function readPod(from: ByteBuffer, texts: NumberedTexts, flags: number, portSets: PortSets): K8sMetadata {
  const namespace = texts.read(from);
  const podName = from.readText();
  const hasPorts = (flags & HAS_PORTS) !== 0;
  if (flags & HAS_ACCOUNT) {
    const serviceAccount = texts.read(from);
    return hasPorts
      ? { namespace, podName, serviceAccount, namedPorts: readPorts(from, texts, portSets) }
      : { namespace, podName, serviceAccount };
  }
  return hasPorts
    ? { namespace, podName, namedPorts: readPorts(from, texts, portSets) }
    : { namespace, podName };
}

function readPorts(from: ByteBuffer, texts: NumberedTexts, portSets: PortSets): NamedPorts {
  const start = from.at;
  const names: string[] = [];
  const numbers: number[] = [];
  for (let count = from.readNumber(); count > 0; count--) {
    names.push(texts.read(from));
    numbers.push(from.readNumber(), from.readNumber());
  }
  const bytes = from.bytesFrom(start);
  const characters = Buffer.from(bytes.buffer, bytes.byteOffset, from.at - start).toString('latin1');
  const known = portSets.get(characters);
  if (known !== undefined) return known;
  const ports = new Map<string, PortProtocol>();
  for (const [i, name] of names.entries())
    ports.set(name, { port: numbers[2 * i] ?? 0, protocol: numbers[2 * i + 1] ?? 0 });
  if (portSets.size < MAX_NUMBERED_TEXTS) portSets.set(characters, ports);
  return ports;
}

function identityOf(value: number): KeyedEntry['identity'] {
  if (!isNumericIdentity(value)) throw new DamagedError(`invalid identity ${value}`);
  return value;
}

function sourceOf(text: string): Source {
  if (!isSource(text)) throw new DamagedError(`invalid source ${text}`);
  return text;
}
