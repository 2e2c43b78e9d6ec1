import type { AddressWords } from './address-words.ts';

// Octets as text, with and without a dot behind, and lengths: joining ready pieces is several times faster than making them.
const OCTETS: readonly string[] = Array.from({ length: 256 }, (_, octet) => String(octet));
const DOTTED: readonly string[] = OCTETS.map((octet) => `${octet}.`);
const LENGTHS: readonly string[] = Array.from({ length: 129 }, (_, length) => `/${length}`);

function formatIPv4(word: number): string {
  const upper = `${DOTTED[word >>> 24]}${DOTTED[(word >>> 16) & 255]}`;
  return `${upper}${DOTTED[(word >>> 8) & 255]}${OCTETS[word & 255]}`;
}

// The groups being formatted, and the codes of the text; formatting never yields.
const groups = new Uint16Array(8);
const codes: number[] = [];
const DOT = 46;
const COLON = 58;
const ZERO = 48;
const NINE = 57;
const LOWER_A = 97;
const DIGITS: readonly number[] = Array.from('0123456789abcdef', (digit) => digit.charCodeAt(0));

/** Writes a hexadecimal digit to `codes` and gives where the next one goes. */
function putDigit(at: number, digit: number): number {
  codes[at] = DIGITS[digit] ?? 0;
  return at + 1;
}

/** Writes groups `from` to `to` with colons between them, and gives where it ended. */
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

/** The longest run of zero groups, leftmost on a tie, as 16 × start + length; 0 when none is longer than one. */
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

/** From character codes, at once: joining pieces makes ropes and takes three times as long. */
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
 * Whether a text that was parsed to these words is the canonical one. No upper case, no leading zeros, the colons side by
 * side where the longest run of zeros is, and eight groups, of which a dotted tail has one too few. Several times as fast
 * as making it anew.
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
    if (code > NINE && code < LOWER_A) return false;
    if (digits === 1 && text.charCodeAt(i - 1) === ZERO) return false;
    digits++;
  }
  return isCompressed === (zeros !== 0) && group + (digits > 0 ? 1 : 0) === 8;
}

/**
 * Whether an IPv4 address was written as one, of which there is one spelling only: no leading zeros are accepted. Else it is
 * a mapped IPv6 address, whose first group is empty or zero. A search for a colon would take longer than the parsing.
 */
function isDotted(text: string): boolean {
  const first = text.charCodeAt(0);
  return (first > ZERO && first <= NINE) || text.charCodeAt(1) === DOT;
}

/** Whether a text that was parsed to these words as an address is what {@link formatAddress} gives. */
export function isCanonicalAddress(text: string, words: Readonly<AddressWords>): boolean {
  return words.family === 4 ? isDotted(text) : isCanonicalIPv6(text, words);
}

/**
 * The canonical text of an address: dotted decimal, or RFC 5952 for IPv6 (lower case, the longest run of zero
 * groups compressed, leftmost on a tie, never a single group).
 */
export function formatAddress(words: Readonly<AddressWords>): string {
  return words.family === 4 ? formatIPv4(words.w0) : formatIPv6(words);
}

/** The canonical text of a prefix, always with its length: `10.1.2.3/32`. */
export function formatPrefix(words: Readonly<AddressWords>, length: number): string {
  return `${formatAddress(words)}${LENGTHS[length]}`;
}
