import { BYTES, type Check, objectWith, requireArgument } from '../base/arguments.ts';
import { addressBits, type Family } from '../net/address-words.ts';
import { isMapped, unmap } from '../net/parse-address.ts';
import { type PrefixRegister, parseKey } from '../net/prefix.ts';

/** Addresses in a buffer in network byte order, as in flow records: one every `stride` bytes. */
export interface AddressBytes {
  readonly bytes: Uint8Array;
  /** 4 or 16 bytes each. An IPv4-mapped IPv6 address is an IPv4 address. */
  readonly family: Family;
  /** Offset of the first address; default 0. */
  readonly offset?: number | undefined;
  /** Distance between the starts of two addresses; default the size of one. */
  readonly stride?: number | undefined;
}

/**
 * Addresses as text (`10.0.0.1`, or `10.0.0.1@5` in the address space of a cluster), as IPv4 numbers (`10.0.0.1` is
 * 0x0a000001), or in a buffer.
 */
export type AddressList = readonly string[] | Uint32Array | AddressBytes;

/** Accepts an {@link AddressList}. */
export const ADDRESS_LIST: Check = (value) =>
  Array.isArray(value) || value instanceof Uint32Array ? undefined : objectWith({ bytes: BYTES })(value);
/** Accepts the array to which identities are written. */
export const IDENTITY_ARRAY: Check = (value) =>
  value instanceof Uint32Array ? undefined : ' must be a Uint32Array';

function isBytes(list: AddressList): list is AddressBytes {
  return 'bytes' in list;
}

/** Returns the number of addresses. An incomplete address at the end of a buffer is not counted. */
export function countAddresses(list: AddressList): number {
  if (!isBytes(list)) return list.length;
  const { bytes, family, offset = 0, stride = bytesOf(family) } = list;
  requireArgument(family === 4 || family === 6, `addresses.family must be 4 or 6, not ${family}`);
  requireArgument(
    Number.isInteger(offset) && offset >= 0,
    `addresses.offset must be an integer of at least 0, not ${offset}`,
  );
  requireArgument(
    Number.isInteger(stride) && stride >= 1,
    `addresses.stride must be an integer of at least 1, not ${stride}`,
  );
  return Math.max(0, Math.floor((bytes.length - offset - bytesOf(family)) / stride) + 1);
}

/** Reads an address into `out` as an endpoint. Returns false if it is invalid. */
export function readListAddress(list: AddressList, index: number, out: PrefixRegister): boolean {
  if (isBytes(list)) {
    readBytes(list, index, out);
    return true;
  }
  const address = list[index];
  if (typeof address === 'number') return readIPv4Number(address, out);
  return typeof address === 'string' && parseKey(address, out) && out.form === 'endpoint';
}

/** Reads an IPv4 address from a number. Returns false if it is not an unsigned 32-bit integer. */
export function readIPv4Number(address: number, out: PrefixRegister): boolean {
  setIPv4(out, address | 0);
  return address >>> 0 === address;
}

function bytesOf(family: Family): number {
  return addressBits(family) / 8;
}

function setIPv4(out: PrefixRegister, word: number): void {
  out.family = 4;
  out.length = 32;
  out.form = 'endpoint';
  out.clusterID = 0;
  out.w0 = word;
  out.w1 = 0;
  out.w2 = 0;
  out.w3 = 0;
}

function readBytes(
  { bytes, family, offset = 0, stride = bytesOf(family) }: AddressBytes,
  index: number,
  out: PrefixRegister,
): void {
  const at = offset + index * stride;
  setIPv4(out, wordAt(bytes, at));
  if (family === 4) return;
  out.family = 6;
  out.w1 = wordAt(bytes, at + 4);
  out.w2 = wordAt(bytes, at + 8);
  out.w3 = wordAt(bytes, at + 12);
  if (isMapped(out)) unmap(out);
  out.length = addressBits(out.family);
}

function wordAt(bytes: Uint8Array, at: number): number {
  const upper = ((bytes[at] ?? 0) << 24) | ((bytes[at + 1] ?? 0) << 16);
  return upper | ((bytes[at + 2] ?? 0) << 8) | (bytes[at + 3] ?? 0);
}
