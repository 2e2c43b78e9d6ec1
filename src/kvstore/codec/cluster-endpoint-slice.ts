import { checkArgument, ITERABLE, LIST, NUMBER, objectWith, oneOf, TEXT } from '../../base/arguments.ts';
import { runToEnd } from '../../base/turn-gate.ts';
import { parseWeight, WEIGHT_ANNOTATION, WEIGHT_RULE } from '../../model/backend-weight.ts';
import {
  type ClusterEndpointSlice,
  type ClusterEndpointSliceKey,
  type EndpointConditions,
  SERVICE_NAME_LABEL,
  SLICE_LIMITS,
  type SliceAddressType,
  type SliceEndpoint,
  type SlicePort,
} from '../../model/cluster-endpoint-slice.ts';
import { type Decoded, decodeInSteps, decodeWith, type RejectField, rejectInput } from '../../net/fields.ts';
import { PORT_PROTOCOLS, PROTOCOL_NUMBERS, protocolName } from '../../net/port.ts';
import { canonicalAddress, MAX_CLUSTER_ID } from '../../net/prefix.ts';
import { isSpecialAddress, SPECIAL_ADDRESS_RULE } from '../../net/special-address.ts';
import { textOfBytes } from './bytes.ts';
import { compareKeys } from './key-range.ts';
import { LENGTH_DELIMITED, ProtoError, ProtoReader, VARINT } from './proto-reader.ts';
import { ProtoWriter } from './proto-writer.ts';
import { type EncodedValue, VALUE_LIMITS, type ValueLimits } from './value.ts';
import { compressZstd, decompressZstd } from './zstd/zstd.ts';
import { readZstdFrame } from './zstd/zstd-frame.ts';

/*
 * The value is a zstd frame of a protobuf message (Cilium pkg/clustermesh/types/endpointslice, 1.20):
 *
 *     ClusterEndpointSlice  1 cluster  2 clusterID  3 namespace  4 name  5 labels  6 annotations  7 addressType
 *                           8 endpoints  9 ports
 *     Endpoint              1 addresses  2 conditions  3 hostname  5 deprecatedTopology  6 nodeName  7 zone  8 hints
 *     EndpointConditions    1 ready  2 serving  3 terminating
 *     EndpointHints         1 forZones {1 name}
 *     EndpointPort          1 name  2 protocol  3 port
 */

/** A step ends after the endpoint or port that reaches this number of fields: 64 endpoints or 200 ports, or 0.5 ms. */
const FIELDS_PER_STEP = 1024;

/** Maximum number of fields in one step. A step within the other limits has fewer than 20,000. */
const MAX_FIELDS = 65_536;

/** Content with more bytes is decoded in steps. Smaller content takes at most about 2 ms. */
const LARGE_BYTES = 64 * 1024;

const NO_ENTRIES: ReadonlyMap<string, string> = new Map();

type Writable<T> = { -readonly [K in keyof T]: T[K] };

/**
 * Reads the message. Fields may have any order. Unknown fields are skipped; a known field with another wire type is
 * rejected.
 */
class SliceReader {
  readonly #reader: ProtoReader;
  readonly #limits: ValueLimits;
  readonly #drop: RejectField<undefined>;
  /** Number of fields of the current step. */
  #fields = 0;
  /** Number of addresses of all endpoints. */
  #addresses = 0;
  /** The first address of each family, with its path. */
  readonly #firstOf = new Map<SliceAddressType, readonly [path: string, address: string]>();

  constructor(content: Uint8Array, limits: ValueLimits, drop: RejectField<undefined>) {
    this.#reader = new ProtoReader(Buffer.from(content.buffer, content.byteOffset, content.byteLength));
    this.#limits = limits;
    this.#drop = drop;
  }

  *slice(): Generator<undefined, ClusterEndpointSlice> {
    const reader = this.#reader;
    const labels = new Map<string, string>();
    const annotations = new Map<string, string>();
    const endpoints: SliceEndpoint[] = [];
    const ports: SlicePort[] = [];
    let [cluster, namespace, name, addressType] = ['', '', '', ''];
    let [clusterID, portCount, labelCount, annotationCount] = [0, 0, 0, 0];
    while (this.#next(reader.buffer.length)) {
      const { field } = reader;
      if (field === 1) cluster = this.#text('cluster');
      else if (field === 2) clusterID = this.#number('clusterID');
      else if (field === 3) namespace = this.#text('namespace');
      else if (field === 4) name = this.#text('name');
      else if (field === 5) this.#entry('labels', labels, ++labelCount);
      else if (field === 6) this.#entry('annotations', annotations, ++annotationCount);
      else if (field === 7) addressType = this.#text('addressType');
      else if (field === 8) {
        checkCount(SLICE_LIMITS.endpoints, endpoints.length + 1, 'endpoints');
        endpoints.push(this.#endpoint(`endpoints[${endpoints.length}]`));
      } else if (field === 9) {
        checkCount(SLICE_LIMITS.ports, ++portCount, 'ports');
        const port = this.#port(`ports[${portCount - 1}]`);
        if (port !== undefined) ports.push(port);
      } else reader.skip();
      if (this.#fields < FIELDS_PER_STEP) continue;
      this.#fields = 0;
      yield;
    }
    const weight = annotations.get(WEIGHT_ANNOTATION);
    if (weight !== undefined && parseWeight(weight) === undefined)
      this.#drop('invalid-weight', `annotations.${WEIGHT_ANNOTATION}`, weight, WEIGHT_RULE);
    const key = { cluster, namespace, name, clusterID };
    return { labels, annotations, addressType: this.#family(addressType), endpoints, ports, ...key };
  }

  /** Returns the address type, which must be the family of all addresses. */
  #family(addressType: string): SliceAddressType {
    if (addressType !== 'IPv4' && addressType !== 'IPv6')
      return rejectInput('unknown-value', 'addressType', addressType, 'must be IPv4 or IPv6');
    const wrong = this.#firstOf.get(addressType === 'IPv4' ? 'IPv6' : 'IPv4');
    if (wrong !== undefined) rejectInput('wrong-family', ...wrong, `must be an ${addressType} address`);
    return addressType;
  }

  #endpoint(path: string): SliceEndpoint {
    const reader = this.#reader;
    const addresses: string[] = [];
    const conditions: Writable<EndpointConditions> = {};
    const forZones: string[] = [];
    let topology: Map<string, string> | undefined;
    let [topologyCount, addressCount] = [0, 0];
    let [hostname, nodeName, zone]: (string | undefined)[] = [];
    for (const end = this.#open(path); this.#next(end); ) {
      const { field } = reader;
      if (field === 1) {
        checkCount(SLICE_LIMITS.addresses, ++addressCount, `${path}.addresses`);
        const address = this.#address(`${path}.addresses[${addressCount - 1}]`);
        if (address !== undefined) addresses.push(address);
      } else if (field === 2) this.#conditions(`${path}.conditions`, conditions);
      else if (field === 3) hostname = this.#text(`${path}.hostname`);
      else if (field === 5) {
        topology ??= new Map();
        this.#entry(`${path}.deprecatedTopology`, topology, ++topologyCount);
      } else if (field === 6) nodeName = this.#text(`${path}.nodeName`);
      else if (field === 7) zone = this.#text(`${path}.zone`);
      else if (field === 8) this.#hints(`${path}.hints`, forZones);
      else reader.skip();
    }
    const deprecatedTopology = topology ?? NO_ENTRIES;
    return { addresses, conditions, hostname, nodeName, zone, forZones, deprecatedTopology };
  }

  /** Returns an address. Drops a special one. */
  #address(path: string): string | undefined {
    checkCount(this.#limits.serviceEntries, ++this.#addresses, 'addresses');
    const text = this.#text(path);
    const address = canonicalAddress(text);
    if (address === undefined) rejectInput('invalid-address', path, text, 'is not a valid IP address');
    const family = familyOf(text);
    if (!this.#firstOf.has(family)) this.#firstOf.set(family, [path, text]);
    return isSpecialAddress(address)
      ? this.#drop('special-address', path, text, SPECIAL_ADDRESS_RULE)
      : address;
  }

  #conditions(path: string, conditions: Writable<EndpointConditions>): void {
    const reader = this.#reader;
    for (const end = this.#open(path); this.#next(end); ) {
      if (reader.field === 1) conditions.ready = this.#boolean(path);
      else if (reader.field === 2) conditions.serving = this.#boolean(path);
      else if (reader.field === 3) conditions.terminating = this.#boolean(path);
      else reader.skip();
    }
  }

  #hints(path: string, forZones: string[]): void {
    const reader = this.#reader;
    for (const end = this.#open(path); this.#next(end); ) {
      if (reader.field !== 1) {
        reader.skip();
        continue;
      }
      checkCount(this.#limits.labels, forZones.length + 1, `${path}.forZones`);
      let name = '';
      for (const zoneEnd = this.#open(path); this.#next(zoneEnd); ) {
        if (reader.field === 1) name = this.#text(path);
        else reader.skip();
      }
      forZones.push(name);
    }
  }

  /** Returns a port. Drops it if its protocol is unknown or its number is not from 1 to 65535. */
  #port(path: string): SlicePort | undefined {
    const reader = this.#reader;
    let name = '';
    let protocolText = 'TCP';
    let port: number | undefined;
    for (const end = this.#open(path); this.#next(end); ) {
      if (reader.field === 1) name = this.#text(path);
      else if (reader.field === 2) protocolText = this.#text(path);
      else if (reader.field === 3) port = this.#number(path);
      else reader.skip();
    }
    const protocol = PORT_PROTOCOLS.find((known) => known === protocolText);
    if (protocol === undefined)
      return this.#drop('unknown-protocol', `${path}.protocol`, protocolText, 'must be TCP, UDP or SCTP');
    if (port === undefined || port < 1 || port > 0xffff)
      return this.#drop('out-of-range', `${path}.port`, port, 'must be a port number from 1 to 65535');
    return { name, port, protocol: PROTOCOL_NUMBERS[protocol] };
  }

  /** Adds an entry of a map of strings. `count` includes entries with the same key. */
  #entry(path: string, entries: Map<string, string>, count: number): void {
    const reader = this.#reader;
    checkCount(this.#limits.labels, count, path);
    let [key, value] = ['', ''];
    for (const end = this.#open(path); this.#next(end); ) {
      if (reader.field === 1) key = this.#text(path);
      else if (reader.field === 2) value = this.#text(path);
      else reader.skip();
    }
    entries.set(key, value);
  }

  /** Moves to the next field before `end`. Returns false if there is none. */
  #next(end: number): boolean {
    checkCount(MAX_FIELDS, ++this.#fields, 'value');
    return this.#reader.next(end);
  }

  #open(path: string): number {
    this.#expect(LENGTH_DELIMITED, path);
    return this.#reader.open();
  }

  #text(path: string): string {
    this.#expect(LENGTH_DELIMITED, path);
    const bytes = this.#reader.bytes();
    return textOfBytes(bytes) ?? rejectInput('invalid-utf8', path, `${bytes.length} bytes`, 'is not UTF-8');
  }

  #number(path: string): number {
    this.#expect(VARINT, path);
    return this.#reader.number();
  }

  #boolean(path: string): boolean {
    return this.#number(path) !== 0;
  }

  #expect(wire: number, path: string): void {
    const found = this.#reader.wire;
    if (found !== wire) rejectInput('wrong-type', path, `wire type ${found}`, `must have wire type ${wire}`);
  }
}

/**
 * Returns the family of an address as Cilium determines it: an IPv4-mapped address (`::ffff:10.0.0.1`) is IPv6. Its
 * canonical form is IPv4 (SEMANTICS 2.1).
 */
function familyOf(address: string): SliceAddressType {
  return address.includes(':') ? 'IPv6' : 'IPv4';
}

/** Returns the address of a slice as a reader of Cilium accepts it. */
function addressIn(addressType: SliceAddressType, address: string): string {
  return addressType === 'IPv6' && familyOf(address) === 'IPv4' ? `::ffff:${address}` : address;
}

/** Rejects the slice if the count exceeds its limit. */
function checkCount(max: number, count: number, path: string): void {
  if (count > max) rejectInput('too-many', path, `${count} or more`, `must have at most ${max}`);
}

/** Checks the parts that {@link SliceReader} does not check. */
function checkSlice(slice: ClusterEndpointSlice, expected: ClusterEndpointSliceKey): ClusterEndpointSlice {
  for (const field of ['cluster', 'namespace', 'name'] as const) {
    const value = slice[field];
    if (value === '') rejectInput('missing-field', field, value, 'must not be empty');
    if (value !== expected[field])
      rejectInput('key-mismatch', field, value, `must be ${expected[field]}, as in the key`);
  }
  if (slice.clusterID > MAX_CLUSTER_ID)
    rejectInput('out-of-range', 'clusterID', slice.clusterID, `must be from 0 to ${MAX_CLUSTER_ID}`);
  if ((slice.labels.get(SERVICE_NAME_LABEL) ?? '') === '')
    rejectInput('missing', `labels.${SERVICE_NAME_LABEL}`, undefined, 'must name the service of the slice');
  return slice;
}

function* readSlice(
  expected: ClusterEndpointSliceKey,
  value: EncodedValue,
  limits: ValueLimits,
  drop: RejectField<undefined>,
): Generator<undefined, ClusterEndpointSlice> {
  if (!(value instanceof Uint8Array)) return rejectInput('wrong-type', 'value', {}, 'must be a zstd frame');
  if (value.length > limits.bytes)
    rejectInput('too-large', 'value', `${value.length} bytes`, `must have at most ${limits.bytes} bytes`);
  const content = yield* decompressZstd(value);
  try {
    return checkSlice(yield* new SliceReader(content, limits, drop).slice(), expected);
  } catch (error) {
    if (!(error instanceof ProtoError)) throw error;
    return rejectInput('invalid-protobuf', 'value', `${content.length} bytes`, error.message);
  }
}

/**
 * Decodes the value of `…/endpointslices/v1/<cluster>/<namespace>/<slice>`. Reasons of rejection: `too-large`,
 * `invalid-zstd`, `invalid-protobuf`, `wrong-type`, `invalid-utf8`, `too-many`, `missing-field`, `key-mismatch`,
 * `out-of-range`, `missing` (no label with the name of the service), `unknown-value` (the address type),
 * `invalid-address`, `wrong-family`. Drops a special address alone: `special-address`; and a port if its number or
 * protocol is invalid: `out-of-range`, `unknown-protocol`. An invalid weight in the annotations has no effect:
 * `invalid-weight`.
 */
export function decodeClusterEndpointSlice(
  expected: ClusterEndpointSliceKey,
  value: EncodedValue,
  at: string,
  limits: ValueLimits = VALUE_LIMITS,
): Decoded<ClusterEndpointSlice> {
  return decodeWith(at, (drop) => runToEnd(readSlice(expected, value, limits, drop)));
}

/**
 * Like {@link decodeClusterEndpointSlice}, in steps of some milliseconds. Returns `undefined` if the value is not
 * large.
 */
export function decodeLargeEndpointSlice(
  expected: ClusterEndpointSliceKey,
  value: Uint8Array,
  at: string,
  limits: ValueLimits = VALUE_LIMITS,
): Generator<undefined, Decoded<ClusterEndpointSlice>> | undefined {
  return endpointSliceSize(value) > LARGE_BYTES
    ? decodeInSteps(at, (drop) => readSlice(expected, value, limits, drop))
    : undefined;
}

/**
 * Returns an upper bound of the size of a value's decompressed content; for an invalid value, the size of the value.
 */
export function endpointSliceSize(value: Uint8Array): number {
  if (value.length === 0) return 0; // a delete
  const frame = decodeWith('', () => readZstdFrame(value));
  return frame.ok ? frame.value.maxSize : value.length;
}

function writeMapEntry(writer: ProtoWriter, [key, value]: readonly [string, string]): void {
  writer.text(1, key);
  writer.text(2, value);
}

/** Writes the entries of a map of strings, sorted by key as Cilium does. */
function writeMap(writer: ProtoWriter, field: number, map: ReadonlyMap<string, string>): void {
  for (const entry of [...map].sort(([a], [b]) => compareKeys(a, b)))
    writer.message(field, writeMapEntry, entry);
}

function writeConditions(writer: ProtoWriter, conditions: SliceEndpoint['conditions']): void {
  writer.varint(1, conditions.ready);
  writer.varint(2, conditions.serving);
  writer.varint(3, conditions.terminating);
}

function writeZone(writer: ProtoWriter, name: string): void {
  writer.text(1, name);
}

function writeZones(writer: ProtoWriter, zones: SliceEndpoint['forZones']): void {
  for (const name of zones) writer.message(1, writeZone, name);
}

function writeEndpoint(writer: ProtoWriter, endpoint: SliceEndpoint, addressType: SliceAddressType): void {
  const { addresses, conditions, hostname, deprecatedTopology, nodeName, zone, forZones } = endpoint;
  for (const address of addresses) writer.text(1, addressIn(addressType, address));
  writer.message(2, writeConditions, conditions);
  writer.text(3, hostname);
  writeMap(writer, 5, deprecatedTopology);
  writer.text(6, nodeName);
  writer.text(7, zone);
  if (forZones.length > 0) writer.message(8, writeZones, forZones);
}

function writePort(writer: ProtoWriter, { name, protocol, port }: SlicePort): void {
  writer.text(1, name);
  writer.text(2, protocolName(protocol));
  writer.varint(3, port);
}

/** Returns the same message as Cilium, without compression. */
export function encodeEndpointSliceMessage(slice: ClusterEndpointSlice): Uint8Array {
  const writer = new ProtoWriter();
  writer.text(1, slice.cluster);
  writer.varint(2, slice.clusterID);
  writer.text(3, slice.namespace);
  writer.text(4, slice.name);
  writeMap(writer, 5, slice.labels);
  writeMap(writer, 6, slice.annotations);
  writer.text(7, slice.addressType);
  const ofType = (_writer: ProtoWriter, endpoint: SliceEndpoint): void =>
    writeEndpoint(writer, endpoint, slice.addressType);
  for (const endpoint of slice.endpoints) writer.message(8, ofType, endpoint);
  for (const port of slice.ports) writer.message(9, writePort, port);
  return writer.written;
}

const SLICE = objectWith({
  cluster: TEXT,
  namespace: TEXT,
  name: TEXT,
  clusterID: NUMBER,
  labels: ITERABLE,
  annotations: ITERABLE,
  addressType: oneOf('IPv4', 'IPv6'),
  endpoints: LIST,
  ports: LIST,
});

/**
 * Returns the same message as Cilium, in a zstd frame. Equal slices have equal bytes in all processes with the
 * same version of Node. If Node has no zstd (before 22.15), the frame is not compressed.
 */
export function encodeClusterEndpointSlice(slice: ClusterEndpointSlice): Uint8Array {
  checkArgument('encodeClusterEndpointSlice: slice', slice, SLICE);
  return compressZstd(encodeEndpointSliceMessage(slice));
}
