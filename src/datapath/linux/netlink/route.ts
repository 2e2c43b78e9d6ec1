import {
  familyNumber,
  familyOf,
  familyWithNumber,
  prefixLength,
  readAddress,
  readPrefix,
  writeAddress,
} from './address-bytes.ts';
import { Attributes, NetlinkFormatError, type NetlinkMessage, readU32 } from './message-reader.ts';
import type { MessageWriter } from './message-writer.ts';

/** Types of messages about routes. */
export const RTM_ROUTE = { add: 24, delete: 25, get: 26 } as const;

/** The table that is used where no rule says otherwise. */
export const MAIN_TABLE = 254;

const RTN_UNICAST = 1;
const RT_SCOPE_NOWHERE = 255;
const RTNH_F_ONLINK = 4;
const FIXED_BYTES = 12;
const RTA = { dst: 1, oif: 4, gateway: 5, priority: 6, multipath: 9, table: 15, nhID: 30 } as const;

/** A route to a prefix over one next hop. */
export interface Route {
  /** Canonical prefix. */
  readonly destination: string;
  readonly table: number;
  /** Who has made it: the number of a routing protocol. */
  readonly protocol: number;
  /** The next hop; `undefined` where the destination is on the link itself. */
  readonly gateway: string | undefined;
  /** Index of the interface; 0 where there is none, or several. */
  readonly interface: number;
  /** The next hop is taken to be on the link, whatever the addresses of the interface are. */
  readonly onlink: boolean;
  /** The smaller, the better; 0 lets the kernel choose. */
  readonly metric: number;
  /** Packets are forwarded: no local address, no black hole. */
  readonly isUnicast: boolean;
}

/**
 * Writes the body of a message that adds or deletes a route. Zero and absent parts match anything in a delete, and so do type
 * and scope: whether it is on the link itself, or forwards nothing.
 */
export function writeRoute(writer: MessageWriter, route: Route, change: 'add' | 'delete' = 'add'): void {
  const isDelete = change === 'delete';
  const { destination, table, protocol, gateway, metric } = route;
  writer
    .u8(familyNumber(familyOf(destination)))
    .u8(prefixLength(destination))
    .u8(0)
    .u8(0);
  writer
    .u8(table < 256 ? table : 0)
    .u8(protocol)
    .u8(isDelete ? RT_SCOPE_NOWHERE : 0)
    .u8(isDelete ? 0 : RTN_UNICAST);
  writer.u32(route.onlink ? RTNH_F_ONLINK : 0);
  writeAddress(writer, RTA.dst, destination);
  writer.attributeU32(RTA.table, table);
  if (gateway !== undefined) writeAddress(writer, RTA.gateway, gateway);
  if (route.interface !== 0) writer.attributeU32(RTA.oif, route.interface);
  if (metric !== 0) writer.attributeU32(RTA.priority, metric);
}

/** Writes the body of a request for all routes of a family in a table. */
export function writeRouteDump(writer: MessageWriter, family: 4 | 6, table: number): void {
  writer.u8(familyNumber(family)).u8(0).u16(0).u8(0).u8(0).u8(0).u8(0).u32(0);
  writer.attributeU32(RTA.table, table);
}

/** Writes the body of the question how an address is reached. */
export function writeRouteQuestion(writer: MessageWriter, address: string): void {
  writer
    .u8(familyNumber(familyOf(address)))
    .u8(prefixLength(address))
    .u16(0)
    .u32(0)
    .u32(0);
  writeAddress(writer, RTA.dst, address);
}

/**
 * The route in a message; `undefined` when it is about something else, such as another
 * family. Throws `NetlinkFormatError`.
 */
export function readRoute({ type, body }: NetlinkMessage): Route | undefined {
  if (type !== RTM_ROUTE.add && type !== RTM_ROUTE.delete) return undefined;
  if (body.length < FIXED_BYTES) throw new NetlinkFormatError(`a route of ${body.length} bytes`);
  const [number = 0, length = 0, , , table = 0, protocol = 0, , kind = 0] = body;
  const family = familyWithNumber(number);
  const flags = readU32(body, 8);
  if (family === undefined) return undefined;
  const attributes = new Attributes(body, FIXED_BYTES);
  return {
    destination: readPrefix(attributes.bytes(RTA.dst), length, family),
    table: attributes.u32(RTA.table) ?? table,
    protocol,
    gateway: readAddress(attributes.bytes(RTA.gateway)),
    interface: attributes.u32(RTA.oif) ?? 0,
    onlink: (flags & RTNH_F_ONLINK) !== 0,
    metric: attributes.u32(RTA.priority) ?? 0,
    isUnicast: kind === RTN_UNICAST,
  };
}
