import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { mix } from '../../src/columns/mix.ts';
import { type FamilyStems, newStems } from '../../src/lpm/stem-index.ts';
import { type AddressWords, type Family, maskWords } from '../../src/net/address-words.ts';
import { containsWords } from '../../src/net/prefix.ts';
import { leastCpuTime } from '../base/support/cpu-time.ts';
import { fewerRuns } from '../base/support/fewer-runs.ts';

interface Prefix {
  readonly words: AddressWords;
  readonly length: number;
}

function ipv6(w0: number, w1 = 0, w2 = 0, w3 = 0): AddressWords {
  return { family: 6, w0: w0 | 0, w1: w1 | 0, w2: w2 | 0, w3: w3 | 0 };
}

function ipv4(w0: number): AddressWords {
  return { ...ipv6(w0), family: 4 };
}

// Few words, which differ in their first or last bits.
const word = fc.constantFrom(0, 1, 0x100, 0x8000, 0x1_0000, 0x100_0000, -0x8000_0000, -1);
const addresses: Readonly<Record<Family, fc.Arbitrary<AddressWords>>> = {
  4: word.map(ipv4),
  6: fc.tuple(word, word, word, word).map((words) => ipv6(...words)),
};

function prefixes(address: fc.Arbitrary<AddressWords>): fc.Arbitrary<Prefix> {
  const lengths = fc.oneof(
    fc.nat(127),
    fc.constantFrom(0, 15, 16, 17, 24, 25, 31, 32, 33, 48, 49, 64, 65, 96, 97, 112, 113),
  );
  return fc.tuple(address, lengths).map(([at, any]) => {
    const length = at.family === 4 ? any % 32 : any;
    return { words: masked(at, length), length };
  });
}

/** Returns the length of the longest of these prefixes that contains an address, or -1. */
function longestOf(prefixes: readonly Prefix[], at: AddressWords): number {
  return Math.max(
    -1,
    ...prefixes.filter(({ words, length }) => containsWords(words, length, at)).map(({ length }) => length),
  );
}

/** Returns the lengths that an index names for an address one after the other, for a table. */
function named(index: FamilyStems, at: AddressWords): readonly number[] {
  const lengths: number[] = [];
  for (let below = at.family === 4 ? 32 : 128; below > 0; below = lengths.at(-1) ?? 0) {
    const length = index.longest(at, below);
    if (length < 0) break;
    lengths.push(length);
    if (at.family === 4) break; // which names none unnecessarily
  }
  return lengths;
}

/** IPv6 stems may collide: a length may be named unnecessarily before the right one, but none is skipped. */
function expectNamed(index: FamilyStems, held: readonly Prefix[], at: AddressWords): void {
  const longest = longestOf(held, at);
  const lengths = named(index, at);
  if (at.family === 4) expect(lengths).toEqual(longest < 0 ? [] : [longest]);
  else if (longest >= 0) expect(lengths).toContain(longest);
  expect(lengths).toEqual([...new Set(lengths)].sort((a, b) => b - a));
}

function masked(at: AddressWords, length: number): AddressWords {
  const words = { ...at };
  maskWords(words, length);
  return words;
}

/** Two addresses whose first 64 bits have the same hash with seed 0. */
const first = ipv6(0xfd00_0000, 5);
const second = ipv6(0xfd00_0001, first.w1 ^ mix(64, first.w0) ^ mix(64, 0xfd00_0001 | 0));

describe('the index of stems', () => {
  it.each([4, 6] as const)(
    'returns the longest prefix around each address, after any changes: IPv%i',
    (family) => {
      const address = addresses[family];
      const step = fc.record({
        ...{ prefix: prefixes(address), address },
        ...{ again: fc.option(fc.nat()), fork: fc.nat(9) },
      });
      fc.assert(
        fc.property(fc.array(step, { maxLength: 60, size: 'max' }), fc.integer(), (steps, seed) => {
          const all: { readonly index: FamilyStems; readonly held: Prefix[] }[] = [
            { index: newStems(family, seed), held: [] },
          ];
          for (const each of steps) {
            const { index, held } = all.at(each.fork % all.length) ?? expect.fail();
            if (each.again !== null) {
              for (const { words, length } of held.splice(each.again % Math.max(held.length, 1), 1))
                index.adjust(words, length, -1);
            } else if (!held.some((one) => JSON.stringify(one) === JSON.stringify(each.prefix))) {
              index.adjust(each.prefix.words, each.prefix.length, 1);
              held.push(each.prefix);
            }
            if (each.fork === 0) all.push({ index: index.fork(), held: [...held] });
            for (const at of [each.address, each.prefix.words]) {
              for (const one of all) expectNamed(one.index, one.held, at);
            }
          }
        }),
        fewerRuns(75),
      );
    },
  );

  it('returns each of several prefixes around an address, longest first, if the caller continues', () => {
    const index = newStems(6, 3);
    const at = ipv6(0x2a00_1234, 0x5678_9abc, 0x1111_1111, -1);
    const lengths = [0, 1, 7, 8, 9, 16, 31, 32, 33, 40, 47, 48, 49, 56, 63, 64, 65, 96, 97, 120, 121, 127];
    for (const length of lengths) index.adjust(masked(at, length), length, 1);
    expect(named(index, at)).toEqual(lengths.toReversed());
    for (const length of lengths) index.adjust(masked(at, length), length, -1);
    expect(named(index, at)).toEqual([]);
  });

  it('returns prefixes longer than /24 if all neighbours have some, and if one of them has lost its own', () => {
    const index = newStems(4, 0);
    const neighbours = Array.from({ length: 8 }, (_, i) => ipv4(0x0a00_0800 | (i << 8)));
    for (const words of neighbours) index.adjust(words, 25, 1);
    expect(neighbours.map((at) => named(index, at))).toEqual(neighbours.map(() => [25]));
    index.adjust(ipv4(0x0a00_0800), 25, -1);
    expect(neighbours.map((at) => named(index, at).length)).toEqual([0, 1, 1, 1, 1, 1, 1, 1]);
  });

  it('returns nothing for deleted prefixes, and reuses their room', () => {
    for (const family of [4, 6] as const) {
      const index = newStems(family, 0);
      const adjust = (i: number, by: 1 | -1): void => {
        const words = family === 4 ? ipv4(0x0a00_0000 | (i << 8)) : ipv6(0xfd00_0000, i << 8);
        const stem = family === 4 ? 24 : 56;
        for (const length of [stem - 1, stem + 1, stem + 2]) index.adjust(masked(words, length), length, by);
        expect(named(index, words).length > 0).toBe(by > 0);
      };
      adjust(0, 1);
      adjust(0, -1);
      const before = index.bytes;
      for (let i = 0; i < 20_000; i++) {
        adjust(i, 1);
        adjust(i, -1);
      }
      expect(index.bytes).toBe(before);
    }
  });

  it('returns a wrong prefix if two IPv6 stems have the same hash, and misses none', () => {
    const index = newStems(6, 0);
    const held = [
      { words: first, length: 65 },
      { words: { ...second, w2: 1 << 30 }, length: 66 },
    ];
    for (const { words, length } of held) index.adjust(words, length, 1);
    for (const { words } of held) expectNamed(index, held, words);
    expect(named(index, second)).toEqual([65]);
  });

  it('keeps the prefixes of one of two IPv6 stems with the same hash if the other loses the same', () => {
    const index = newStems(6, 0);
    for (const words of [first, second]) index.adjust(words, 65, 1);
    expect(named(index, second)).toEqual([65]);
    const fork = index.fork();
    index.adjust(first, 65, -1);
    expect(named(index, second)).toEqual([65]);
    index.adjust(second, 65, -1);
    expect(named(index, second)).toEqual([]);
    fork.adjust(second, 65, -1);
    expect(named(fork, first)).toEqual([65]);
  });

  it('returns a wrong prefix of another level below 48 bits that have had more prefixes than a guide counts', () => {
    const index = newStems(6, 0);
    const at = ipv6(0xfd00_0000, 5);
    const inner = { ...at };
    for (let i = 0; i < 2 ** 21; i++) {
      inner.w3 = i << 1;
      index.adjust(inner, 127, 1);
    }
    const outside = { ...at, w2: 1 };
    expect(named(index, outside)).toEqual([]);
    index.adjust(at, 64, 1);
    expect(named(index, outside)).toEqual([64]);
    index.adjust(at, 127, -1);
    expect(named(index, outside)).toEqual([64]);
    expect(named(index, { ...at, w3: 2 })).toEqual([127, 64]);
  });

  it('distinguishes IPv6 prefixes by each of their bits, and by no further one', () => {
    for (let stem = 0; stem < 128; stem += 8) {
      const index = newStems(6, 0);
      const at = ipv6(0xfd00_0000, 0x1234, 0x5678, 0x9abc);
      index.adjust(masked(at, stem + 1), stem + 1, 1);
      const found = Array.from({ length: 128 }, (_, bit) => {
        const word = (['w0', 'w1', 'w2', 'w3'] as const)[bit >>> 5] ?? 'w0';
        return named(index, { ...at, [word]: at[word] ^ (1 << (31 - (bit & 31))) }).length > 0;
      });
      expect(found).toEqual(Array.from({ length: 128 }, (_, bit) => bit > stem));
    }
  });

  it('uses a seed, so that writers cannot choose stems with equal hashes', () => {
    const taken = [0, 7].map((seed) => {
      const index = newStems(6, seed);
      index.adjust(first, 65, 1);
      index.adjust({ ...second, w2: 1 << 30 }, 66, 1); // so that this level has a guide
      return named(index, second);
    });
    expect(taken).toEqual([[65], []]);
  });

  it('uses a seed, so that writers cannot make IPv4 prefixes longer than /24 slow', async () => {
    // The first 24 bits of these have the lowest of all hashes: without a seed they are in one run of
    // buckets.
    const crowd: AddressWords[] = [];
    for (let stem = 0; stem < 1 << 24; stem++) {
      if (Math.imul((stem << 8) >> 8, 0x9e37_79b1) >>> 0 < 8192 << 8) crowd.push(ipv4(stem << 8));
    }
    const cost = (seed: number, limit?: number): Promise<number> =>
      leastCpuTime(() => {
        const index = newStems(4, seed);
        for (const words of crowd) index.adjust(words, 25, 1);
      }, limit);
    const limit = (await cost(0)) / 4;
    expect(await cost(0x5bd1_e995, limit)).toBeLessThan(limit);
  });
});
