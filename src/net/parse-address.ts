import type { AddressWords } from './address-words.ts';

// Character codes. The scanner works on codes, not on slices: it runs once or twice per kvstore event.
const DOT = 46;
const ZERO = 48;
const COLON = 58;

/** The value of a decimal digit's code, or a number above 9. */
function decimalDigit(code: number): number {
  return (code - ZERO) >>> 0;
}

/** The value of a hexadecimal digit's code, or -1. */
function hexDigit(code: number): number {
  if (code >= ZERO && code <= 57) return code - ZERO;
  const lower = code | 0x20;
  return lower >= 97 && lower <= 102 ? lower - 87 : -1;
}

/**
 * Four decimal octets in `text[from, to)` as a signed 32-bit word, or `undefined`. Leading zeros are refused:
 * some readers take `010` for octal 8, and an address must not mean two things.
 */
function scanDotted(text: string, from: number, to: number): number | undefined {
  let word = 0;
  let octet = 0;
  let digits = 0;
  let dots = 0;
  for (let i = from; i < to; i++) {
    const code = text.charCodeAt(i);
    if (code === DOT) {
      if (digits === 0 || dots === 3) return undefined;
      word = (word << 8) | octet;
      dots++;
      octet = 0;
      digits = 0;
      continue;
    }
    const digit = decimalDigit(code);
    if (digit > 9 || (digits > 0 && octet === 0)) return undefined;
    octet = octet * 10 + digit;
    digits++;
    if (octet > 255) return undefined;
  }
  return dots === 3 && digits > 0 ? (word << 8) | octet : undefined;
}

// The eight groups of the address being scanned. Parsing never yields, so one buffer serves every call.
const groups = new Uint16Array(8);

/** Moves the groups after `::` (at index `gap`) to the end and zeroes what the `::` stands for. */
function spreadGap(count: number, gap: number): boolean {
  if (gap < 0) return count === 8;
  if (count === 8) return false; // '::' must stand for at least one group
  groups.copyWithin(8 - (count - gap), gap, count);
  groups.fill(0, gap, 8 - (count - gap));
  return true;
}

/** Colon-separated groups, at most one `::`, optionally a dotted tail; fills `groups`. Zone ids are refused. */
function scanGroups(text: string, from: number, to: number): boolean {
  let count = 0;
  let gap = -1;
  let i = from;
  if (text.charCodeAt(i) === COLON) {
    if (i + 1 >= to || text.charCodeAt(i + 1) !== COLON) return false;
    gap = 0;
    i += 2;
  }
  while (i < to) {
    if (count === 8) return false;
    const start = i;
    let value = 0;
    for (; i < to; i++) {
      const digit = hexDigit(text.charCodeAt(i));
      if (digit < 0) break;
      value = (value << 4) | digit;
    }
    if (i < to && text.charCodeAt(i) === DOT) {
      const word = count <= 6 ? scanDotted(text, start, to) : undefined;
      if (word === undefined) return false;
      groups[count++] = word >>> 16;
      groups[count++] = word & 0xffff;
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

function scanIPv6(text: string, from: number, to: number, out: AddressWords): boolean {
  if (!scanGroups(text, from, to)) return false;
  out.family = 6;
  out.w0 = (group(0) << 16) | group(1);
  out.w1 = (group(2) << 16) | group(3);
  out.w2 = (group(4) << 16) | group(5);
  out.w3 = (group(6) << 16) | group(7);
  return true;
}

/**
 * Parses the address in `text[from, to)` into `out`, **without** folding IPv4-mapped IPv6 to IPv4: a prefix
 * needs its length for that (see `parsePrefix`). False when it is no address; `out` is then undefined.
 */
export function scanAddress(text: string, from: number, to: number, out: AddressWords): boolean {
  // An IPv4 address has its first dot by the fourth character and no colon before it, as `::1.2.3.4` has.
  const limit = Math.min(to, from + 4);
  for (let i = from; i < limit; i++) {
    const code = text.charCodeAt(i);
    if (code === COLON) break;
    if (code !== DOT) continue;
    const word = scanDotted(text, from, to);
    if (word === undefined) return false;
    out.family = 4;
    out.w0 = word;
    out.w1 = 0;
    out.w2 = 0;
    out.w3 = 0;
    return true;
  }
  return to - from >= 2 && scanIPv6(text, from, to, out);
}

/** Whether the words are `::ffff:a.b.c.d`. */
export function isMapped(words: AddressWords): boolean {
  return words.family === 6 && words.w0 === 0 && words.w1 === 0 && words.w2 === 0xffff;
}

/** Turns mapped words into the IPv4 address they hold, in place. The caller has checked `isMapped`. */
export function unmap(words: AddressWords): void {
  words.family = 4;
  words.w0 = words.w3;
  words.w2 = 0;
  words.w3 = 0;
}
