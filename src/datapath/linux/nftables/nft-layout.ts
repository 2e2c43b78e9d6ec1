import type { Family } from '../../../net/address-words.ts';
import { NFT_TABLE } from '../kernel-names.ts';
import { addressBytes, familyOf, readAddressAttribute } from '../netlink/address-bytes.ts';
import { NetlinkFormatError, viewOf } from '../netlink/message-reader.ts';
import type { Endpoint } from '../services/service-layout.ts';
import {
  HOOK,
  NFPROTO,
  type NftChain,
  type NftExpression,
  type NftSet,
  type NftTable,
} from './nft-message.ts';

/** Types of keys and values, numbered as in `nft`. */
export const TYPE = { integer: 4, ipv4: 7, ipv6: 8, protocol: 12, service: 13 } as const;
const TYPE_BITS = 6;

/** The first register of 32 bits. The parts of a composite key are in consecutive registers. */
export const REGISTER = 8;
export const VERDICT_REGISTER = 0;
const NETWORK_HEADER = 1;
const TRANSPORT_HEADER = 2;
const META = { iif: 4, l4proto: 16 } as const;
/** Index of the loopback interface of each network namespace. */
const LOOPBACK = 1;
const CT = { original: 0, protocolPort: 12, ipv4: 20, ipv6: 22 } as const;
const COMPARE = { equal: 0, unequal: 1 } as const;
const DNAT = 1;
const RAW_PRIORITY = -300;
const DNAT_PRIORITY = -100;
const SNAT_PRIORITY = 100;
const PORT_UNREACHABLE = { 4: 3, 6: 4 } as const;

/**
 * A protocol of services. Each protocol has its own maps, because `nft` rejects a rule that rewrites ports of several
 * protocols. `header` is the protocol's number in `typeof` expressions.
 */
interface Protocol {
  readonly name: 'tcp' | 'udp' | 'sctp';
  readonly number: number;
  readonly header: number;
}

export const PROTOCOLS: readonly Protocol[] = [
  { name: 'tcp', number: 6, header: 8 },
  { name: 'udp', number: 17, header: 6 },
  { name: 'sctp', number: 132, header: 10 },
];

/** Name of an empty chain that marks the version of the layout. A table without this chain has another layout. */
export const LAYOUT_CHAIN = 'layout-3';

/** The mark of the previous layout. A table with it is kept: its missing sets and chains are added. */
export const FORMER_LAYOUT_CHAIN = 'layout-2';

/** The sets of a table that all protocols share; see also {@link backendsOf} and {@link masqueradeOf}. */
export const SETS = {
  /** The chain of each frontend with backends, see {@link pickChain}. */
  services: 'services',
  /** Frontends without backends. */
  refused: 'refused',
  /** The chain of each frontend with source ranges. */
  limited: 'limited',
  /** Cluster IPs: ports without a service are refused. */
  clusterIPs: 'cluster-ips',
} as const;

const BACKENDS = 'backends-';
const MASQUERADE = 'masquerade-';

/** Returns the name of the map of backends of a protocol. For an unknown protocol, no map has that name. */
export function backendsOf(protocol: number): string {
  return BACKENDS + nameOf(protocol);
}

/** Returns the name of the set of frontends of a protocol whose clients are masqueraded. */
export function masqueradeOf(protocol: number): string {
  return MASQUERADE + nameOf(protocol);
}

function nameOf(protocol: number): string {
  return PROTOCOLS.find(({ number }) => number === protocol)?.name ?? String(protocol);
}

/** Returns the content and protocol of a set from its name. */
export function setKind(
  name: string,
): { readonly kind: 'backends' | 'masquerade'; readonly protocol: number } | undefined {
  for (const { name: protocol, number } of PROTOCOLS) {
    if (name === BACKENDS + protocol) return { kind: 'backends', protocol: number };
    if (name === MASQUERADE + protocol) return { kind: 'masquerade', protocol: number };
  }
  return undefined;
}

export function tableOf(family: Family): NftTable {
  return { family: family === 4 ? NFPROTO.ipv4 : NFPROTO.ipv6, name: NFT_TABLE };
}

/** Returns the number of 32-bit words, and of registers, of an address. */
export function addressWords(family: Family): number {
  return family === 4 ? 1 : 4;
}

export function addressType(family: Family): number {
  return family === 4 ? TYPE.ipv4 : TYPE.ipv6;
}

/** Returns the type of a key or value that consists of an address and other parts. */
export function compositeType(family: Family, ...parts: readonly number[]): number {
  return parts.reduce((type, part) => (type << TYPE_BITS) | part, addressType(family));
}

/** Returns the sets of a table, except those of source ranges. */
export function setsOf(family: Family): readonly NftSet[] {
  const address = 4 * addressWords(family);
  const frontend = { keyType: compositeType(family, TYPE.protocol, TYPE.service), keyBytes: address + 8 };
  const ofProtocol = PROTOCOLS.flatMap((protocol): readonly NftSet[] => [
    {
      name: BACKENDS + protocol.name,
      keyType: compositeType(family, TYPE.service, TYPE.integer),
      keyBytes: address + 8,
      data: { type: compositeType(family, TYPE.service), bytes: address + 4 },
      typeOf: backendTypes(family, protocol),
    },
    {
      name: MASQUERADE + protocol.name,
      keyType: compositeType(family, TYPE.service),
      keyBytes: address + 4,
    },
  ]);
  return [
    { name: SETS.services, ...frontend, data: 'verdict' },
    { name: SETS.refused, ...frontend },
    { name: SETS.limited, ...frontend, data: 'verdict' },
    { name: SETS.clusterIPs, keyType: compositeType(family, TYPE.protocol), keyBytes: address + 4 },
    ...ofProtocol,
  ];
}

// Expressions of `typeof`, as nft stores them with a set: nested records of type, length and content. The types are
// `NFTNL_UDATA_SET_*`; the kinds, headers and fields are numbers of nft.
const UDATA = { keyOrder: 0, dataOrder: 1, keyTypeOf: 3, dataTypeOf: 4 } as const;
const EXPRESSION = { kind: 0, content: 1 } as const;
const KIND = { payload: 7, concatenation: 13, numgen: 23 } as const;
const PAYLOAD = { header: 0, field: 1 } as const;
const NUMGEN = { mode: 0, modulus: 1, offset: 2 } as const;
const DESTINATION = { 4: { header: 12, field: 12 }, 6: { header: 13, field: 9 } } as const;
const PORT_FIELD = 2;
const RANDOM = 1;

/**
 * Returns `typeof ip daddr . tcp dport . numgen random mod 2 : ip daddr . tcp dport`. Without these expressions, nft
 * lists a ruleset that it cannot load again, because the type of a random number has no name.
 */
function backendTypes(family: Family, { header }: Protocol): Uint8Array {
  const record = (type: number, content: readonly number[]): readonly number[] => [
    type,
    content.length,
    ...content,
  ];
  const u32 = (type: number, value: number): readonly number[] => record(type, [value, 0, 0, 0]);
  const expression = (kind: number, content: readonly number[]): readonly number[] => [
    ...u32(EXPRESSION.kind, kind),
    ...record(EXPRESSION.content, content),
  ];
  const payload = (of: number, field: number): readonly number[] =>
    expression(KIND.payload, [...u32(PAYLOAD.header, of), ...u32(PAYLOAD.field, field)]);
  const concatenation = (parts: readonly (readonly number[])[]): readonly number[] =>
    expression(
      KIND.concatenation,
      parts.flatMap((part, at) => record(at, part)),
    );
  const { header: ipHeader, field: daddr } = DESTINATION[family];
  const backend = [payload(ipHeader, daddr), payload(header, PORT_FIELD)];
  const slot = expression(KIND.numgen, [
    ...u32(NUMGEN.mode, RANDOM),
    ...u32(NUMGEN.modulus, 2),
    ...u32(NUMGEN.offset, 0),
  ]);
  return Uint8Array.from([
    ...u32(UDATA.keyOrder, 0),
    ...u32(UDATA.dataOrder, 0),
    ...record(UDATA.keyTypeOf, concatenation([...backend, slot])),
    ...record(UDATA.dataTypeOf, concatenation(backend)),
  ]);
}

// The keys of `numbers`, `registers` and `values` of an expression are types of attributes (`NFTA_*` of nf_tables.h).

/** Offset of the destination address in the network header. */
const DESTINATION_OFFSET = { 4: 16, 6: 24 } as const;

/** Returns the expression for loading the destination of a packet. */
function loadAddress(family: Family): NftExpression {
  return loadAddressAt(family, DESTINATION_OFFSET[family], REGISTER);
}

/** Returns the expression for loading an address at an offset of the network header. */
export function loadAddressAt(family: Family, offset: number, register: number): NftExpression {
  const numbers = { 2: NETWORK_HEADER, 3: offset, 4: 4 * addressWords(family) };
  return { name: 'payload', registers: { 1: register }, numbers };
}

function loadProtocol(register: number): NftExpression {
  return { name: 'meta', registers: { 1: register }, numbers: { 2: META.l4proto } };
}

function loadPort(register: number): NftExpression {
  return { name: 'payload', registers: { 1: register }, numbers: { 2: TRANSPORT_HEADER, 3: 2, 4: 2 } };
}

/** Returns the expressions for loading destination, protocol and port of a packet into consecutive registers. */
export function loadFrontend(family: Family): readonly NftExpression[] {
  const at = REGISTER + addressWords(family);
  return [loadAddress(family), loadProtocol(at), loadPort(at + 1)];
}

/** Returns the expression that compares the first register with a value. If the result is false, the rule ends. */
function compare(operator: number, value: Uint8Array): NftExpression {
  return { name: 'cmp', registers: { 1: REGISTER }, numbers: { 2: operator }, values: { 3: value } };
}

/** `meta iif != "lo"`: ends the rule for packets of this host to itself. */
function notLoopback(): readonly NftExpression[] {
  const loadInterface = { name: 'meta', registers: { 1: REGISTER }, numbers: { 2: META.iif } };
  return [loadInterface, compare(COMPARE.unequal, Uint8Array.of(LOOPBACK, 0, 0, 0))];
}

/** Returns the expressions that end the rule for packets of another protocol. */
function matchProtocol({ number }: Protocol): readonly NftExpression[] {
  const value = Uint8Array.of(number);
  return [loadProtocol(REGISTER), compare(COMPARE.equal, value)];
}

/** Returns the expression that ends the rule if a set does not contain the key in the registers. */
export function matchSet(set: string): NftExpression {
  return { name: 'lookup', set, registers: { 2: REGISTER } };
}

/** `meta l4proto tcp ct original ip daddr . ct original proto-dst @masquerade-tcp masquerade` */
function masquerade(family: Family, protocol: Protocol): readonly NftExpression[] {
  const original = (register: number, key: number): NftExpression => ({
    name: 'ct',
    registers: { 1: register },
    numbers: { 2: key },
    byte: [3, CT.original],
  });
  return [
    ...matchProtocol(protocol),
    original(REGISTER, family === 4 ? CT.ipv4 : CT.ipv6),
    original(REGISTER + addressWords(family), CT.protocolPort),
    matchSet(MASQUERADE + protocol.name),
    { name: 'masq' },
  ];
}

/** Returns the chains with hooks, and the mark of the layout. */
export function baseChains(family: Family): readonly NftChain[] {
  const goto = (set: string): readonly NftExpression[] => [
    ...loadFrontend(family),
    { name: 'lookup', set, registers: { 2: REGISTER, 3: VERDICT_REGISTER } },
  ];
  const find = goto(SETS.services);
  const reject: NftExpression = {
    name: 'reject',
    numbers: { 1: 0 },
    byte: [2, PORT_UNREACHABLE[family]],
  };
  const refuse: readonly (readonly NftExpression[])[] = [
    [...loadFrontend(family), matchSet(SETS.refused), reject],
    [loadAddress(family), loadProtocol(REGISTER + addressWords(family)), matchSet(SETS.clusterIPs), reject],
  ];
  const nat = { type: 'nat', priority: DNAT_PRIORITY } as const;
  const filter = { type: 'filter', priority: 0 } as const;
  return [
    {
      name: 'sources',
      base: { type: 'filter', priority: RAW_PRIORITY, hook: HOOK.prerouting },
      rules: [[...notLoopback(), ...goto(SETS.limited)]],
    },
    { name: 'prerouting', base: { ...nat, hook: HOOK.prerouting }, rules: [find] },
    { name: 'output', base: { ...nat, hook: HOOK.output }, rules: [find] },
    {
      name: 'postrouting',
      base: { type: 'nat', priority: SNAT_PRIORITY, hook: HOOK.postrouting },
      rules: PROTOCOLS.map((protocol) => masquerade(family, protocol)),
    },
    { name: 'refuse-input', base: { ...filter, hook: HOOK.input }, rules: refuse },
    { name: 'refuse-forward', base: { ...filter, hook: HOOK.forward }, rules: refuse },
    { name: 'refuse-output', base: { ...filter, hook: HOOK.output }, rules: refuse },
    { name: LAYOUT_CHAIN, rules: [] },
  ];
}

/** Returns the name of the chain for services with this number of backends; see {@link pickChain}. */
export function pickName(backends: number): string {
  return `pick-${backends}`;
}

/** Returns the number of backends of the chain with this name; `undefined` if it is another chain. */
export function pickSizeOf(chain: string): number | undefined {
  const [, backends] = /^pick-([1-9]\d{0,14})$/.exec(chain) ?? [];
  return backends === undefined ? undefined : Number(backends);
}

/** Returns the chain for all services with this number of backends. It picks one of the backends at random. */
export function pickChain(family: Family, backends: number): NftChain {
  const at = REGISTER + addressWords(family);
  const rewrite: NftExpression = {
    name: 'nat',
    numbers: { 1: DNAT, 2: family === 4 ? NFPROTO.ipv4 : NFPROTO.ipv6 },
    registers: { 3: REGISTER, 5: at },
  };
  return {
    name: pickName(backends),
    rules: PROTOCOLS.map((protocol) => [
      ...matchProtocol(protocol),
      loadAddress(family),
      loadPort(at),
      { name: 'numgen', registers: { 1: at + 1 }, numbers: { 2: backends, 3: RANDOM } },
      { name: 'lookup', set: BACKENDS + protocol.name, registers: { 2: REGISTER, 3: REGISTER } },
      rewrite,
    ]),
  };
}

/** Returns the key of a frontend in the sets shared by all protocols: address, protocol, port. */
export function frontendKey({ ip, port, protocol }: Endpoint): Uint8Array {
  const { bytes, view, at } = keyOf(ip, 8);
  view.setUint8(at, protocol);
  view.setUint16(at + 4, port);
  return bytes;
}

/** Returns the key of one backend of a frontend: address, port, slot. */
export function slotKey({ ip, port }: Endpoint, slot: number): Uint8Array {
  const { bytes, view, at } = keyOf(ip, 8);
  view.setUint16(at, port);
  // The slot is computed by the rule, so it is in processor order.
  view.setUint32(at + 4, slot, true);
  return bytes;
}

/** Returns the key of a frontend in a set of its protocol: address, port. */
export function portKey({ ip, port }: Pick<Endpoint, 'ip' | 'port'>): Uint8Array {
  const { bytes, view, at } = keyOf(ip, 4);
  view.setUint16(at, port);
  return bytes;
}

export function clusterIPKey(ip: string, protocol: number): Uint8Array {
  const { bytes, view, at } = keyOf(ip, 4);
  view.setUint8(at, protocol);
  return bytes;
}

function keyOf(ip: string, restBytes: number): { bytes: Uint8Array; view: DataView; at: number } {
  const at = 4 * addressWords(familyOf(ip));
  const bytes = new Uint8Array(at + restBytes);
  bytes.set(addressBytes(ip));
  return { bytes, view: viewOf(bytes), at };
}

/** Returns the address at the start of a key or value, and a view of the rest. Throws `NetlinkFormatError`. */
function readKey(
  bytes: Uint8Array,
  family: Family,
  restBytes: number,
): { readonly ip: string; readonly rest: DataView } {
  const at = 4 * addressWords(family);
  if (bytes.length < at + restBytes) throw new NetlinkFormatError(`invalid key: ${bytes.length} bytes`);
  return { ip: readAddressAttribute(bytes.subarray(0, at)) ?? '', rest: viewOf(bytes.subarray(at)) };
}

/** Reads a key of {@link frontendKey}. Throws `NetlinkFormatError`. */
export function readFrontend(bytes: Uint8Array, family: Family): Endpoint {
  const { ip, rest } = readKey(bytes, family, 8);
  return { ip, protocol: rest.getUint8(0), port: rest.getUint16(4) };
}

/** Reads a key of {@link slotKey} in the map of a protocol. Throws `NetlinkFormatError`. */
export function readSlot(
  bytes: Uint8Array,
  family: Family,
  protocol: number,
): { readonly frontend: Endpoint; readonly slot: number } {
  const { ip, rest } = readKey(bytes, family, 8);
  return { frontend: { ip, port: rest.getUint16(0), protocol }, slot: rest.getUint32(4, true) };
}

/** Reads a key of {@link portKey}, a frontend or a backend, in a set of a protocol. Throws `NetlinkFormatError`. */
export function readPortKey(bytes: Uint8Array, family: Family, protocol: number): Endpoint {
  const { ip, rest } = readKey(bytes, family, 2);
  return { ip, port: rest.getUint16(0), protocol };
}

/** Reads a key of {@link clusterIPKey}. Throws `NetlinkFormatError`. */
export function readClusterIP(
  bytes: Uint8Array,
  family: Family,
): { readonly ip: string; readonly protocol: number } {
  const { ip, rest } = readKey(bytes, family, 1);
  return { ip, protocol: rest.getUint8(0) };
}
