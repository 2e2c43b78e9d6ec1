import { AF } from './address-bytes.ts';
import { Attributes, type NetlinkMessage, viewOf } from './message-reader.ts';
import type { MessageWriter } from './message-writer.ts';
import type { NetlinkRequest } from './netlink-socket.ts';

/** Types of messages about links. */
export const RTM_LINK = { add: 16, delete: 17, get: 18 } as const;

const IFF = { up: 0x1, noARP: 0x80 } as const;
const FIXED_BYTES = 16;
const IFLA = { name: 3, mtu: 4, info: 18, alias: 20 } as const;
const INFO = { kind: 1, data: 2 } as const;
const VXLAN = { id: 1, learning: 7, port: 15, zeroChecksum6: 20, external: 25 } as const;

export interface Vxlan {
  /**
   * The network identifier, 24 bits; `any` if the interface accepts every identifier, and each route sets that of the
   * packets that it sends (`external` in `ip`).
   */
  readonly vni: number | 'any';
  readonly port: number;
}

export interface Link {
  /** 0 if the interface is to be created. */
  readonly index: number;
  readonly name: string;
  readonly up: boolean;
  readonly mtu: number;
  /** True if the interface resolves the hardware addresses of next hops; otherwise it sends to its own address. */
  readonly arp: boolean;
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
  const { index, name, mtu, alias, vxlan, up, arp } = link;
  const flags = (up ? IFF.up : 0) | (arp ? 0 : IFF.noARP);
  writer
    .u8(AF.unspecified)
    .u8(0)
    .u16(0)
    .u32(index)
    .u32(flags)
    .u32(IFF.up | IFF.noARP);
  if (name !== '') writer.attributeText(IFLA.name, name);
  writer.attributeU32(IFLA.mtu, mtu);
  if (alias !== undefined) writer.attributeText(IFLA.alias, alias);
  if (vxlan === undefined || change === 'change') return;
  writer.nest(IFLA.info, () => {
    writer.attributeText(INFO.kind, 'vxlan');
    writer.nest(INFO.data, () => writeVxlan(writer, vxlan));
  });
}

function writeVxlan(writer: MessageWriter, { vni, port }: Vxlan): void {
  writer.attributeBE16(VXLAN.port, port);
  if (vni === 'any') writer.attributeU8(VXLAN.external, 1);
  else writer.attributeU32(VXLAN.id, vni);
  // Routes contain the address of the other end, so no hardware addresses are learned. Senders may leave out the UDP
  // checksum, which IPv6 requires by default.
  writer.attributeU8(VXLAN.learning, 0).attributeU8(VXLAN.zeroChecksum6, 1);
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
  const flags = view.getUint32(8, true);
  return {
    index: view.getUint32(4, true),
    name: attributes.text(IFLA.name) ?? '',
    up: (flags & IFF.up) !== 0,
    mtu: attributes.u32(IFLA.mtu) ?? 0,
    arp: (flags & IFF.noARP) === 0,
    alias: attributes.text(IFLA.alias),
    vxlan: info?.text(INFO.kind) === 'vxlan' ? readVxlan(info?.nested(INFO.data)) : undefined,
  };
}

function readVxlan(data: Attributes | undefined): Vxlan | undefined {
  return (
    data && {
      vni: data.u8(VXLAN.external) === 1 ? 'any' : (data.u32(VXLAN.id) ?? 0),
      port: data.be16(VXLAN.port) ?? 0,
    }
  );
}
