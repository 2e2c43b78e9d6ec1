import { type AddressWords, addressBits, type Family } from '../../../net/address-words.ts';
import { formatAddress, formatPrefix } from '../../../net/format-address.ts';
import { parsePrefix, prefixRegister } from '../../../net/prefix.ts';
import { NetlinkFormatError, viewOf } from './message-reader.ts';
import type { MessageWriter } from './message-writer.ts';

/** Numbers of address families (`AF_*`). */
export const AF = { unspecified: 0, inet: 2, inet6: 10, netlink: 16 } as const;

/** The result of the last call of {@link parse}. */
const parsed = prefixRegister();

export function familyNumber(family: Family): number {
  return family === 4 ? AF.inet : AF.inet6;
}

/** Returns the family of an address or prefix from its text. Text of an IPv4-mapped address is IPv6. */
export function familyOf(text: string): Family {
  return text.includes(':') ? 6 : 4;
}

/** Returns the family with this number; `undefined` if it is not IPv4 or IPv6. */
export function familyWithNumber(number: number): Family | undefined {
  if (number === AF.inet) return 4;
  return number === AF.inet6 ? 6 : undefined;
}

/** Writes an attribute with an address, or the address of a prefix. */
export function writeAddressAttribute(writer: MessageWriter, type: number, text: string): void {
  parse(text);
  writer.u16(parsed.family === 4 ? 8 : 20).u16(type);
  writer.be32(parsed.w0);
  if (parsed.family === 6) writer.be32(parsed.w1).be32(parsed.w2).be32(parsed.w3);
}

/** Returns the length of a prefix; the number of bits for an address. */
export function prefixLength(text: string): number {
  return parse(text);
}

/** Returns the bytes of an address in network order. */
export function addressBytes(text: string): Uint8Array {
  const bytes = new Uint8Array(addressBits(familyOf(text)) / 8);
  writeAddressAt(viewOf(bytes), 0, text);
  return bytes;
}

/** Writes an address in network order, 4 or 16 bytes. */
export function writeAddressAt(view: DataView, at: number, text: string): void {
  parse(text);
  writeWordsAt(view, at, parsed, parsed.family);
}

/** Writes the words of an address in network order, as many as an address of the family has. */
export function writeWordsAt(view: DataView, at: number, words: AddressWords, family: Family): void {
  view.setInt32(at, words.w0);
  if (family === 4) return;
  view.setInt32(at + 4, words.w1);
  view.setInt32(at + 8, words.w2);
  view.setInt32(at + 12, words.w3);
}

/** Reads an address of a family in network order. Returns its text. */
export function readAddressAt(view: DataView, at: number, family: Family): string {
  const w0 = view.getInt32(at);
  if (family === 4) return formatAddress({ family, w0, w1: 0, w2: 0, w3: 0 });
  const [w1, w2, w3] = [view.getInt32(at + 4), view.getInt32(at + 8), view.getInt32(at + 12)];
  return formatAddress({ family, w0, w1, w2, w3 });
}

/** Returns the address in an attribute as text; `undefined` if the attribute is missing. */
export function readAddressAttribute(bytes: Uint8Array | undefined): string | undefined {
  return bytes && formatAddress(wordsOf(bytes));
}

/** Returns a prefix as text. If the attribute of its address is missing, the address is all zeros. */
export function readPrefix(bytes: Uint8Array | undefined, length: number, family: Family): string {
  const words = wordsOf(bytes ?? new Uint8Array(addressBits(family) / 8));
  if (words.family !== family || length > addressBits(family))
    throw new NetlinkFormatError(
      `invalid prefix: IPv${words.family}, length ${length}; expected IPv${family}`,
    );
  return formatPrefix(words, length);
}

/** Parses an address or prefix into `parsed`. Returns its length. */
function parse(text: string): number {
  if (!parsePrefix(text, parsed)) throw new RangeError(`${text} is not an address or prefix`);
  // Routes and rules of other programs may have IPv4-mapped addresses, which the kernel does not convert to IPv4.
  if (parsed.family !== familyOf(text)) {
    const { w0, length } = parsed;
    Object.assign(parsed, { family: 6, w0: 0, w1: 0, w2: 0xffff, w3: w0, length: length + 96 });
  }
  return parsed.length;
}

function wordsOf(bytes: Uint8Array): AddressWords {
  if (bytes.length !== 4 && bytes.length !== 16)
    throw new NetlinkFormatError(`invalid address: ${bytes.length} bytes`);
  const octet = (at: number): number => bytes[at] ?? 0;
  const word = (at: number): number =>
    (octet(at) << 24) | (octet(at + 1) << 16) | (octet(at + 2) << 8) | octet(at + 3);
  return { family: bytes.length === 4 ? 4 : 6, w0: word(0), w1: word(4), w2: word(8), w3: word(12) };
}
