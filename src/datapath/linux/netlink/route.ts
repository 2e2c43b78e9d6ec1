import type { Family } from '../../../net/address-words.ts';
import {
  familyNumber,
  familyOf,
  familyWithNumber,
  prefixLength,
  readAddressAttribute,
  readPrefix,
  writeAddressAttribute,
} from './address-bytes.ts';
import {
  Attributes,
  align,
  NetlinkFormatError,
  type NetlinkMessage,
  readU16,
  readU32,
} from './message-reader.ts';
import type { MessageWriter } from './message-writer.ts';
import type { NetlinkRequest } from './netlink-socket.ts';

/** Types of messages about routes. */
export const RTM_ROUTE = { add: 24, delete: 25, get: 26 } as const;

/** The multicast group that reports changes of IPv6 routes (`RTNLGRP_IPV6_ROUTE`). */
export const IPV6_ROUTES_GROUP = 11;

const RTN_UNICAST = 1;
const RT_SCOPE_NOWHERE = 255;
const RTNH_F_ONLINK = 4;
const FIXED_BYTES = 12;
const RTNH_FIXED_BYTES = 8;
const RTA = {
  dst: 1,
  oif: 4,
  gateway: 5,
  priority: 6,
  multipath: 9,
  table: 15,
  encapType: 21,
  encap: 22,
} as const;
/** Types of encapsulation in IP (`LWTUNNEL_ENCAP_*`), by family of the outer addresses. */
const ENCAP_TYPE = { 4: 2, 6: 4 } as const;
/** Attributes of an encapsulation, the same for both families (`LWTUNNEL_IP_*`, `LWTUNNEL_IP6_*`). */
const ENCAP = { id: 1, destination: 2, source: 3, ttl: 4, tos: 5, flags: 6 } as const;

/** The outer header of the packets of a route through a tunnel. */
export interface Encap {
  /** The network identifier of the tunnel. */
  readonly id: number;
  readonly source: string;
  readonly destination: string;
  /** 0: the kernel chooses. */
  readonly ttl: number;
  readonly tos: number;
  /** Flags of the kernel, such as {@link ENCAP_CHECKSUM}. */
  readonly flags: number;
}

/** The outer UDP header has a checksum (`TUNNEL_CSUM`). */
export const ENCAP_CHECKSUM = 1;

/** One of several next hops of a route. */
export interface NextHop {
  readonly gateway: string | undefined;
  readonly interface: number;
  readonly encap?: Encap | undefined;
}

export interface Route {
  /** Canonical prefix. */
  readonly destination: string;
  readonly table: number;
  /** Number of the routing protocol that created the route. */
  readonly protocol: number;
  /** The next hop; `undefined` if the destination is on the link itself. */
  readonly gateway: string | undefined;
  /** Index of the interface; 0 if there is none or several. */
  readonly interface: number;
  /** The encapsulation, if it is in IP. Routes of other programs may have other types, which are not read. */
  readonly encap?: Encap | undefined;
  /** The next hops if there are several. `gateway`, `interface` and `encap` are not set then. */
  readonly hops?: readonly NextHop[] | undefined;
  /** True if the next hop is assumed to be on the link, regardless of the addresses of the interface. */
  readonly onlink: boolean;
  /** Smaller metrics are preferred; with 0, the kernel chooses. */
  readonly metric: number;
  /** True if packets are forwarded: not a local address or a blackhole. */
  readonly isUnicast: boolean;
}

/**
 * Writes the body of a message that adds or deletes a route. In a delete, zero and absent fields match anything. Type
 * and scope match anything as well, so a delete also matches routes on the link itself and blackholes.
 */
export function writeRoute(writer: MessageWriter, route: Route, change: 'add' | 'delete' = 'add'): void {
  const { destination, table, protocol, gateway, metric, encap } = route;
  const [scope, kind] = change === 'delete' ? [RT_SCOPE_NOWHERE, 0] : [0, RTN_UNICAST];
  // `struct rtmsg`: family, lengths of destination and source, TOS, table, protocol, scope, type, flags.
  writer
    .u8(familyNumber(familyOf(destination)))
    .u8(prefixLength(destination))
    .u16(0);
  writer
    .u8(table < 256 ? table : 0)
    .u8(protocol)
    .u8(scope)
    .u8(kind);
  writer.u32(route.onlink ? RTNH_F_ONLINK : 0);
  writeAddressAttribute(writer, RTA.dst, destination);
  writer.attributeU32(RTA.table, table);
  if (gateway !== undefined) writeAddressAttribute(writer, RTA.gateway, gateway);
  if (route.interface !== 0) writer.attributeU32(RTA.oif, route.interface);
  if (metric !== 0) writer.attributeU32(RTA.priority, metric);
  if (encap !== undefined) writeEncap(writer, encap);
}

function writeEncap(writer: MessageWriter, { id, source, destination, ttl, tos, flags }: Encap): void {
  writer.nest(RTA.encap, () => {
    writer.attribute(ENCAP.id, () => writer.be32(0).be32(id)); // 64 bits
    writeAddressAttribute(writer, ENCAP.destination, destination);
    writeAddressAttribute(writer, ENCAP.source, source);
    writer.attributeU8(ENCAP.ttl, ttl).attributeU8(ENCAP.tos, tos).attributeBE16(ENCAP.flags, flags);
  });
  writer.attribute(RTA.encapType, () => writer.u16(ENCAP_TYPE[familyOf(destination)]));
}

/** Returns the request for all routes of a table. */
export function routeDump(family: Family, table: number): NetlinkRequest {
  const write = (writer: MessageWriter): void => {
    writer.u8(familyNumber(family)).u8(0).u16(0).u32(0).u32(0).attributeU32(RTA.table, table);
  };
  return { operation: 'routes', type: RTM_ROUTE.get, flags: 0, write };
}

/** Returns the request for the kernel's route to an address. */
export function routeRequest(address: string): NetlinkRequest {
  const [family, length] = [familyNumber(familyOf(address)), prefixLength(address)];
  const write = (writer: MessageWriter): void => {
    writer.u8(family).u8(length).u16(0).u32(0).u32(0);
    writeAddressAttribute(writer, RTA.dst, address);
  };
  return { operation: `route to ${address}`, type: RTM_ROUTE.get, flags: 0, write };
}

/** Returns the route in a message; `undefined` if it has none. Throws `NetlinkFormatError`. */
export function readRoute({ type, body }: NetlinkMessage): Route | undefined {
  if (type !== RTM_ROUTE.add && type !== RTM_ROUTE.delete) return undefined;
  // The fields of `struct rtmsg`, as in `writeRoute`. A table above 255 is in an attribute.
  const [familyCode = 0, length = 0, , , table = 0, protocol = 0, , kind = 0] = body;
  const family = familyWithNumber(familyCode);
  const attributes = new Attributes(body, FIXED_BYTES);
  if (family === undefined) return undefined;
  return {
    destination: readPrefix(attributes.bytes(RTA.dst), length, family),
    table: attributes.u32(RTA.table) ?? table,
    protocol,
    gateway: readAddressAttribute(attributes.bytes(RTA.gateway)),
    interface: attributes.u32(RTA.oif) ?? 0,
    encap: readEncap(attributes),
    hops: readHops(attributes.bytes(RTA.multipath)),
    onlink: (readU32(body, 8) & RTNH_F_ONLINK) !== 0,
    metric: attributes.u32(RTA.priority) ?? 0,
    isUnicast: kind === RTN_UNICAST,
  };
}

/** Returns the encapsulation in the attributes of a route or next hop; `undefined` if it is not in IP. */
function readEncap(attributes: Attributes): Encap | undefined {
  const type = attributes.u16(RTA.encapType);
  const encap = type === ENCAP_TYPE[4] || type === ENCAP_TYPE[6] ? attributes.nested(RTA.encap) : undefined;
  const destination = readAddressAttribute(encap?.bytes(ENCAP.destination));
  const source = readAddressAttribute(encap?.bytes(ENCAP.source));
  if (encap === undefined || destination === undefined || source === undefined) return undefined;
  return {
    id: encap.be64(ENCAP.id) ?? 0,
    source,
    destination,
    ttl: encap.u8(ENCAP.ttl) ?? 0,
    tos: encap.u8(ENCAP.tos) ?? 0,
    flags: encap.be16(ENCAP.flags) ?? 0,
  };
}

/** Returns true if two encapsulations, or their absence, are equal. */
export function equalEncaps(a: Encap | undefined, b: Encap | undefined): boolean {
  if (a === undefined || b === undefined) return a === b;
  return (
    a.id === b.id &&
    a.source === b.source &&
    a.destination === b.destination &&
    a.ttl === b.ttl &&
    a.tos === b.tos &&
    a.flags === b.flags
  );
}

/**
 * Returns the next hops in an attribute `RTA_MULTIPATH`: a list of `struct rtnexthop`, each with its own attributes.
 */
function readHops(bytes: Uint8Array | undefined): readonly NextHop[] | undefined {
  if (bytes === undefined) return undefined;
  const hops: NextHop[] = [];
  for (let at = 0; at < bytes.length; ) {
    const rest = bytes.length - at;
    const length = rest < RTNH_FIXED_BYTES ? 0 : readU16(bytes, at);
    if (length < RTNH_FIXED_BYTES || length > rest)
      throw new NetlinkFormatError(`invalid next hop length ${length} at offset ${at} of ${bytes.length}`);
    const attributes = new Attributes(bytes.subarray(at, at + length), RTNH_FIXED_BYTES);
    hops.push({
      gateway: readAddressAttribute(attributes.bytes(RTA.gateway)),
      interface: readU32(bytes, at + 4),
      encap: readEncap(attributes),
    });
    at += align(length);
  }
  return hops;
}
