import type { HeldClaim } from '../ipcache/row-reader.ts';
import type { ClaimWriter, K8sMetadata, NamedPorts } from '../ipcache/types.ts';
import { isNumericIdentity } from '../model/numeric-identity.ts';
import { isSource } from '../model/source.ts';
import { type ByteBuffer, DamagedError } from './byte-buffer.ts';
import type { Names } from './names.ts';

// Flags of a claim: the parts that follow.
const HAS_HOST = 1;
const HAS_KEY = 2;
const HAS_POD = 4;
const HAS_ACCOUNT = 8;
const HAS_PORTS = 16;
const ALL_FLAGS = 31;

/** Returns the text of a writer in records. Sources contain no space. */
export function writerText({ source, owner }: ClaimWriter): string {
  return owner === '' ? source : `${source} ${owner}`;
}

/** Returns the writer of {@link writerText}. */
export function parseWriter(text: string): ClaimWriter {
  const space = text.indexOf(' ');
  const source = space < 0 ? text : text.slice(0, space);
  if (!isSource(source)) throw new DamagedError(`unknown source ${source}`);
  return { source, owner: space < 0 ? '' : text.slice(space + 1) };
}

/**
 * Writes the attributes of a claim:
 *
 *     flags │ identity │ host │ key │ namespace │ first part of the pod name │ the rest of it │ service account │ named ports
 *
 * The pods of a ReplicaSet differ in the text after the last `-` only, so the part up to it is a name. A typical pod takes about
 * 16 bytes.
 */
export function writeClaim(out: ByteBuffer, names: Names, claim: HeldClaim): void {
  const { hostIP, encryptKey, k8s } = claim;
  const { serviceAccount = '', namedPorts } = k8s ?? {};
  const hasPorts = namedPorts !== undefined && namedPorts.size > 0;
  out.byte(
    (hostIP === undefined ? 0 : HAS_HOST) |
      (encryptKey === 0 ? 0 : HAS_KEY) |
      (k8s === undefined ? 0 : HAS_POD) |
      (serviceAccount === '' ? 0 : HAS_ACCOUNT) |
      (hasPorts ? HAS_PORTS : 0),
  );
  out.number(claim.identity);
  if (hostIP !== undefined) names.write(hostIP);
  if (encryptKey !== 0) out.byte(encryptKey);
  if (k8s === undefined) return;
  const { namespace, podName } = k8s;
  const split = podName.lastIndexOf('-') + 1;
  names.write(namespace);
  names.write(podName.slice(0, split));
  out.text(podName.slice(split));
  if (serviceAccount !== '') names.write(serviceAccount);
  if (hasPorts) names.write(portsText(namedPorts));
}

/** Reads the attributes of a claim of `writer`. */
export function readClaim(from: ByteBuffer, names: Names, { source, owner }: ClaimWriter): HeldClaim {
  const flags = from.readByte();
  if (flags > ALL_FLAGS) throw new DamagedError(`a claim has flags ${flags}`);
  const identity = from.readNumber();
  if (!isNumericIdentity(identity)) throw new DamagedError(`invalid identity ${identity}`);
  const hostIP = flags & HAS_HOST ? names.read() : undefined;
  const encryptKey = flags & HAS_KEY ? from.readByte() : 0;
  const k8s = flags & HAS_POD ? readPod(from, names, flags) : undefined;
  return { identity, hostIP, encryptKey, k8s, source, owner };
}

/** Advances over a claim; `skipName` advances over each of its names. */
export function skipClaim(from: ByteBuffer, skipName: () => void): void {
  const flags = from.readByte();
  if (flags > ALL_FLAGS) throw new DamagedError(`a claim has flags ${flags}`);
  from.readNumber();
  if (flags & HAS_HOST) skipName();
  if (flags & HAS_KEY) from.readByte();
  if ((flags & HAS_POD) === 0) return;
  skipName();
  skipName();
  from.skipText();
  if (flags & HAS_ACCOUNT) skipName();
  if (flags & HAS_PORTS) skipName();
}

function readPod(from: ByteBuffer, names: Names, flags: number): K8sMetadata {
  const namespace = names.read();
  const podName = names.read() + from.readText();
  const account = flags & HAS_ACCOUNT ? { serviceAccount: names.read() } : {};
  const ports = flags & HAS_PORTS ? { namedPorts: parsePorts(names.read()) } : {};
  return { namespace, podName, ...account, ...ports };
}

function portsText(ports: NamedPorts): string {
  return JSON.stringify(Array.from(ports, ([name, { port, protocol }]) => [name, port, protocol]));
}

function parsePorts(text: string): NamedPorts {
  const ports = new Map<string, { readonly port: number; readonly protocol: number }>();
  const list = parseJSON(text);
  if (!Array.isArray(list)) throw new DamagedError('invalid named ports');
  for (const item of list as unknown[]) {
    const [name, port, protocol] = Array.isArray(item) ? (item as unknown[]) : [];
    if (typeof name !== 'string' || typeof port !== 'number' || typeof protocol !== 'number')
      throw new DamagedError('invalid named ports');
    ports.set(name, { port, protocol });
  }
  return ports;
}

/** Returns the value of a JSON text. Throws {@link DamagedError} if it is invalid. */
export function parseJSON(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new DamagedError('invalid JSON', { cause: error });
  }
}
