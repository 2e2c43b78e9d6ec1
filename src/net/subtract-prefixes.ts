import { wordMask } from './address-words.ts';
import { Prefix } from './prefix.ts';

/** Returns the upper half of a prefix that is not a single address: the bit after the prefix is 1. */
function upperHalf({ family, w0, w1, w2, w3, length }: Prefix): Prefix {
  const words = [w0, w1, w2, w3];
  const bit = length % 32;
  const at = (length - bit) / 32;
  words[at] = (words[at] ?? 0) | (wordMask(bit + 1) & ~wordMask(bit));
  const [first = 0, second = 0, third = 0, fourth = 0] = words;
  return new Prefix({ family, w0: first, w1: second, w2: third, w3: fourth }, length + 1);
}

/**
 * Subtracts prefixes from a prefix, all in address space 0. Returns the minimal remainder, ordered by address, at most
 * its first `maxPrefixes` prefixes; an empty list if the others cover the prefix. Prefixes outside of it are ignored.
 * One of the others that is n bits longer costs n steps and adds at most n prefixes.
 */
export function subtractPrefixes(
  prefix: Prefix,
  others: readonly Prefix[],
  maxPrefixes: number = Number.POSITIVE_INFINITY,
): readonly Prefix[] {
  const remaining: Prefix[] = [];
  subtractInto(remaining, prefix, others, maxPrefixes);
  return remaining;
}

function subtractInto(
  remaining: Prefix[],
  prefix: Prefix,
  others: readonly Prefix[],
  maxPrefixes: number,
): void {
  if (remaining.length >= maxPrefixes || others.some((other) => other.contains(prefix))) return;
  const within = others.filter((other) => prefix.contains(other));
  if (within.length === 0) {
    remaining.push(prefix);
    return;
  }
  subtractInto(remaining, new Prefix(prefix, prefix.length + 1), within, maxPrefixes); // the lower half
  subtractInto(remaining, upperHalf(prefix), within, maxPrefixes);
}
