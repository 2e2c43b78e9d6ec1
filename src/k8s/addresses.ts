import { canonicalAddress, Prefix } from '../net/prefix.ts';
import type { FieldReader } from './field-reader.ts';

/** An address in canonical text; refused when it is none. Absent and empty give `undefined`. */
export function readAddress(value: unknown, path: string, reader: FieldReader): string | undefined {
  const text = reader.string(value, path);
  if (text === undefined || text === '') return undefined;
  const address = canonicalAddress(text);
  if (address === undefined) reader.refuse('invalid-address', path, text, 'is no IP address');
  return address;
}

/** The addresses of a list, in order, without those that are none. */
export function readAddresses(value: unknown, path: string, reader: FieldReader): readonly string[] {
  return reader
    .list(value, path)
    .map((item, index) => readAddress(item, `${path}[${index}]`, reader))
    .filter((address) => address !== undefined);
}

/** A CIDR in canonical text, white space around it ignored; refused when it is none, or a bare address. */
export function readCIDR(value: unknown, path: string, reader: FieldReader): string | undefined {
  const text = reader.string(value, path)?.trim();
  if (text === undefined) return undefined;
  const prefix = text.includes('/') ? Prefix.parse(text) : undefined;
  if (prefix === undefined) reader.refuse('invalid-cidr', path, text, 'is no CIDR');
  return prefix?.toString();
}
