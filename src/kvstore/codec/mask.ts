import { addressBits, type Family } from '../../net/address-words.ts';
import type { Fields } from '../../net/fields.ts';

function maskBytes(family: Family, length: number): Uint8Array {
  const bytes = new Uint8Array(addressBits(family) / 8);
  for (let i = 0; i < bytes.length; i++) {
    const bits = Math.min(8, Math.max(0, length - 8 * i));
    bytes[i] = 0xff00 >> bits; // the low byte has `bits` ones, from the top
  }
  return bytes;
}

function masks(family: Family): readonly string[] {
  const lengths = Array.from({ length: addressBits(family) + 1 }, (_, length) => length);
  return lengths.map((length) => Buffer.from(maskBytes(family, length)).toString('base64'));
}

const TEXTS: Readonly<Record<Family, readonly string[]>> = { 4: masks(4), 6: masks(6) };

const MAPPED_BITS = 96; // a 16-byte mask of an IPv4 address begins with 96 ones, as an IPv4-mapped address has
const LENGTHS: Readonly<Record<Family, ReadonlyMap<string, number>>> = {
  4: new Map([
    ...TEXTS[6].map((text, length) => [text, length - MAPPED_BITS] as const).slice(MAPPED_BITS),
    ...TEXTS[4].map((text, length) => [text, length] as const),
  ]),
  6: new Map(TEXTS[6].map((text, length) => [text, length])),
};

/** Returns the base64 of the mask of `length` bits, as Go marshals a `net.IPMask`: `"//8AAA=="` is /16. */
export function maskText(family: Family, length: number): string {
  return TEXTS[family][length] ?? '';
}

/** Returns the prefix length of a mask in base64 for an address of `family`, or undefined if the mask is invalid. */
export function maskLength(family: Family, text: string): number | undefined {
  return LENGTHS[family].get(text);
}

/**
 * Returns the prefix length of the mask in field `Mask` for an address of `family`; `undefined` if the field is empty.
 * Rejects a mask that is not base64, not contiguous or of the wrong size. One lookup, because IPv4 has only 33 masks
 * and IPv6 129.
 */
export function readMask(family: Family, fields: Fields<never>): number | undefined {
  const text = fields.string('Mask') ?? '';
  if (text === '') return undefined;
  const reason = `is not a contiguous IPv${family} mask in base64`;
  return maskLength(family, text) ?? fields.reject('Mask', 'invalid-mask', reason, text);
}
