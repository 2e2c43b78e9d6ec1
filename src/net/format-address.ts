import type { AddressWords } from './address-words.ts';

// Octets as text, with and without a dot behind: joining ready pieces is several times faster than making them.
const OCTETS: readonly string[] = Array.from({ length: 256 }, (_, octet) => String(octet));
const DOTTED: readonly string[] = OCTETS.map((octet) => `${octet}.`);

function formatIPv4(word: number): string {
  const upper = `${DOTTED[word >>> 24]}${DOTTED[(word >>> 16) & 255]}`;
  return `${upper}${DOTTED[(word >>> 8) & 255]}${OCTETS[word & 255]}`;
}

// The groups being formatted; formatting never yields.
const groups = new Uint16Array(8);

// Groups as text, made when first needed: at most 65,536 short strings.
const HEX: (string | undefined)[] = new Array<string | undefined>(0x1_0000).fill(undefined);

function hex(group: number): string {
  const known = HEX[group];
  if (known !== undefined) return known;
  const text = group.toString(16);
  HEX[group] = text;
  return text;
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

function formatIPv6(words: Readonly<AddressWords>): string {
  setGroups(words);
  const zeros = longestZeroRun();
  const start = zeros === 0 ? 8 : zeros >>> 4;
  const end = zeros === 0 ? 8 : start + (zeros & 15);
  let text = '';
  for (let i = 0; i < start; i++) text += i === 0 ? hex(groups[i] ?? 0) : `:${hex(groups[i] ?? 0)}`;
  if (zeros === 0) return text;
  text += '::';
  for (let i = end; i < 8; i++) text += i === end ? hex(groups[i] ?? 0) : `:${hex(groups[i] ?? 0)}`;
  return text;
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
  return `${formatAddress(words)}/${length}`;
}
