import type { AddressWords } from './address-words.ts';

// Octets as text, with and without a dot behind: joining ready pieces is several times faster than making them.
const OCTETS: readonly string[] = Array.from({ length: 256 }, (_, octet) => String(octet));
const DOTTED: readonly string[] = OCTETS.map((octet) => `${octet}.`);

function formatIPv4(word: number): string {
  const upper = `${DOTTED[word >>> 24]}${DOTTED[(word >>> 16) & 255]}`;
  return `${upper}${DOTTED[(word >>> 8) & 255]}${OCTETS[word & 255]}`;
}

/** The longest run of zero groups, leftmost on a tie, as [start, end); empty when no run is longer than one. */
function longestZeroRun(groups: readonly number[]): readonly [start: number, end: number] {
  let best: readonly [number, number] = [0, 0];
  for (let start = 0; start < groups.length; start++) {
    let end = start;
    while (end < groups.length && groups[end] === 0) end++;
    if (end - start > Math.max(best[1] - best[0], 1)) best = [start, end];
    if (end > start) start = end;
  }
  return best;
}

function formatIPv6(words: Readonly<AddressWords>): string {
  const groups = [words.w0, words.w1, words.w2, words.w3].flatMap((word) => [word >>> 16, word & 0xffff]);
  const hex = (part: readonly number[]): string => part.map((value) => value.toString(16)).join(':');
  const [start, end] = longestZeroRun(groups);
  return end === start ? hex(groups) : `${hex(groups.slice(0, start))}::${hex(groups.slice(end))}`;
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
