/**
 * 2^32 divided by the golden ratio. Its multiples spread consecutive numbers evenly. It is odd, so the product is a
 * bijection.
 */
export const GOLDEN = 0x9e37_79b1;

/** One round of hashing. For a fixed `hash` it is a bijection of `word`. */
export function mix(hash: number, word: number): number {
  const h = Math.imul(hash ^ word, GOLDEN);
  return h ^ (h >>> 15);
}

/** Returns a hash of a text. A secret `seed` prevents attackers from choosing texts with the same hash. */
export function hashText(text: string, seed: number): number {
  let hash = seed;
  for (let i = 0; i < text.length; i++) hash = mix(hash, text.charCodeAt(i));
  return hash;
}
