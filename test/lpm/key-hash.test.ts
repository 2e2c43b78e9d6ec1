import fc from 'fast-check';
import { describe, expect, it, vi } from 'vitest';
import { SharedPages } from '../../src/columns/shared-pages.ts';
import { KeyHash, lengthWord } from '../../src/lpm/key-hash.ts';
import { SegmentDirectory } from '../../src/lpm/segment-directory.ts';
import { type AddressWords, addressBits, type Family, maskWords } from '../../src/net/address-words.ts';

// A cache line has eight buckets, a small segment 64 lines.
const SMALL = 9;
const LINES = 64;
/** Words of a page of buckets: pages of keys are shorter. */
const PAGE_WORDS: number = 8 << SMALL;

/**
 * Words of an address, and a length; the length beyond the bits of an address stands for the address itself.
 */
interface Key {
  readonly words: AddressWords;
  readonly word: number;
}

function key(family: Family, length: number, w0 = 0, w1 = 0, w2 = 0, w3 = 0): Key {
  const words = { family, w0, w1, w2, w3 };
  maskWords(words, Math.min(length, addressBits(family)));
  return { words, word: lengthWord(family, length, 0) };
}

/** Returns the `nth` neighbour of a prefix of `length` bits, counted in its last bits. */
function neighbour(family: Family, length: number, words: readonly number[], nth: number): Key {
  const bits = Math.min(length, addressBits(family));
  const next = [...words];
  const at = (bits - 1) >> 5;
  next[at] = ((words[at] ?? 0) ^ (nth << (-bits & 31))) | 0;
  return key(family, length, ...next);
}

/** A hash with small segments, and its directories. */
class SmallHash {
  readonly hash: KeyHash;
  readonly #directories = { 4: new SegmentDirectory(4), 6: new SegmentDirectory(6) };

  constructor(seed: number) {
    this.hash = new KeyHash(seed, SMALL);
  }

  find({ words, word }: Key): number {
    return this.hash.find(this.#directories[words.family], words, word);
  }

  insert({ words, word }: Key): void {
    this.hash.insert(this.#directories[words.family], words, word);
  }

  remove(key: Key): void {
    this.hash.remove(this.#directories[key.words.family], this.find(key), key.words, key.word);
  }
}

function hashOf(keys: readonly Key[], seed = 1): SmallHash {
  const hash = new SmallHash(seed);
  for (const one of keys) hash.insert(one);
  return hash;
}

/** Returns the buckets that the hash reads while it looks up these keys, one list for each. */
function bucketsRead(hash: SmallHash, keys: readonly Key[]): readonly (readonly number[])[] {
  let read = new Set<number>();
  const { at } = SharedPages.prototype;
  vi.spyOn(SharedPages.prototype, 'at').mockImplementation(function (this: SharedPages<Int32Array>, index) {
    const page = Reflect.apply(at, this, [index]);
    const get = (from: Int32Array, name: string | symbol): unknown => {
      if (typeof name === 'string') read.add(Number(name) >> 1);
      return Reflect.get(from, name);
    };
    return page?.length === PAGE_WORDS ? new Proxy(page, { get }) : page;
  });
  const all = keys.map((one) => {
    read = new Set();
    hash.find(one);
    return [...read];
  });
  vi.restoreAllMocks();
  return all;
}

const lineOf = (bucket: number): number => bucket >> 3;

/** Returns the line of a key in an otherwise empty hash. */
function lineAlone(one: Key, seed: number): number {
  return lineOf(bucketsRead(hashOf([one], seed), [one])[0]?.[0] ?? -1);
}

/** Lengths whose last bits lie in one word. */
const LENGTHS: readonly (readonly [Family, number])[] = [
  ...([3, 8, 21, 24, 31, 32, 33] as const).map((length) => [4, length] as const),
  ...([3, 16, 31, 32, 48, 64, 80, 96, 127, 128, 129] as const).map((length) => [6, length] as const),
];
const LONGER = LENGTHS.filter(([, length]) => length >= 16);

const FACTOR = 0x9e37_79b1;

function round(hash: number, word: number): number {
  const h = Math.imul(hash ^ word, FACTOR);
  return h ^ (h >>> 15);
}

/**
 * Returns addresses that differ in this word, and in the last one such that all have the same hash with seed
 * 0.
 */
function colliding(differing: number, count: number): readonly Key[] {
  const keys: Key[] = [];
  for (let nth = 1; keys.length < count; nth++) {
    const words = [1, 2, 3];
    words[differing] = nth;
    const hash = words.reduce(round, round(0, 128));
    if (hash >>> 29 === 0) keys.push(key(6, 129, ...words, (hash ^ 12_345) << 3));
  }
  return keys;
}

describe('a hash', () => {
  it.each([0, 1, 2])('tells keys from each other that have one tag, and differ in word %i', (differing) => {
    const keys = colliding(differing, 9);
    const [absent, ...present] = keys;
    const hash = hashOf(present, 0);
    expect(present.map((one) => hash.find(one))).toEqual([0, 1, 2, 3, 4, 5, 6, 7]);
    expect(absent && hash.find(absent)).toBe(-1);
    const reads = bucketsRead(hash, keys).map((buckets) => buckets.length);
    expect(reads).toEqual([9, 1, 2, 3, 4, 5, 6, 7, 8]); // same tag, same home bucket
  });
});

describe('the size of a hash', () => {
  const address = (nth: number): Key => key(4, 33, Math.imul(nth, 0x9e37_79b1));

  it('stays the same while some keys are deleted and added again and again', () => {
    const small = hashOf(Array.from({ length: 600 }, (_, nth) => address(nth)));
    const { bytes } = small.hash;
    for (let nth = 0; nth < 10_000; nth++) {
      small.insert(address(600 + (nth % 10)));
      small.remove(address(600 + (nth % 10)));
    }
    expect(small.hash.bytes).toBe(bytes);
  });

  it('is that of the existing keys, however many existed before', () => {
    const small = hashOf(Array.from({ length: 100 }, (_, nth) => address(nth)));
    const { hash } = small;
    const { bytes } = hash;
    for (let nth = 100; nth < 10_000; nth++) {
      small.insert(address(nth));
      small.remove(address(nth - 100));
    }
    expect([hash.size, hash.slotLimit, hash.bytes]).toEqual([100, 101, bytes]);
  });
});

describe('the place of a key', () => {
  it.each(LENGTHS)(
    'of IPv%i prefixes of length %i those that differ in their last three bits share a line, each in a bucket of its own',
    (family, length) => {
      const int32 = fc.integer({ min: -(2 ** 31), max: 2 ** 31 - 1 });
      fc.assert(
        fc.property(fc.tuple(int32, int32, int32, int32), int32, (words, seed) => {
          const base = family === 4 ? words.slice(0, 1) : words;
          const keys = Array.from({ length: 8 }, (_, nth) => neighbour(family, length, base, nth));
          const read = bucketsRead(hashOf(keys, seed), keys);
          expect(read.map((buckets) => buckets.length)).toEqual(Array(8).fill(1));
          expect(new Set(read.flat().map(lineOf)).size).toBe(1);
        }),
        { numRuns: 20 },
      );
    },
  );

  it.each<[Family, number]>([
    [4, 32],
    [6, 128],
  ])('an address is in the line of its full-length CIDR: IPv%i', (family, bits) => {
    for (let host = 0; host < 100; host++) {
      const [cidr, address] = [bits, bits + 1].map((length) => key(family, length, host, host, host, host));
      expect(address && lineAlone(address, 1)).toBe(cidr && lineAlone(cidr, 1));
    }
  });

  const ending = [0, 1, 2, 3];
  const differing = ending.flatMap((end) => ending.filter((at) => at <= end).map((at) => [end, at] as const));

  it.each(differing)(
    'IPv6 prefixes that end in word %i are spread where they differ in word %i',
    (end, at) => {
      for (const step of [8, 2 ** 16, 2 ** 24]) {
        const keys = Array.from({ length: 200 }, (_, nth) => {
          const words = [1, 2, 3, 4];
          words[at] = Math.imul(nth, step);
          return key(6, 32 * (end + 1), ...words);
        });
        const reads = bucketsRead(hashOf(keys), keys).map((buckets) => buckets.length);
        expect(Math.max(...reads)).toBeLessThan(64);
        expect(reads.reduce((sum, count) => sum + count, 0)).toBeLessThan(10 * keys.length);
      }
    },
  );

  it.each(LONGER)(
    'line prefixes of IPv%i keys of length %i that follow each other lie evenly (regression: CIDRs of one IPv4 address had one bucket)',
    (family, length) => {
      const count = new Array<number>(LINES).fill(0);
      const base = family === 4 ? [0x0a00_0000] : [1, 2, 3, 4];
      const keys = Array.from({ length: LINES }, (_, nth) => neighbour(family, length, base, 8 * nth));
      for (const one of keys) {
        const line = lineAlone(one, 1);
        count[line] = (count[line] ?? 0) + 1;
      }
      expect(Math.max(...count)).toBeLessThanOrEqual(family === 4 ? 2 : 3);
    },
  );

  it.each(LONGER)(
    'keys of IPv%i and length %i that lie in one line lie elsewhere with another seed',
    (family, length) => {
      const base = family === 4 ? [0x0a00_0000] : [1, 2, 3, 4];
      const all = Array.from({ length: 1_000 }, (_, nth) => neighbour(family, length, base, 8 * nth));
      const chosen = all.filter((one) => lineAlone(one, 0) === 5);
      const elsewhere = new Set(chosen.map((one) => lineAlone(one, 0x1234_5678)));
      expect(elsewhere.size).toBeGreaterThan(2);
    },
  );
});
