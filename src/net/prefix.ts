import { checkArguments, NUMBER, objectWith, UsageError } from '../base/arguments.ts';
import { showValue } from '../base/show-value.ts';
import { type AddressWords, addressBits, type Family, maskWords, wordMask } from './address-words.ts';
import { formatAddress, formatPrefix, isCanonicalAddress } from './format-address.ts';
import { isMapped, scanIPv4, scanIPv6, unmap } from './parse-address.ts';

/**
 * The form of a key: a bare address is an *endpoint*, an address with a length is a *CIDR*. `10.1.2.3` and
 * `10.1.2.3/32` are different keys of the same prefix (SEMANTICS 2.1).
 */
export type KeyForm = 'endpoint' | 'cidr';

/**
 * A parsed prefix: canonical words (masked, IPv4-mapped IPv6 converted to IPv4), length and form. Its
 * owner reuses it so that parsing allocates nothing. To keep a prefix, create a `Prefix`.
 */
export interface PrefixRegister extends AddressWords {
  length: number;
  form: KeyForm;
  /** The address space: 0, or the id of a cluster for `10.1.2.3@5` (SEMANTICS 2.1). */
  clusterID: number;
}

/** Returns a new register. Its initial content is `0.0.0.0`. */
export function prefixRegister(): PrefixRegister {
  return { family: 4, w0: 0, w1: 0, w2: 0, w3: 0, length: 32, form: 'endpoint', clusterID: 0 };
}

/** Returns a copy of a register. It copies field by field because a spread is several times slower. */
export function copyRegister({
  family,
  w0,
  w1,
  w2,
  w3,
  length,
  form,
  clusterID,
}: Readonly<PrefixRegister>): PrefixRegister {
  return { family, w0, w1, w2, w3, length, form, clusterID };
}

/** Returns true if a prefix has the length of an address. */
export function hasAddressLength({ family, length }: Pick<PrefixRegister, 'family' | 'length'>): boolean {
  return length === addressBits(family);
}

/** Returns true if two registers hold the same key. */
export function sameKey(a: Readonly<PrefixRegister>, b: Readonly<PrefixRegister>): boolean {
  return (
    a.w0 === b.w0 &&
    a.length === b.length &&
    a.form === b.form &&
    a.family === b.family &&
    a.w1 === b.w1 &&
    a.w2 === b.w2 &&
    a.w3 === b.w3 &&
    a.clusterID === b.clusterID
  );
}

const MAPPED_BITS = 96; // ::ffff:0:0/96 contains the IPv4-mapped addresses

/** The highest id of a cluster, and thus of an address space. */
export const MAX_CLUSTER_ID = 511;

/** Character code of `0`. */
const ZERO = 48;

/** Returns the decimal number that ends a text, without sign or leading zeros; -1 if the end is another text. */
function scanLength(text: string, from: number): number {
  const digits = text.length - from;
  if (digits < 1 || (digits > 1 && text.charCodeAt(from) === ZERO)) return -1;
  let length = 0;
  for (let i = from; i < text.length; i++) {
    const digit = (text.charCodeAt(i) - ZERO) >>> 0;
    if (digit > 9) return -1;
    length = length * 10 + digit;
  }
  return length;
}

/**
 * Parses an endpoint IP or a CIDR into `out` in canonical form (SEMANTICS 2.1): host bits are zeroed; an IPv4-mapped
 * address, or a mapped CIDR of 96 bits or more, becomes IPv4. Zone ids, leading zeros, signs, white space and trailing
 * text are rejected. Returns false if the text is invalid; `out` is then unspecified. Allocates nothing; about 50 ns
 * for IPv4.
 */
export function parsePrefix(text: string, out: PrefixRegister): boolean {
  if (typeof text !== 'string') return false;
  out.clusterID = 0;
  const end = scanIPv4(text, out);
  if (end < 0) return parseIPv6Prefix(text, out);
  if (end === text.length) {
    out.form = 'endpoint';
    out.length = 32;
    return true;
  }
  const length = scanLength(text, end + 1);
  if (length < 0 || length > 32) return false;
  out.w0 &= wordMask(length);
  out.form = 'cidr';
  out.length = length;
  return true;
}

function parseIPv6Prefix(text: string, out: PrefixRegister): boolean {
  const slash = text.indexOf('/');
  if (!scanIPv6(text, slash < 0 ? text.length : slash, out)) return false;
  if (slash < 0) {
    if (isMapped(out)) unmap(out);
    out.form = 'endpoint';
    out.length = addressBits(out.family);
    return true;
  }
  let length = scanLength(text, slash + 1);
  if (length < 0 || length > 128) return false;
  if (length >= MAPPED_BITS && isMapped(out)) {
    unmap(out);
    length -= MAPPED_BITS;
  }
  maskWords(out, length);
  out.form = 'cidr';
  out.length = length;
  return true;
}

/**
 * Like {@link parsePrefix}, and accepts an address space at the end: `10.1.2.3@5`, `10.1.0.0/16@5` (SEMANTICS 2.1).
 * Cilium splits at the last `@` as well (pkg/clustermesh/types/addressing.go). The id is decimal, from 0 to 511;
 * leading zeros are accepted, and 0 is the same as no id. Costs nothing extra for text without `@`.
 */
export function parseKey(text: string, out: PrefixRegister): boolean {
  return parsePrefix(text, out) || parseInSpace(text, out);
}

function parseInSpace(text: string, out: PrefixRegister): boolean {
  const at = typeof text === 'string' ? text.lastIndexOf('@') : -1;
  if (at < 0) return false;
  const id = text.slice(at + 1);
  if (!/^\d+$/.test(id) || Number(id) > MAX_CLUSTER_ID || !parsePrefix(text.slice(0, at), out)) return false;
  out.clusterID = Number(id);
  return true;
}

const scratch = prefixRegister();

/** An immutable IP prefix in canonical form. It does not record whether it was written as an address or as a CIDR. */
export class Prefix implements Readonly<AddressWords> {
  readonly family: Family;
  readonly length: number;
  readonly w0: number;
  readonly w1: number;
  readonly w2: number;
  readonly w3: number;
  /** The address space: 0, or the id of a cluster. */
  readonly clusterID: number;

  /** `words` must be canonical for `length`; this is not checked. Use {@link Prefix.parse} for text. */
  constructor(words: Readonly<AddressWords>, length: number, clusterID = 0) {
    this.family = words.family;
    this.length = length;
    this.w0 = words.w0;
    this.w1 = words.w1;
    this.w2 = words.w2;
    this.w3 = words.w3;
    this.clusterID = clusterID;
  }

  /** Like {@link Prefix.parse}, and accepts the address space of a cluster: `10.1.0.0/16@5`. */
  static parseAnnotated(text: string): Prefix | undefined {
    return parseKey(text, scratch) ? new Prefix(scratch, scratch.length, scratch.clusterID) : undefined;
  }

  /** Returns the prefix of an address or CIDR, or `undefined` if the text is invalid. */
  static parse(text: string): Prefix | undefined {
    return parsePrefix(text, scratch) ? new Prefix(scratch, scratch.length) : undefined;
  }

  /** True if the prefix contains a single address. */
  get isFullLength(): boolean {
    return hasAddressLength(this);
  }

  /** Returns true if every address of `other` is in this prefix; false if the address spaces differ. */
  contains(other: Prefix): boolean {
    return (
      other.length >= this.length &&
      other.clusterID === this.clusterID &&
      containsWords(this, this.length, other)
    );
  }

  equals(other: Prefix): boolean {
    return comparePrefixes(this, other) === 0;
  }

  /** The canonical address without the length, as in an endpoint key. */
  get address(): string {
    return `${formatAddress(this)}${spaceText(this.clusterID)}`;
  }

  /** Canonical CIDR text, always with its length: `10.1.2.3/32`. */
  toString(): string {
    return `${formatPrefix(this, this.length)}${spaceText(this.clusterID)}`;
  }
}

const PREFIX = objectWith({ family: NUMBER, length: NUMBER, clusterID: NUMBER });

checkArguments(Prefix, { contains: { other: PREFIX }, equals: { other: PREFIX } });

/** Returns true if the address `words` is in the prefix `net`/`length` of the same family. */
export function containsWords(
  net: Readonly<AddressWords>,
  length: number,
  words: Readonly<AddressWords>,
): boolean {
  return (
    net.family === words.family &&
    ((net.w0 ^ words.w0) & wordMask(length)) === 0 &&
    ((net.w1 ^ words.w1) & wordMask(length - 32)) === 0 &&
    ((net.w2 ^ words.w2) & wordMask(length - 64)) === 0 &&
    ((net.w3 ^ words.w3) & wordMask(length - 96)) === 0
  );
}

/** Total order: by address space, IPv4 before IPv6, then by address as a number, then shorter prefixes first. */
export function comparePrefixes(
  a: Readonly<Pick<PrefixRegister, keyof AddressWords | 'length' | 'clusterID'>>,
  b: Readonly<Pick<PrefixRegister, keyof AddressWords | 'length' | 'clusterID'>>,
): number {
  return (
    a.clusterID - b.clusterID ||
    a.family - b.family ||
    (a.w0 >>> 0) - (b.w0 >>> 0) ||
    (a.w1 >>> 0) - (b.w1 >>> 0) ||
    (a.w2 >>> 0) - (b.w2 >>> 0) ||
    (a.w3 >>> 0) - (b.w3 >>> 0) ||
    a.length - b.length
  );
}

/**
 * Returns the canonical text of a bare address (`::ffff:10.0.0.1` → `10.0.0.1`), or `undefined` if `text` is not one.
 */
export function canonicalAddress(text: string): string | undefined {
  return parsePrefix(text, scratch) && scratch.form === 'endpoint' ? formatKeyOf(text, scratch) : undefined;
}

/**
 * Returns a canonical text of an argument: the result of `canonical`, which is {@link canonicalAddress} or
 * {@link canonicalCIDR}. Throws a `UsageError` that names the argument if there is none.
 */
export function requireCanonical(
  name: string,
  text: unknown,
  canonical: typeof canonicalAddress | typeof canonicalCIDR,
): string {
  const result = typeof text === 'string' ? canonical(text) : undefined;
  const kind = canonical === canonicalCIDR ? 'a CIDR' : 'an IP address';
  if (result === undefined)
    throw new UsageError('invalid-argument', `${name} must be ${kind}, not ${showValue(text)}`);
  return result;
}

/** Like {@link canonicalAddress}, and accepts the address space of a cluster: `10.0.0.1@5`. */
export function canonicalEndpoint(text: string): string | undefined {
  return parseKey(text, scratch) && scratch.form === 'endpoint' ? formatKeyOf(text, scratch) : undefined;
}

/** Returns the canonical text of a CIDR, or `undefined` if `text` is not one. A bare address is not a CIDR. */
export function canonicalCIDR(text: string): string | undefined {
  return parsePrefix(text, scratch) && scratch.form === 'cidr' ? formatKey(scratch) : undefined;
}

/** Returns `@5` for address space 5, and an empty text for address space 0. */
function spaceText(clusterID: number): string {
  return clusterID === 0 ? '' : `@${clusterID}`;
}

/**
 * Returns the canonical text of a key in its form: an address, or a prefix with its length; then its address space, if
 * not 0.
 */
export function formatKey(key: Readonly<PrefixRegister>): string {
  const text = key.form === 'endpoint' ? formatAddress(key) : formatPrefix(key, key.length);
  return key.clusterID === 0 ? text : text + spaceText(key.clusterID);
}

/**
 * Like {@link formatKey}. `key` was parsed from `text`, or is the longest match of the address in `text`. Returns
 * `text` itself if it is the canonical text of the key, as for most addresses.
 */
export function formatKeyOf(text: string, key: Readonly<PrefixRegister>): string {
  const isCanonical = key.form === 'endpoint' && key.clusterID === 0 && isCanonicalAddress(text, key);
  return isCanonical ? text : formatKey(key);
}

/**
 * Returns the canonical prefix of a key, always with its length. `text` is the text from which the key was parsed, or
 * empty.
 */
export function formatPrefixOf(text: string, key: Readonly<PrefixRegister>): string {
  if (key.clusterID !== 0) return formatPrefix(key, key.length) + spaceText(key.clusterID);
  const isCanonical = key.form === 'endpoint' && text !== '' && isCanonicalAddress(text, key);
  return isCanonical ? `${text}${key.family === 4 ? '/32' : '/128'}` : formatPrefix(key, key.length);
}

/** Returns the prefix of a canonical key. An endpoint becomes a full-length CIDR: `10.1.2.3/32`, `10.1.2.3/32@5`. */
export function prefixOfKey(key: string): string {
  if (key.includes('/')) return key;
  const length = key.includes(':') ? '/128' : '/32';
  const at = key.indexOf('@');
  return at < 0 ? key + length : key.slice(0, at) + length + key.slice(at);
}

/** Returns the canonical text of a key in its form, with its address space, or `undefined` if `text` is not a key. */
export function canonicalKey(text: string): string | undefined {
  if (text !== lastKey.text) {
    lastKey.canonical = parseKey(text, scratch) ? formatKeyOf(text, scratch) : undefined;
    lastKey.text = text;
  }
  return lastKey.canonical;
}

/** The last result of {@link canonicalKey}, because a published key is checked twice in succession. */
const lastKey: { text: string | undefined; canonical: string | undefined } = {
  text: undefined,
  canonical: undefined,
};
