import { wordMask } from './address-words.ts';
import { Prefix } from './prefix.ts';

/** Returns the upper half of a prefix that is not a single address: its next bit is 1. */
function upperHalf({ family, w0, w1, w2, w3, length }: Prefix): Prefix {
  const words = [w0, w1, w2, w3];
  const bit = length % 32;
  const at = (length - bit) / 32;
  words[at] = (words[at] ?? 0) | (wordMask(bit + 1) & ~wordMask(bit));
  const [a = 0, b = 0, c = 0, d = 0] = words;
  return new Prefix({ family, w0: a, w1: b, w2: c, w3: d }, length + 1);
}

/**
 * Subtracts prefixes from a prefix and returns the minimal remainder, ordered by address, at most its first `most` prefixes.
 * Returns an empty list if the others cover the prefix. Prefixes outside of it are ignored. Each of the others costs one step,
 * and adds at most one prefix, for each bit that it is longer.
 */
export function cutOut(
  prefix: Prefix,
  others: readonly Prefix[],
  most: number = Number.POSITIVE_INFINITY,
): readonly Prefix[] {
  const remaining: Prefix[] = [];
  cutInto(remaining, prefix, others, most);
  return remaining;
}

function cutInto(remaining: Prefix[], prefix: Prefix, others: readonly Prefix[], most: number): void {
  if (remaining.length >= most || others.some((other) => other.contains(prefix))) return;
  const within = others.filter((other) => prefix.contains(other));
  if (within.length === 0) {
    remaining.push(prefix);
    return;
  }
  cutInto(remaining, new Prefix(prefix, prefix.length + 1), within, most);
  cutInto(remaining, upperHalf(prefix), within, most);
}
