import { createHmac } from 'node:crypto';
import { type AddressWords, addressBits, type Family, maskWords } from '../../net/address-words.ts';
import { formatAddress } from '../../net/format-address.ts';
import { canonicalKey, parseKey, prefixRegister } from '../../net/prefix.ts';

/**
 * Prefixes whose addresses are not replaced, because they have a special meaning: unspecified, loopback, link-local,
 * multicast.
 */
const KEPT = ['0.0.0.0/8', '127.0.0.0/8', '169.254.0.0/16', '224.0.0.0/3', '::/127', 'fe80::/10', 'ff00::/8'];

/** Maximum number of cached HMACs: about 30 MB. */
const MAX_CACHED_DIGESTS = 100_000;

function bytesOf({ family, w0, w1, w2, w3 }: Readonly<AddressWords>): Uint8Array {
  const bytes = Buffer.alloc(addressBits(family) / 8);
  const words = family === 4 ? [w0] : [w0, w1, w2, w3];
  for (const [index, word] of words.entries()) bytes.writeInt32BE(word | 0, index * 4);
  return bytes;
}

function wordsOf(bytes: Uint8Array): AddressWords {
  const view = Buffer.from(bytes);
  const word = (index: number): number => (view.length > index * 4 ? view.readInt32BE(index * 4) : 0);
  const family: Family = view.length === 4 ? 4 : 6;
  return { family, w0: word(0), w1: word(1), w2: word(2), w3: word(3) };
}

function commonBits(a: Uint8Array, b: Uint8Array): number {
  const index = a.findIndex((byte, i) => byte !== b[i]);
  if (index < 0) return a.length * 8;
  return index * 8 + Math.clz32((a[index] ?? 0) ^ (b[index] ?? 0)) - 24;
}

const register = prefixRegister();

const KEPT_BYTES = KEPT.map((text) => {
  parseKey(text, register);
  return { bytes: bytesOf(register), length: register.length };
});

/**
 * Replaces addresses such that any two replacements have as many leading bits in common as the original addresses. So
 * longest matches are preserved. An HMAC of the preceding bits decides if a bit is flipped.
 */
export class AddressScrub {
  readonly #secret: Uint8Array;
  readonly #digests = new Map<string, Uint8Array>();

  constructor(secret: Uint8Array) {
    this.#secret = secret;
  }

  /**
   * Returns the replacement of an address or prefix, with its address space: `10.1.2.3`, `10.1.0.0/16`, `10.1.2.3@5`.
   * The replacement of a text in non-canonical form is not canonical either, so that a decoder still rejects it.
   * Returns undefined if the text is no address.
   */
  replace(text: string): string | undefined {
    if (!parseKey(text, register)) return undefined;
    const isCanonical = canonicalKey(text) === text;
    const words = wordsOf(this.#flipBits(bytesOf(register)));
    maskWords(words, register.length);
    const suffix = /[/@].*$/.exec(text)?.[0] ?? ''; // the length and the address space, in the spelling of the text
    return `${isCanonical ? formatAddress(words) : nonCanonical(words, register.length, text)}${suffix}`;
  }

  #flipBits(bytes: Uint8Array): Uint8Array {
    const lastKept = this.#lastKeptBit(bytes);
    return bytes.map((byte, index) => {
      const digest = this.#digest(bytes.subarray(0, index), bytes.length);
      let flips = 0;
      for (let bit = 0; bit < 8; bit++) {
        // The earlier bits of the byte select an inner node of a binary tree of eight levels: 1, then 2 or 3, …, then
        // 128 to 255. Each node has a bit of the digest.
        const node = (1 << bit) | (byte >> (8 - bit));
        const nodeBit = ((digest[node >> 3] ?? 0) >> (node & 7)) & 1;
        if (nodeBit === 1 && index * 8 + bit > lastKept) flips |= 0x80 >> bit;
      }
      return byte ^ flips;
    });
  }

  /**
   * Returns the index of the last bit that must not be flipped, so that no address enters or leaves one of the
   * {@link KEPT} prefixes: the first bit that differs from a prefix, or the last bit of an address in it.
   */
  #lastKeptBit(bytes: Uint8Array): number {
    let last = -1;
    for (const { bytes: keptBytes, length } of KEPT_BYTES) {
      if (keptBytes.length !== bytes.length) continue;
      const common = commonBits(bytes, keptBytes);
      last = Math.max(last, common >= length ? bytes.length * 8 : common);
    }
    return last;
  }

  /** Returns the bits that decide the flips of the byte after `before`, in an address of `size` bytes. */
  #digest(before: Uint8Array, size: number): Uint8Array {
    const key = `${size} ${before.join('.')}`;
    let digest = this.#digests.get(key);
    if (digest === undefined) {
      digest = createHmac('sha256', this.#secret).update(key).digest();
      if (this.#digests.size >= MAX_CACHED_DIGESTS) this.#digests.clear();
      this.#digests.set(key, digest);
    }
    return digest;
  }
}

/**
 * Returns an address in a non-canonical form like that of `text`: as a mapped IPv4 address, with a bit after the length
 * of the prefix, or with capital letters and zeros. If only the suffix of an IPv4 address is not canonical, the result
 * is canonical.
 */
function nonCanonical(words: AddressWords, length: number, text: string): string {
  if (words.family === 4 && text.includes(':')) return `::ffff:${formatAddress(words)}`;
  if (words.family === 4) return formatAddress({ ...words, w0: length < 32 ? words.w0 | 1 : words.w0 });
  return [words.w0, words.w1, words.w2, words.w3]
    .map((word) => (word >>> 0).toString(16).toUpperCase().padStart(8, '0'))
    .map((digits) => `${digits.slice(0, 4)}:${digits.slice(4)}`)
    .join(':');
}
