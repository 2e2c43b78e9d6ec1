import { sameMetadata } from '../ipcache/k8s-metadata.ts';
import type { CompleteClaim } from '../ipcache/row-reader.ts';
import type { ClaimWriter, K8sMetadata, NamedPorts } from '../ipcache/types.ts';
import { isNumericIdentity, type NumericIdentity } from '../model/numeric-identity.ts';
import { isSource } from '../model/source.ts';
import type { AddressWords } from '../net/address-words.ts';
import { type ByteBuffer, DamagedError } from '../net/byte-buffer.ts';
import { formatAddress } from '../net/format-address.ts';
import { scanIPv4 } from '../net/parse-address.ts';
import { MAX_NAMESPACE, type Names } from './names.ts';

// Flags of a claim: the parts that follow.
const HOST_MASK = 3; // two bits: a value of HOST_FORM
const HAS_ENCRYPT_KEY = 4;
const HAS_POD = 8;
const HAS_ACCOUNT = 16;
const HAS_PORTS = 32;
/** All parts of the pod are those of the previous claim in the record. */
const SAME_POD = 64;
/** The namespace exceeds {@link MAX_NAMESPACE}, and is written as one of the {@link Names} before the pod. */
const LONG_NAMESPACE = 128;

/** How the host is written. `name`: as one of the {@link Names}. `previous`: as that of the record's previous claim. */
const HOST_FORM = { none: 0, name: 1, ipv4: 2, previous: 3 } as const;

/** The IPv4 address that {@link hostFormOf} parsed last. */
const scratchAddress: AddressWords = { family: 4, w0: 0, w1: 0, w2: 0, w3: 0 };

/** Returns how a host is written. Parses an IPv4 address into {@link scratchAddress}. */
function hostFormOf(hostIP: string | undefined, previous: CompleteClaim | undefined): number {
  if (hostIP === undefined) return HOST_FORM.none;
  if (previous?.hostIP === hostIP) return HOST_FORM.previous;
  return scanIPv4(hostIP, scratchAddress) === hostIP.length ? HOST_FORM.ipv4 : HOST_FORM.name;
}

/** Maximum number of bytes of a claim without its texts. */
const MAX_FIXED_BYTES = 32;

/** Returns the name of a writer in records: its source, which has no spaces, and its owner after a space. */
export function writerText({ source, owner }: ClaimWriter): string {
  return owner === '' ? source : `${source} ${owner}`;
}

export function parseWriter(text: string): ClaimWriter {
  const space = text.indexOf(' ');
  const source = space < 0 ? text : text.slice(0, space);
  if (!isSource(source)) throw new DamagedError(`unknown source ${source}`);
  return { source, owner: space < 0 ? '' : text.slice(space + 1) };
}

/**
 * Writes the attributes of a claim:
 *
 *     flags │ identity │ host │ encryptKey │ namespace and first part of the pod name │ rest of the pod name
 *     │ service account │ named ports
 *
 * The names of a ReplicaSet's pods differ only after the last `-`, so the part up to it is one of the repeated
 * {@link Names}. A typical pod takes about 16 bytes. `previous` is the previous claim in the record: most changes of a
 * claim keep its pod and its host.
 */
export function writeClaim(
  out: ByteBuffer,
  names: Names,
  claim: CompleteClaim,
  previous: CompleteClaim | undefined,
): void {
  const { hostIP, encryptKey } = claim;
  const isSamePod = previous?.k8s !== undefined && sameMetadata(previous.k8s, claim.k8s);
  const k8s = isSamePod ? undefined : claim.k8s;
  const { namespace = '', podName = '', serviceAccount = '', namedPorts } = k8s ?? {};
  // Reads the lengths of all texts first, so that their cache misses overlap.
  out.reserve(MAX_FIXED_BYTES + 3 * ((hostIP?.length ?? 0) + namespace.length + podName.length));
  const hasPorts = namedPorts !== undefined && namedPorts.size > 0;
  const isLongNamespace = namespace.length > MAX_NAMESPACE;
  const hostForm = hostFormOf(hostIP, previous);
  out.writeByte(
    hostForm |
      (encryptKey === 0 ? 0 : HAS_ENCRYPT_KEY) |
      (isSamePod ? SAME_POD : 0) |
      (k8s === undefined ? 0 : HAS_POD) |
      (serviceAccount === '' ? 0 : HAS_ACCOUNT) |
      (hasPorts ? HAS_PORTS : 0) |
      (isLongNamespace ? LONG_NAMESPACE : 0),
  );
  out.writeNumber(claim.identity);
  if (hostForm === HOST_FORM.ipv4) out.writeWord(scratchAddress.w0);
  else if (hostForm === HOST_FORM.name && hostIP !== undefined) names.write(hostIP);
  if (encryptKey !== 0) out.writeByte(encryptKey);
  if (k8s === undefined) return;
  if (isLongNamespace) names.write(namespace);
  names.writePod(isLongNamespace ? '' : namespace, podName);
  if (serviceAccount !== '') names.write(serviceAccount);
  if (hasPorts) names.write(portsText(namedPorts));
}

/** Reads the attributes of a claim of a writer. `previous` is the previous claim in the record. */
export function readClaim(
  from: ByteBuffer,
  names: Names,
  { source, owner }: ClaimWriter,
  previous: CompleteClaim | undefined,
): CompleteClaim {
  const flags = from.readByte();
  const identity = readNumericIdentity(from);
  const hostIP = readHost(from, names, flags & HOST_MASK, previous);
  const encryptKey = flags & HAS_ENCRYPT_KEY ? from.readByte() : 0;
  const pod = flags & HAS_POD ? readPod(names, flags) : undefined;
  return { identity, hostIP, encryptKey, k8s: flags & SAME_POD ? previous?.k8s : pod, source, owner };
}

/** Reads only the identity of a claim. */
export function readClaimIdentity(from: ByteBuffer): NumericIdentity {
  from.readByte();
  return readNumericIdentity(from);
}

function readNumericIdentity(from: ByteBuffer): NumericIdentity {
  const identity = from.readNumber();
  if (!isNumericIdentity(identity)) throw new DamagedError(`invalid identity ${identity}`);
  return identity;
}

function readHost(
  from: ByteBuffer,
  names: Names,
  hostForm: number,
  previous: CompleteClaim | undefined,
): string | undefined {
  if (hostForm === HOST_FORM.none) return undefined;
  if (hostForm === HOST_FORM.previous) return previous?.hostIP;
  if (hostForm === HOST_FORM.name) return names.read();
  return formatAddress({ ...scratchAddress, w0: from.readWord() });
}

/** Advances over a claim; `skipName` advances over each of its names. */
export function skipClaim(from: ByteBuffer, skipName: () => void): void {
  const flags = from.readByte();
  from.readNumber();
  if ((flags & HOST_MASK) === HOST_FORM.name) skipName();
  if ((flags & HOST_MASK) === HOST_FORM.ipv4) from.readWord();
  if (flags & HAS_ENCRYPT_KEY) from.readByte();
  if ((flags & HAS_POD) === 0) return;
  if (flags & LONG_NAMESPACE) skipName();
  skipName();
  from.skipText();
  if (flags & HAS_ACCOUNT) skipName();
  if (flags & HAS_PORTS) skipName();
}

function readPod(names: Names, flags: number): K8sMetadata {
  const long = flags & LONG_NAMESPACE ? names.read() : undefined;
  const { namespace, podName } = names.readPod();
  const account = flags & HAS_ACCOUNT ? { serviceAccount: names.read() } : {};
  const ports = flags & HAS_PORTS ? { namedPorts: parsePorts(names.read()) } : {};
  return { namespace: long ?? namespace, podName, ...account, ...ports };
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
