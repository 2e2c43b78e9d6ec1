import { mix } from '../columns/mix.ts';

/** The version of the hashes. Digests of different versions cannot be compared. */
export const DIGEST_VERSION = 3;

/** Number of buckets of a digest, and of places of each bucket. */
export const BUCKETS = 256;

/** The number of places: the upper 8 bits of a place are its bucket. */
export const PLACES: number = BUCKETS * BUCKETS;

const FNV_PRIME = 0x0100_0193;
const OTHER_PRIME = 0x85eb_ca6b;

/** Returns the hash of a second lane after a word. Like `mix`, a bijection of the word. */
export function mixOther(hash: number, word: number): number {
  const result = Math.imul(hash ^ word, OTHER_PRIME);
  return result ^ (result >>> 13);
}

/** Returns the hash of a text after another hash. The length is added, so that two texts differ from their concatenation. */
export function textHash(hash: number, text: string): number {
  const { length } = text;
  let result = hash;
  let at = 0;
  // Two characters with one multiplication, because a multiplication waits for the one before it.
  for (; at + 1 < length; at += 2) {
    result = Math.imul(result ^ text.charCodeAt(at) ^ (text.charCodeAt(at + 1) << 16), FNV_PRIME);
    result ^= result >>> 15;
  }
  if (at < length) result = Math.imul(result ^ text.charCodeAt(at), FNV_PRIME);
  return mix(result, length + 1);
}

/** Returns the place of a hash of a key. */
export function placeOfLanes(a: number, b: number): number {
  return mix(a, b) >>> 16;
}

/** Returns a sum as 16 hexadecimal digits. */
export function sumText(a: number, b: number): string {
  const text = (word: number): string => (word >>> 0).toString(16).padStart(8, '0');
  return text(a) + text(b);
}

/** Returns the sums of buckets as text. `sums` has two lanes for each. */
export function bucketTexts(sums: Int32Array): readonly string[] {
  return Array.from({ length: BUCKETS }, (_, at) => sumText(sums[at * 2] ?? 0, sums[at * 2 + 1] ?? 0));
}

/** Returns the sum of all buckets as text. */
export function totalText(sums: Int32Array): string {
  let [a, b] = [0, 0];
  for (let at = 0; at < sums.length; at += 2) {
    a = (a + (sums[at] ?? 0)) | 0;
    b = (b + (sums[at + 1] ?? 0)) | 0;
  }
  return sumText(a, b);
}

/** The digest of the claims of a group of writers, or of the documents of a cluster. */
export interface GroupDigest {
  /** The source, and the cluster of the owner if there is one: `clustermesh baltic`. Nodes belong to the group of their cluster. */
  readonly writer: string;
  readonly claims: number;
  /** 16 hexadecimal digits. Equal claims have equal sums in any process. */
  readonly sum: string;
}
