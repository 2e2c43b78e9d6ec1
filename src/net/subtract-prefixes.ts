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
 * Subtracts prefixes from a prefix, all in address space 0. Yields the minimal remainder, ordered by address; nothing
 * if the others cover the prefix. Prefixes outside of it are ignored. One of the others that is n bits longer costs n
 * steps and adds at most n prefixes.
 */
export function* subtractPrefixes(whole: Prefix, others: readonly Prefix[]): Generator<Prefix, void, void> {
  const parts = [{ prefix: whole, near: others }];
  for (let part = parts.pop(); part !== undefined; part = parts.pop()) {
    const { prefix, near } = part;
    if (near.some((other) => other.contains(prefix))) continue;
    const within = near.filter((other) => prefix.contains(other));
    if (within.length === 0) {
      yield prefix;
      continue;
    }
    parts.push({ prefix: upperHalf(prefix), near: within });
    parts.push({ prefix: new Prefix(prefix, prefix.length + 1), near: within }); // the lower half is next
  }
}
