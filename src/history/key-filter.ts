import { mix } from '../columns/mix.ts';

/** Bytes of a segment for each byte of its filter: at least 10 bits for each key, as a record has about 40 bytes. */
const BYTES_PER_FILTER_BYTE = 32;

/** Bits that are set for each key. With 10 bits for each key, about 1.2 % of the absent keys are false positives. */
const PROBES = 5;

/** Returns an empty Bloom filter for the keys of a segment of `maxBytes`. Its length is a power of two. */
export function emptyFilter(maxBytes: number): Uint8Array {
  return new Uint8Array(2 ** Math.ceil(Math.log2(Math.max(64, maxBytes / BYTES_PER_FILTER_BYTE))));
}

export function addToFilter(filter: Uint8Array, hash: number): void {
  const mask = 8 * filter.length - 1;
  const step = mix(hash, 0x2545) | 1;
  let bit = hash;
  for (let i = 0; i < PROBES; i++) {
    const at = (bit & mask) >>> 3;
    filter[at] = (filter[at] ?? 0) | (1 << (bit & 7));
    bit = (bit + step) | 0;
  }
}

/** Returns true if the hash was added, and sometimes if it was not. */
export function mayContain(filter: Uint8Array, hash: number): boolean {
  const mask = 8 * filter.length - 1;
  const step = mix(hash, 0x2545) | 1;
  let bit = hash;
  for (let i = 0; i < PROBES; i++) {
    if (((filter[(bit & mask) >>> 3] ?? 0) & (1 << (bit & 7))) === 0) return false;
    bit = (bit + step) | 0;
  }
  return true;
}
