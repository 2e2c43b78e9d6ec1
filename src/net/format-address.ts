import type { AddressWords } from './address-words.ts';

// Precomputed text of octets, with and without a trailing dot, and of lengths. Joining them is several times faster
// than conversion.
const OCTETS: readonly string[] = Array.from({ length: 256 }, (_, octet) => String(octet));
const DOTTED: readonly string[] = OCTETS.map((octet) => `${octet}.`);
const LENGTHS: readonly string[] = Array.from({ length: 129 }, (_, length) => `/${length}`);

function formatIPv4(word: number): string {
  const upper = `${DOTTED[word >>> 24]}${DOTTED[(word >>> 16) & 255]}`;
  return `${upper}${DOTTED[(word >>> 8) & 255]}${OCTETS[word & 255]}`;
}

// The groups that are formatted and the character codes of the text. One buffer is enough because formatting is not
// re-entrant.
const groups = new Uint16Array(8);
const codes: number[] = [];
const DOT = 46;
const COLON = 58;
const AT = 64;
const ZERO = 48;
const NINE = 57;
const LOWER_A = 97;
const DIGITS: readonly number[] = Array.from('0123456789abcdef', (digit) => digit.charCodeAt(0));

/** Writes a hexadecimal digit to `codes` and returns the next position. */
function putDigit(at: number, digit: number): number {
  codes[at] = DIGITS[digit] ?? 0;
  return at + 1;
}

/** Writes groups `from` to `to`, separated by colons, and returns the next position. */
function putGroups(start: number, from: number, to: number): number {
  let at = start;
  for (let i = from; i < to; i++) {
    const group = groups[i] ?? 0;
    if (i > from) codes[at++] = COLON;
    if (group > 0xfff) at = putDigit(at, group >>> 12);
    if (group > 0xff) at = putDigit(at, (group >>> 8) & 15);
    if (group > 0xf) at = putDigit(at, (group >>> 4) & 15);
    at = putDigit(at, group & 15);
  }
  return at;
}

/** Stores the groups of an IPv6 address in `groups`. */
function setGroups(words: Readonly<AddressWords>): void {
  groups[0] = words.w0 >>> 16;
  groups[1] = words.w0;
  groups[2] = words.w1 >>> 16;
  groups[3] = words.w1;
  groups[4] = words.w2 >>> 16;
  groups[5] = words.w2;
  groups[6] = words.w3 >>> 16;
  groups[7] = words.w3;
}

/**
 * Returns the longest run of at least two zero groups, leftmost on a tie, as 16 × start + length; 0 if there is none.
 */
function longestZeroRun(): number {
  let best = 0;
  let start = 0;
  let run = 0;
  for (let i = 0; i < 8; i++) {
    run = groups[i] === 0 ? run + 1 : 0;
    if (run > best) {
      best = run;
      start = i + 1 - run;
    }
  }
  return best < 2 ? 0 : start * 16 + best;
}

/** Returns the text of an IPv6 address, built from character codes, because concatenation takes three times as long. */
function formatIPv6(words: Readonly<AddressWords>): string {
  setGroups(words);
  const zeros = longestZeroRun();
  let end = putGroups(0, 0, zeros === 0 ? 8 : zeros >>> 4);
  if (zeros !== 0) {
    codes[end++] = COLON;
    codes[end++] = COLON;
    end = putGroups(end, (zeros >>> 4) + (zeros & 15), 8);
  }
  return String.fromCharCode(...codes.slice(0, end));
}

/**
 * Returns true if the text from which these words were parsed is canonical: no upper case, no leading zeros, no dotted
 * tail, `::` at the longest run of zeros, and eight groups. Several times faster than formatting the words.
 */
function isCanonicalIPv6(text: string, words: Readonly<AddressWords>): boolean {
  setGroups(words);
  const zeros = longestZeroRun();
  let isCompressed = false;
  let group = 0;
  let digits = 0;
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    if (code === COLON) {
      if (digits > 0) group++;
      else if (i > 0) {
        if (group !== zeros >>> 4) return false;
        isCompressed = true;
        group += zeros & 15;
      }
      digits = 0;
      continue;
    }
    if (code < ZERO || (code > NINE && code < LOWER_A)) return false;
    if (digits === 1 && text.charCodeAt(i - 1) === ZERO) return false;
    digits++;
  }
  return isCompressed === (zeros !== 0) && group + (digits > 0 ? 1 : 0) === 8;
}

/**
 * Returns true if `text`, which was parsed as an IPv4 address, is in dotted form. The dotted form is canonical, because
 * leading zeros are rejected. Other forms are mapped IPv6 addresses, whose first group is empty or zero, and texts with
 * the address space 0 (`@0`). Searching for a colon or an `@` would take longer than parsing.
 */
function isDotted(text: string): boolean {
  const first = text.charCodeAt(0);
  if ((first <= ZERO || first > NINE) && text.charCodeAt(1) !== DOT) return false;
  let last = text.length - 1;
  while (text.charCodeAt(last) === ZERO) last--;
  return text.charCodeAt(last) !== AT;
}

/** Returns true if the text from which these words were parsed equals the result of {@link formatAddress}. */
export function isCanonicalAddress(text: string, words: Readonly<AddressWords>): boolean {
  return words.family === 4 ? isDotted(text) : isCanonicalIPv6(text, words);
}

/**
 * Returns the canonical text of an address: dotted decimal, or RFC 5952 for IPv6 (lower case; the longest run of zero
 * groups is compressed, leftmost on a tie, never a single group).
 */
export function formatAddress(words: Readonly<AddressWords>): string {
  return words.family === 4 ? formatIPv4(words.w0) : formatIPv6(words);
}

/** Returns the canonical text of a prefix, always with its length: `10.1.2.3/32`. */
export function formatPrefix(words: Readonly<AddressWords>, length: number): string {
  return `${formatAddress(words)}${LENGTHS[length]}`;
}
