import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type AddressWords, maskWords } from '../../src/net/address-words.ts';
import { mix } from '../../src/net/key-hash.ts';
import { containsWords } from '../../src/net/prefix.ts';
import { StemIndex } from '../../src/net/stem-index.ts';

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

// Few words, that differ in their first bits or in their last ones.
const word = fc.constantFrom(0, 1, 0x100, 0x8000, 0x1_0000, 0x100_0000, -0x8000_0000, -1);
const address = fc.oneof(
  word.map(ipv4),
  fc.tuple(word, word, word, word).map((words) => ipv6(...words)),
);
const prefix: fc.Arbitrary<Prefix> = fc
  .tuple(
    address,
    fc.oneof(
      fc.nat(127),
      fc.constantFrom(0, 15, 16, 17, 24, 25, 31, 32, 33, 48, 49, 64, 65, 96, 97, 112, 113),
    ),
  )
  .map(([at, any]) => {
    const length = at.family === 4 ? any % 32 : any;
    const words = { ...at };
    maskWords(words, length);
    return { words, length };
  });

/** What an index has to say of an address, from a list of all prefixes. */
function wanted(prefixes: readonly Prefix[], at: AddressWords): readonly [readonly number[], number] {
  const tier = at.family === 4 ? 8 : 16;
  const same = prefixes.filter(({ words }) => words.family === at.family);
  const stems = Array.from({ length: (at.family === 4 ? 32 : 128) / tier }, (_, i) => i * tier);
  const lengths = stems
    .filter((stem) => stem >= 16)
    .map((stem) => {
      const below = same.filter(({ words, length }) => {
        return length > stem && length <= stem + tier && containsWords(words, stem, at);
      });
      return below.reduce((bits, { length }) => bits | (1 << (length - stem - 1)), 0);
    });
  const short = same.filter(({ words, length }) => length <= 16 && containsWords(words, length, at));
  return [lengths, Math.max(-1, ...short.map(({ length }) => length))];
}

function said(index: StemIndex, at: AddressWords): readonly [readonly number[], number] {
  const stems = index.of(at.family);
  const tier = at.family === 4 ? 8 : 16;
  const lengths: number[] = [];
  for (let stem = 16; stem < (at.family === 4 ? 32 : 128); stem += tier)
    lengths.push(stems?.lengthsUnder(at, stem) ?? 0);
  return [lengths, stems?.longestShort(at) ?? -1];
}

/** IPv6 stems may be taken for each other: more lengths may be said than there are, none less. */
function expectSaid(index: StemIndex, held: readonly Prefix[], at: AddressWords): void {
  const [lengths, short] = said(index, at);
  const [there, longestShort] = wanted(held, at);
  expect(short).toBe(longestShort);
  if (at.family === 4) expect(lengths).toEqual(there);
  else expect(lengths.map((bits, tier) => bits & (there[tier] ?? 0))).toEqual(there);
}

describe('the index of stems', () => {
  it('may say more lengths below an IPv6 stem whose number another one has, and none less', () => {
    const [held, other] = [ipv6(0, -0x8000_0000), ipv6(-0x8000_0000, 0x1_0000)];
    const index = new StemIndex(0);
    index.adjust(held, 64, 1);
    expectSaid(index, [{ words: held, length: 64 }], held);
    expectSaid(index, [{ words: held, length: 64 }], other);
  });

  it('knows the lengths in use below each stem of an address, and its longest short prefix', () => {
    const step = fc.record({ prefix, address, again: fc.option(fc.nat()), fork: fc.nat(9) });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60, size: 'max' }), fc.integer(), (steps, seed) => {
        const all: { readonly index: StemIndex; readonly held: Prefix[] }[] = [
          { index: new StemIndex(seed), held: [] },
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
            for (const one of all) expectSaid(one.index, one.held, at);
          }
        }
      }),
    );
  });

  it('tells IPv6 stems apart by each of their bits, and by no further one', () => {
    for (let stem = 16; stem < 128; stem += 16) {
      const index = new StemIndex(0);
      const first = ipv6(0xfd00_0000, 0x1234, 0x5678, 0x9abc);
      const prefix = { ...first };
      maskWords(prefix, stem + 1);
      index.adjust(prefix, stem + 1, 1);
      const found = Array.from({ length: 128 }, (_, bit) => {
        const word = (['w0', 'w1', 'w2', 'w3'] as const)[bit >>> 5] ?? 'w0';
        const other = { ...first, [word]: first[word] ^ (1 << (31 - (bit & 31))) };
        return index.of(6)?.lengthsUnder(other, stem) === 1;
      });
      expect(found).toEqual(Array.from({ length: 128 }, (_, bit) => bit >= stem));
    }
  });

  it('mixes a seed in, so that strangers cannot choose stems that it takes for each other', () => {
    const [first, second] = [ipv6(0xfd00_0000, 5), ipv6(0xfd00_0001)];
    second.w1 = first.w1 ^ mix(64, first.w0) ^ mix(64, second.w0);
    const lengths = [0, 7].map((seed) => {
      const index = new StemIndex(seed);
      index.adjust(first, 65, 1);
      return [first, second].map((at) => index.of(6)?.lengthsUnder(at, 64));
    });
    expect(lengths).toEqual([
      [1, 1],
      [1, 0],
    ]);
  });

  it('has 16 KiB for short prefixes, and room for stems that are there at the same time', () => {
    const index = new StemIndex(0);
    index.adjust(ipv4(0x0a00_0000), 24, 1);
    const before = index.bytes;
    index.adjust(ipv4(0x0a00_0000), 8, 1);
    expect(index.bytes).toBe(before + 16 * 1024);
    for (let i = 0; i < 20_000; i++) {
      index.adjust(ipv4(i << 12), 20, 1);
      index.adjust(ipv4(i << 12), 20, -1);
    }
    expect(index.bytes).toBeLessThan(2 * (before + 16 * 1024));
  });
});
