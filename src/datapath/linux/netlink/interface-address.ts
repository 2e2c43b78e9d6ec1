import { AF, familyWithNumber, readAddressAttribute } from './address-bytes.ts';
import { Attributes, type NetlinkMessage, viewOf } from './message-reader.ts';
import type { NetlinkRequest } from './netlink-socket.ts';

/** Types of messages about addresses of interfaces. */
export const RTM_ADDRESS = { add: 20, delete: 21, get: 22 } as const;

const FIXED_BYTES = 8;
const IFA = { address: 1, local: 2 } as const;

export interface InterfaceAddress {
  readonly interface: number;
  readonly address: string;
  /** Length of the prefix on the link. */
  readonly length: number;
}

export const ADDRESS_DUMP: NetlinkRequest = {
  operation: 'addresses',
  type: RTM_ADDRESS.get,
  flags: 0,
  write: (writer) => writer.u8(AF.unspecified).u8(0).u16(0).u32(0),
};

/** Returns the address in a message; `undefined` if it is about something else. Throws `NetlinkFormatError`. */
export function readInterfaceAddress({ type, body }: NetlinkMessage): InterfaceAddress | undefined {
  if (type !== RTM_ADDRESS.add && type !== RTM_ADDRESS.delete) return undefined;
  const [familyCode = 0, length = 0] = body;
  const attributes = new Attributes(body, FIXED_BYTES);
  // On a point-to-point link, `address` is that of the peer.
  const address = readAddressAttribute(attributes.bytes(IFA.local) ?? attributes.bytes(IFA.address));
  if (familyWithNumber(familyCode) === undefined || address === undefined) return undefined;
  return { interface: viewOf(body).getUint32(4, true), address, length };
}
