import { mix } from '../columns/mix.ts';

/**
 * The version of the hashes, and of the rules by which agents make claims of their inputs. Digests of different
 * versions cannot be compared. Version 5: the addresses of the local node have source `local`.
 */
export const DIGEST_VERSION = 5;

/*
 * A digest is a sum of hashes, so that it does not depend on their order. Each hash and each sum has 64 bits: two lanes
 * of 32 bits, `a` and `b`, which different functions compute from the same input.
 *
 * The hash of a key is its place, of 16 bits. Its upper 8 bits are the bucket of the key. A comparison of two digests
 * first finds the differing buckets by their sums, then the differing places in these buckets.
 */

/** Number of buckets of a digest, and of places of a bucket. */
export const BUCKETS = 256;

/** Number of places. */
export const PLACES: number = BUCKETS * BUCKETS;

const FNV_PRIME = 0x0100_0193;
const OTHER_PRIME = 0x85eb_ca6b;

/** Returns the hash of lane `b` with a word added. Like `mix`, which is that of lane `a`, a bijection of the word. */
export function mixOther(hash: number, word: number): number {
  const result = Math.imul(hash ^ word, OTHER_PRIME);
  return result ^ (result >>> 13);
}

/** Adds a text and its length to a hash, so that two texts differ from their concatenation. Returns the new hash. */
export function textHash(hash: number, text: string): number {
  const { length } = text;
  let result = hash;
  let at = 0;
  // Two characters per multiplication, because each multiplication depends on the previous one.
  for (; at + 1 < length; at += 2) {
    result = Math.imul(result ^ text.charCodeAt(at) ^ (text.charCodeAt(at + 1) << 16), FNV_PRIME);
    result ^= result >>> 15;
  }
  if (at < length) result = Math.imul(result ^ text.charCodeAt(at), FNV_PRIME);
  return mix(result, length + 1);
}

/** Returns the place of a key from both lanes of its hash. */
export function placeOfLanes(a: number, b: number): number {
  return mix(a, b) >>> 16;
}

/** Returns a sum as 16 hexadecimal digits. */
export function sumText(a: number, b: number): string {
  const text = (word: number): string => (word >>> 0).toString(16).padStart(8, '0');
  return text(a) + text(b);
}

/** Returns the sum of two sums that are texts of {@link sumText}. */
export function addSumTexts(x: string, y: string): string {
  const lane = (from: number): number =>
    Number.parseInt(x.slice(from, from + 8), 16) + Number.parseInt(y.slice(from, from + 8), 16);
  return sumText(lane(0), lane(8));
}

/** Returns the sum of each bucket as text. `sums` has two lanes for each bucket. */
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

/** Adds a hash to the sum whose two lanes begin at `at`. */
export function addToSum(sums: Int32Array, at: number, a: number, b: number): void {
  sums[at] = (sums[at] ?? 0) + a;
  sums[at + 1] = (sums[at + 1] ?? 0) + b;
}

/** The digest of the claims of a group of writers, or of the documents of a cluster. */
export interface GroupDigest {
  /** The source, and the cluster of the owner or node if there is one: `clustermesh baltic`. */
  readonly writer: string;
  /** Number of claims, or of documents. */
  readonly claims: number;
  /** 16 hexadecimal digits. Equal claims have equal sums in any process. */
  readonly sum: string;
}
