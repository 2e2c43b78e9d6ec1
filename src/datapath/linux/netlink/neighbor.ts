import {
  AF,
  familyNumber,
  familyOf,
  familyWithNumber,
  formatMAC,
  parseMAC,
  readAddressAttribute,
  writeAddressAttribute,
} from './address-bytes.ts';
import { Attributes, type NetlinkMessage, viewOf } from './message-reader.ts';
import type { MessageWriter } from './message-writer.ts';
import type { NetlinkRequest } from './netlink-socket.ts';

/** Types of messages about neighbours and entries of a forwarding database (FDB). */
export const RTM_NEIGHBOR = { add: 28, delete: 29, get: 30 } as const;

const FIXED_BYTES = 12;
const NUD_PERMANENT = 0x80;
const NTF_SELF = 2;
const NDA = { address: 1, mac: 2, ifindex: 8, protocol: 12 } as const;

/** A neighbour entry maps an address to a hardware address, an FDB entry a hardware address to its host. */
export interface Neighbor {
  readonly kind: 'neighbor' | 'fdb';
  readonly interface: number;
  /** Address of the neighbour; in an FDB, of the host. */
  readonly address: string | undefined;
  readonly mac: string | undefined;
  readonly permanent: boolean;
  /** Protocol number of the creator, as for routes. An FDB does not store it. */
  readonly protocol: number;
}

/** Writes the body of a message that adds or deletes an entry. */
export function writeNeighbor(writer: MessageWriter, neighbor: Neighbor): void {
  const { kind, address, mac } = neighbor;
  const isFDB = kind === 'fdb';
  const family = isFDB ? AF.bridge : familyNumber(familyOf(address ?? ''));
  const state = neighbor.permanent ? NUD_PERMANENT : 0;
  const flags = isFDB ? NTF_SELF : 0;
  writer.u8(family).u8(0).u16(0).u32(neighbor.interface).u16(state).u8(flags).u8(0);
  if (address !== undefined) writeAddressAttribute(writer, NDA.address, address);
  if (mac !== undefined) writer.attributeBytes(NDA.mac, parseMAC(mac));
  if (!isFDB && neighbor.protocol !== 0) writer.attributeU8(NDA.protocol, neighbor.protocol);
}

/** Returns a request for all entries of one kind on an interface. */
export function neighborDump(kind: Neighbor['kind'], ifindex: number): NetlinkRequest {
  const write = (writer: MessageWriter): void => {
    // With strict checks, an FDB is selected by the header, neighbours by an attribute.
    if (kind === 'fdb') writer.u8(AF.bridge).u8(0).u16(0).u32(ifindex).u32(0);
    else writer.u8(AF.unspecified).u8(0).u16(0).u32(0).u32(0).attributeU32(NDA.ifindex, ifindex);
  };
  return { operation: kind, type: RTM_NEIGHBOR.get, flags: 0, write };
}

/** Returns the entry in a message; `undefined` if it is about something else. Throws `NetlinkFormatError`. */
export function readNeighbor({ type, body }: NetlinkMessage): Neighbor | undefined {
  if (type !== RTM_NEIGHBOR.add && type !== RTM_NEIGHBOR.delete) return undefined;
  const [familyCode = 0] = body;
  const attributes = new Attributes(body, FIXED_BYTES);
  if (familyCode !== AF.bridge && familyWithNumber(familyCode) === undefined) return undefined;
  const view = viewOf(body);
  const mac = attributes.bytes(NDA.mac);
  return {
    kind: familyCode === AF.bridge ? 'fdb' : 'neighbor',
    interface: view.getUint32(4, true),
    address: readAddressAttribute(attributes.bytes(NDA.address)),
    mac: mac && formatMAC(mac),
    permanent: (view.getUint16(8, true) & NUD_PERMANENT) !== 0,
    protocol: attributes.u8(NDA.protocol) ?? 0,
  };
}
