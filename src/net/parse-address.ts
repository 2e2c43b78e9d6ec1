import type { AddressWords } from './address-words.ts';

// Character codes. The scanner uses codes instead of slices because it runs once or twice for each kvstore event.
const DOT = 46;
const SLASH = 47;
const ZERO = 48;
const COLON = 58;

/** Returns the decimal digit at an index of the text; a number above 9 if the character is not a digit. */
function digitAt(text: string, at: number): number {
  return at < text.length ? (text.charCodeAt(at) - ZERO) >>> 0 : 10;
}

/**
 * Returns `(number of digits << 8) | value` of the octet at an index, or -1. Unrolled, because an octet has at most
 * three digits.
 */
function scanOctet(text: string, at: number): number {
  const first = digitAt(text, at);
  if (first > 9) return -1;
  const second = digitAt(text, at + 1);
  if (second > 9) return (1 << 8) | first;
  if (first === 0) return -1;
  const third = digitAt(text, at + 2);
  if (third > 9) return (2 << 8) | (first * 10 + second);
  const octet = first * 100 + second * 10 + third;
  return octet > 255 ? -1 : (3 << 8) | octet;
}

/** The value of each ASCII code as a hexadecimal digit, or -1. A table, because branches would be unpredictable. */
const HEX_DIGITS: Int8Array = Int8Array.from({ length: 128 }, (_, code) => {
  const digit = Number.parseInt(String.fromCharCode(code), 16);
  return Number.isNaN(digit) ? -1 : digit;
});

/**
 * Scans four decimal octets from `from`, up to a slash or the end of the text, into `out.w0`. Returns the index at
 * which it stopped, or -1. Leading zeros are rejected because some parsers read `010` as octal 8.
 */
function scanOctets(text: string, from: number, out: AddressWords): number {
  let word = 0;
  let i = from;
  for (let dots = 0; ; dots++) {
    const octet = scanOctet(text, i);
    if (octet < 0) return -1;
    word = (word << 8) | (octet & 255);
    i += octet >> 8;
    if (dots === 3) break;
    if (i === text.length || text.charCodeAt(i) !== DOT) return -1;
    i++;
  }
  if (i < text.length && text.charCodeAt(i) !== SLASH) return -1;
  out.w0 = word;
  return i;
}

/**
 * Scans an IPv4 address at the start of the text, up to a slash or the end, into `out`. Returns the index at which it
 * stopped, or -1 if there is none; `out` is then unspecified. One pass without allocation, because most keys of most
 * meshes are IPv4.
 */
export function scanIPv4(text: string, out: AddressWords): number {
  const end = scanOctets(text, 0, out);
  out.family = 4;
  out.w1 = 0;
  out.w2 = 0;
  out.w3 = 0;
  return end;
}

// The eight groups of the address that is scanned. One buffer is enough because parsing is not re-entrant.
const groups = new Uint16Array(8);

/**
 * Moves the groups after `::` (at index `gap`; -1 if there is none) to the end, and zeroes the groups that `::`
 * replaces. Returns false if the number of groups is wrong.
 */
function spreadGap(count: number, gap: number): boolean {
  if (gap < 0) return count === 8;
  if (count >= 8) return false; // '::' must replace at least one group
  let to = 8;
  for (let from = count; from > gap; ) groups[--to] = groups[--from] ?? 0;
  while (to > gap) groups[--to] = 0;
  return true;
}

/**
 * Scans colon-separated groups with at most one `::` and an optional dotted tail into `groups`. Returns false if they
 * are invalid, also if there are more than eight (writes beyond the buffer have no effect) or a zone id. `scratch` is
 * overwritten. It never reads past the end of the text, because out-of-bounds reads are slow.
 */
function scanGroups(text: string, to: number, scratch: AddressWords): boolean {
  let count = 0;
  let gap = -1;
  let i = 0;
  if (text.charCodeAt(0) === COLON) {
    if (text.charCodeAt(1) !== COLON) return false;
    gap = 0;
    i = 2;
  }
  while (i < to) {
    const start = i;
    let value = 0;
    for (; i < to; i++) {
      const digit = HEX_DIGITS[text.charCodeAt(i)] ?? -1;
      if (digit < 0) break;
      value = (value << 4) | digit;
    }
    if (i < to && text.charCodeAt(i) === DOT) {
      if (scanOctets(text, start, scratch) !== to) return false;
      groups[count++] = scratch.w0 >>> 16;
      groups[count++] = scratch.w0 & 0xffff;
      break;
    }
    if (i === start || i - start > 4) return false;
    groups[count++] = value;
    if (i === to) break;
    if (text.charCodeAt(i) !== COLON) return false;
    i++;
    if (i === to) return false; // a single trailing colon
    if (text.charCodeAt(i) === COLON) {
      if (gap >= 0) return false;
      gap = count;
      i++;
    }
  }
  return spreadGap(count, gap);
}

function group(index: number): number {
  return groups[index] ?? 0;
}

/**
 * Parses the IPv6 address in `text[0, to)` into `out`. It does **not** convert an IPv4-mapped address to IPv4, because
 * that depends on the length of a prefix (see `parsePrefix`). Returns false if the text is invalid; `out` is then
 * unspecified.
 */
export function scanIPv6(text: string, to: number, out: AddressWords): boolean {
  if (!scanGroups(text, to, out)) return false;
  out.family = 6;
  out.w0 = (group(0) << 16) | group(1);
  out.w1 = (group(2) << 16) | group(3);
  out.w2 = (group(4) << 16) | group(5);
  out.w3 = (group(6) << 16) | group(7);
  return true;
}

/** Returns true if the words of an IPv6 address are `::ffff:a.b.c.d`. */
export function isMapped(words: AddressWords): boolean {
  return words.w0 === 0 && words.w1 === 0 && words.w2 === 0xffff;
}

/** Converts an IPv4-mapped address to IPv4, in place. The caller has checked `isMapped`. */
export function unmap(words: AddressWords): void {
  words.family = 4;
  words.w0 = words.w3;
  words.w2 = 0;
  words.w3 = 0;
}
