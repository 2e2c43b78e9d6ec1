import {
  AF,
  familyOf,
  formatMAC,
  parseMAC,
  readAddressAttribute,
  writeAddressAttribute,
} from './address-bytes.ts';
import { Attributes, type NetlinkMessage, viewOf } from './message-reader.ts';
import type { MessageWriter } from './message-writer.ts';
import type { NetlinkRequest } from './netlink-socket.ts';

/** Types of messages about links. */
export const RTM_LINK = { add: 16, delete: 17, get: 18 } as const;

const IFF_UP = 1;
const FIXED_BYTES = 16;
const IFLA = { address: 1, name: 3, mtu: 4, info: 18, alias: 20 } as const;
const INFO = { kind: 1, data: 2 } as const;
const VXLAN = { id: 1, local: 4, learning: 7, port: 15, local6: 17 } as const;

export interface Vxlan {
  /** The network identifier, 24 bits. */
  readonly id: number;
  readonly port: number;
  readonly local: string | undefined;
}

export interface Link {
  /** 0 if the interface is to be created. */
  readonly index: number;
  readonly name: string;
  readonly up: boolean;
  readonly mtu: number;
  /** `02:dc:c0:a8:00:01`. */
  readonly mac: string | undefined;
  /** A text for people, set by the creator. */
  readonly alias: string | undefined;
  readonly vxlan: Vxlan | undefined;
}

/**
 * Writes the body of a message that creates or changes a VXLAN interface. The kernel may ignore the alias in `create`.
 * `change` applies to the interface with this index or, if the index is 0, with this name, and changes everything
 * except `vxlan`. If the name is empty, the interface keeps its name.
 */
export function writeLink(writer: MessageWriter, link: Link, change: 'create' | 'change'): void {
  const { index, name, mac, mtu, alias, vxlan, up } = link;
  const flags = up ? IFF_UP : 0;
  writer.u8(AF.unspecified).u8(0).u16(0).u32(index).u32(flags).u32(IFF_UP);
  if (name !== '') writer.attributeText(IFLA.name, name);
  writer.attributeU32(IFLA.mtu, mtu);
  if (mac !== undefined) writer.attributeBytes(IFLA.address, parseMAC(mac));
  if (alias !== undefined) writer.attributeText(IFLA.alias, alias);
  if (vxlan === undefined || change === 'change') return;
  writer.nest(IFLA.info, () => {
    writer.attributeText(INFO.kind, 'vxlan');
    writer.nest(INFO.data, () => writeVxlan(writer, vxlan));
  });
}

function writeVxlan(writer: MessageWriter, { id, port, local }: Vxlan): void {
  writer.attributeU32(VXLAN.id, id).attributeBE16(VXLAN.port, port);
  // All FDB entries are written.
  writer.attributeU8(VXLAN.learning, 0);
  if (local !== undefined)
    writeAddressAttribute(writer, familyOf(local) === 4 ? VXLAN.local : VXLAN.local6, local);
}

/** Returns a request for all links, or for the one with this index or name. */
export function linkRequest({ index = 0, name }: Partial<Pick<Link, 'index' | 'name'>> = {}): NetlinkRequest {
  const write = (writer: MessageWriter): void => {
    writer.u8(AF.unspecified).u8(0).u16(0).u32(index).u32(0).u32(0);
    if (name !== undefined) writer.attributeText(IFLA.name, name);
  };
  return { operation: name === undefined ? 'links' : `link ${name}`, type: RTM_LINK.get, flags: 0, write };
}

/** Returns the link in a message; `undefined` if it is about something else. Throws `NetlinkFormatError`. */
export function readLink({ type, body }: NetlinkMessage): Link | undefined {
  if (type !== RTM_LINK.add && type !== RTM_LINK.delete) return undefined;
  const attributes = new Attributes(body, FIXED_BYTES);
  // Bridges report their ports in messages of the same type.
  if (body[0] !== AF.unspecified) return undefined;
  const view = viewOf(body);
  const info = attributes.nested(IFLA.info);
  const mac = attributes.bytes(IFLA.address);
  return {
    index: view.getUint32(4, true),
    name: attributes.text(IFLA.name) ?? '',
    up: (view.getUint32(8, true) & IFF_UP) !== 0,
    mtu: attributes.u32(IFLA.mtu) ?? 0,
    mac: mac && formatMAC(mac),
    alias: attributes.text(IFLA.alias),
    vxlan: info?.text(INFO.kind) === 'vxlan' ? readVxlan(info?.nested(INFO.data)) : undefined,
  };
}

function readVxlan(data: Attributes | undefined): Vxlan | undefined {
  return (
    data && {
      id: data.u32(VXLAN.id) ?? 0,
      port: data.be16(VXLAN.port) ?? 0,
      local: readAddressAttribute(data.bytes(VXLAN.local) ?? data.bytes(VXLAN.local6)),
    }
  );
}
