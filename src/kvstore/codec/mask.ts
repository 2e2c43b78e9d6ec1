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

/** Returns the masks of a family in base64, by prefix length. */
function masks(family: Family): readonly string[] {
  const lengths = Array.from({ length: addressBits(family) + 1 }, (_, length) => length);
  return lengths.map((length) => Buffer.from(maskBytes(family, length)).toString('base64'));
}

const TEXTS: Readonly<Record<Family, readonly string[]>> = { 4: masks(4), 6: masks(6) };

/** Number of ones at the start of a mask of 16 bytes for an IPv4 address, as of an IPv4-mapped address. */
const MAPPED_BITS = 96;

function lengthByMask(masks: readonly string[]): readonly (readonly [mask: string, length: number])[] {
  return masks.map((mask, length) => [mask, length]);
}

const LENGTHS: Readonly<Record<Family, ReadonlyMap<string, number>>> = {
  4: new Map([...lengthByMask(TEXTS[6].slice(MAPPED_BITS)), ...lengthByMask(TEXTS[4])]),
  6: new Map(lengthByMask(TEXTS[6])),
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
 * Rejects a mask that is not base64, not contiguous or of the wrong size.
 */
export function readMask(family: Family, fields: Fields<never>): number | undefined {
  const text = fields.string('Mask') ?? '';
  if (text === '') return undefined;
  const reason = `is not a contiguous IPv${family} mask in base64`;
  return maskLength(family, text) ?? fields.reject('Mask', 'invalid-mask', reason, text);
}
