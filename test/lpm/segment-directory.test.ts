import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { readAddress, SegmentDirectory, writeAddress } from '../../src/lpm/segment-directory.ts';
import { type AddressWords, maskWords } from '../../src/net/address-words.ts';
import { comparePrefixes, containsWords } from '../../src/net/prefix.ts';

function address(family: 4 | 6, ...words: number[]): AddressWords {
  const [w0 = 0, w1 = 0, w2 = 0, w3 = 0] = words.map((word) => word | 0);
  return { family, w0, w1, w2, w3 };
}

function columnOf(addresses: readonly AddressWords[]): Int32Array {
  return Int32Array.from(addresses.flatMap(({ w0, w1, w2, w3 }) => [w0, w1, w2, w3]));
}

function compare(a: AddressWords, b: AddressWords): number {
  return comparePrefixes({ ...a, length: 0, clusterID: 0 }, { ...b, length: 0, clusterID: 0 });
}

it('an address is read from a column as it was written', () => {
  const column = new Int32Array(12);
  writeAddress(column, 2, address(6, 1, 2, 3, 4));
  expect([...column]).toEqual([0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4]);
  const read = address(6);
  readAddress(column, 2, read);
  expect(read).toEqual(address(6, 1, 2, 3, 4));
});

function partsOf(tree: SegmentDirectory, addresses: readonly AddressWords[], segment: number): number {
  return addresses.filter((each) => tree.at(each) === segment).length;
}

/** An address as a number. */
function numberOf({ family, w0, w1, w2, w3 }: AddressWords): bigint {
  const words = family === 4 ? [w0] : [w0, w1, w2, w3];
  return words.reduce((number, word) => (number << 32n) | BigInt(word >>> 0), 0n);
}

function addressOf(family: 4 | 6, number: bigint): AddressWords {
  const word = (shift: bigint): number => Number((number >> shift) & 0xffff_ffffn);
  return family === 4 ? address(4, word(0n)) : address(6, word(96n), word(64n), word(32n), word(0n));
}

/**
 * Returns the best cut, with the fewest octets that separate at least a quarter of the keys: its number of
 * first octets, and the number of keys in the smaller part. Undefined if there is none.
 */
function bestCut(keys: readonly AddressWords[]): { octets: number; part: number } | undefined {
  const numbers = keys.map(numberOf);
  const size = keys[0]?.family === 4 ? 4 : 16;
  for (let octets = 1; octets <= size; octets++) {
    const step = 1n << BigInt(8 * (size - octets));
    const cuts = numbers.flatMap((number) => [number - (number % step), number - (number % step) + step]);
    const parts = cuts.map((cut) => {
      const lower = numbers.filter((number) => number < cut).length;
      return Math.min(lower, numbers.length - lower);
    });
    const part = Math.max(...parts);
    if (4 * part >= numbers.length) return { octets, part };
  }
  return undefined;
}

/** Returns the address of these octets; missing ones are 0. */
function ofOctets(family: 4 | 6, octets: readonly number[]): AddressWords {
  const word = (at: number): number =>
    [0, 1, 2, 3].reduce((bits, i) => (bits << 8) | (octets[4 * at + i] ?? 0), 0);
  return address(family, ...(family === 4 ? [word(0)] : [word(0), word(1), word(2), word(3)]));
}

// Few distinct bytes, so that addresses share their first octets and separate at every level.
const byte = fc.constantFrom(0, 1, 127, 128, 255);
const word = fc.tuple(byte, byte, byte, byte).map(([a, b, c, d]) => (a << 24) | (b << 16) | (c << 8) | d);
const ipv4 = word.map((w0) => address(4, w0));
const ipv6 = fc
  .tuple(fc.constantFrom(0xfd00_0000, 0), word, fc.constant(0), word)
  .map((w) => address(6, ...w));

describe('the tree of segments', () => {
  it('has no segment for an address until there is one, then the first for all', () => {
    const tree = new SegmentDirectory(4);
    expect([tree.at(address(4, 0)), [...tree.within(address(4, 0), 0)]]).toEqual([-1, []]);
    tree.begin(0);
    expect([address(4, 0), address(4, 0x0a00_0001), address(4, -1)].map((each) => tree.at(each))).toEqual([
      0, 0, 0,
    ]);
    expect([...tree.within(address(4, 0), 0)]).toEqual([0]);
    expect([...new SegmentDirectory(4).within(address(4, 0), 16)]).toEqual([]);
  });

  it('parts keys in halves, between octets where it can', () => {
    const tree = new SegmentDirectory(4);
    tree.begin(7);
    const blocks = [1, 2, 3, 4].flatMap((block) =>
      [1, 2, 3].map((host) => (10 << 24) | (block << 16) | host),
    );
    const addresses = blocks.map((w0) => address(4, w0));
    tree.split(7, 8, columnOf(addresses), addresses.length);
    expect([partsOf(tree, addresses, 7), partsOf(tree, addresses, 8)]).toEqual([6, 6]);
    // The space between them belongs to the neighbours.
    expect(tree.at(address(4, (10 << 24) | (2 << 16) | 0xffff))).toBe(7);
    expect(tree.at(address(4, (10 << 24) | (3 << 16)))).toBe(8);
    expect([tree.at(address(4, 0)), tree.at(address(4, -1))]).toEqual([7, 8]);
    expect(tree.bytes).toBe(2 * 1024);
  });

  it('goes down to the last octet where all keys share the others', () => {
    const tree = new SegmentDirectory(6);
    tree.begin(0);
    const addresses = [1, 2, 3, 4, 5, 6, 7, 8].map((host) => address(6, 0xfd00_0000, 0, 0, host));
    tree.split(0, 1, columnOf(addresses), addresses.length);
    expect(addresses.map((each) => tree.at(each))).toEqual([0, 0, 0, 0, 1, 1, 1, 1]);
    expect([tree.at(address(6, 0xfc00_0000)), tree.at(address(6, 0xfd00_0000, 0, 1))]).toEqual([0, 1]);
    expect(tree.bytes).toBe(16 * 1024);
  });

  it('takes a poor part where one address has nearly all keys', () => {
    const tree = new SegmentDirectory(4);
    tree.begin(0);
    const addresses = [5, 9, 9, 9, 9, 9, 9, 9, 9].map((w0) => address(4, w0));
    tree.split(0, 1, columnOf(addresses), addresses.length);
    expect([tree.at(address(4, 5)), tree.at(address(4, 9))]).toEqual([0, 1]);
  });

  describe.each([
    ...[0, 1, 2, 3].map((level) => [4, level] as const),
    ...Array.from({ length: 16 }, (_, level) => [6, level] as const),
  ])('of IPv%d addresses that differ in octet %d alone', (family, level) => {
    const octets = Array.from({ length: family === 4 ? 4 : 16 }, (_, i) => i + 1);
    const having = (octet: number, rest?: number): AddressWords =>
      ofOctets(
        family,
        octets.map((other, i) => (i < level ? other : i === level ? octet : (rest ?? other))),
      );
    const keys = [20, 21, 22, 23, 24, 25, 26, 27].map((octet) => having(octet));
    const tree = new SegmentDirectory(family);
    tree.begin(0);
    tree.split(0, 1, columnOf(keys), keys.length);

    it('gives each half a segment', () => {
      expect(keys.map((key) => tree.at(key))).toEqual([0, 0, 0, 0, 1, 1, 1, 1]);
      expect([having(23, 255), having(24, 0)].map((key) => tree.at(key))).toEqual([0, 1]);
      expect(tree.bytes).toBe(1024 * 2 ** Math.ceil(Math.log2(level + 1)));
    });

    it('finds both below what all have in common, and one below an octet more', () => {
      expect([...tree.within(having(0), 8 * level)]).toEqual([0, 1]);
      expect([...tree.within(ofOctets(family, []), 0)]).toEqual([0, 1]);
      expect([...tree.within(having(16), 8 * level + 4)]).toEqual([0, 1]);
      expect([...tree.within(having(20), 8 * level + 6)]).toEqual([0]);
      expect([20, 24].map((octet) => [...tree.within(having(octet), 8 * level + 8)])).toEqual([[0], [1]]);
    });

    it('takes no other address for one of them, whose octets are elsewhere', () => {
      const all = octets.with(level, 24);
      const swapped = all.flatMap((a, i) => all.map((b, j) => all.with(i, b).with(j, a)));
      const oddOnes = all.map((octet, i) => (i % 2 === 0 ? octet : (all[i ^ 2] ?? octet)));
      // The last octets as if all were written to the first word, without any, and without most.
      const inFirst = all.map((_, i) => (family === 6 && i < 4 ? ([13, 14, 15, 12][i] ?? 0) : 0));
      const lastOnly = all.map((_, i) => (i === all.length - 1 ? 255 : 0));
      const someOnly = all.map((octet, i) => (i === level ? 255 : i % 4 === 3 || i === 14 ? octet : 0));
      const others = [...swapped, oddOnes, inFirst, lastOnly, someOnly].map((each) => ofOctets(family, each));
      const cut = numberOf(having(24, 0));
      expect(others.map((other) => tree.at(other))).toEqual(
        others.map((other) => (numberOf(other) < cut ? 0 : 1)),
      );
    });
  });

  it.each<readonly [4 | 6, readonly number[], readonly (readonly number[])[]]>([
    [4, [10, 0, 0], [[200], [1]]],
    [4, [0, 0, 0], [[200], [100]]],
    [6, [10, 0, 0, 0, 7, 0, 0, 0, 9, 0, 0, 0, 5, 0, 0], [[200], [1]]],
  ])(
    'of IPv%d splits at the level of most keys, past few others, in any order',
    (family, network, others) => {
      const hosts = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10].map((host) => [...network, host]);
      const [one = [], other = []] = others;
      const mixed = [one, ...hosts.slice(5), other, ...hosts.slice(0, 5)];
      const keys = mixed.map((octets) => ofOctets(family, octets));
      const tree = new SegmentDirectory(family);
      tree.begin(0);
      tree.split(0, 1, columnOf(keys), keys.length);
      expect([partsOf(tree, keys, 0), partsOf(tree, keys, 1)]).toEqual([6, 6]);
      const below = keys.toSorted(compare).slice(0, 6);
      expect(below.map((key) => tree.at(key))).toEqual([0, 0, 0, 0, 0, 0]);
    },
  );

  it('keeps its segments below the nodes through which a segment is split again', () => {
    const tree = new SegmentDirectory(6);
    tree.begin(0);
    const hostsOf = (network: number, hosts: readonly number[]): AddressWords[] =>
      hosts.map((host) => ofOctets(6, [network, ...new Array(14).fill(0), host]));
    const split = (segment: number, into: number, keys: readonly AddressWords[]): void =>
      tree.split(segment, into, columnOf(keys), keys.length);
    split(0, 1, hostsOf(10, [1, 2, 3, 4, 5, 6, 7, 8]));
    split(1, 2, hostsOf(10, [5, 6, 7, 8]));
    split(2, 3, hostsOf(20, [1, 2, 3, 4]));
    const places = [...hostsOf(10, [1, 4, 5, 6, 7, 8]), ...hostsOf(20, [2, 3]), ...hostsOf(1, [9])];
    expect(places.map((place) => tree.at(place))).toEqual([0, 0, 1, 1, 2, 2, 2, 3, 0]);
  });

  it.each([
    [3, 1024],
    [2, 4 * 1024],
  ])('with %d keys of twelve in another network uses %d bytes', (few, bytes) => {
    const keys = Array.from({ length: 12 }, (_, i) => ofOctets(4, [i < few ? 1 : 10, 0, 0, i]));
    const tree = new SegmentDirectory(4);
    tree.begin(0);
    tree.split(0, 1, columnOf(keys), keys.length);
    expect(tree.bytes).toBe(bytes);
  });

  it('separates keys far from the first key, whichever word differs first', () => {
    const keys = [[0xfd], [0, 0, 0, 0, 1], [0, 0, 0, 0, 2]].map((octets) => ofOctets(6, octets));
    const tree = new SegmentDirectory(6);
    tree.begin(0);
    tree.split(0, 1, columnOf(keys), keys.length);
    expect(keys.map((key) => tree.at(key))).toEqual([1, 0, 0]);
  });

  it('moves all remaining keys of the segment to the upper part, also below existing nodes', () => {
    const tree = new SegmentDirectory(4);
    tree.begin(0);
    const hosts = [1, 2, 3, 4, 5, 6, 7, 8].map((host) => ofOctets(4, [10, 0, 0, host]));
    tree.split(0, 1, columnOf(hosts), hosts.length);
    const rest = [[1], [2], [10, 0, 0, 1], [10, 0, 0, 4]].map((octets) => ofOctets(4, octets));
    tree.split(0, 2, columnOf(rest), rest.length);
    const places = [[2, 255], [3], [9, 9], [10], [10, 0, 0, 4], [10, 0, 0, 5], [10, 0, 1], [11]];
    expect(places.map((octets) => tree.at(ofOctets(4, octets)))).toEqual([0, 2, 2, 2, 2, 1, 1, 1]);
  });

  it.each([4, 6] as const)(
    'of IPv%d is not changed by what its fork does to a node that both have',
    (family) => {
      const tree = new SegmentDirectory(family);
      tree.begin(0);
      const [below, above] = [ofOctets(family, [1]), ofOctets(family, [2])];
      const fork = tree.fork();
      fork.split(0, 1, columnOf([below, above]), 2);
      expect([tree.at(above), fork.at(above), fork.at(below)]).toEqual([0, 1, 0]);
      const hosts = [1, 2, 3, 4].map((host) =>
        ofOctets(family, family === 4 ? [9, 0, 0, host] : [...new Array(15).fill(9), host]),
      );
      fork.split(1, 2, columnOf(hosts), 4);
      expect(hosts.map((host) => fork.at(host))).toEqual([1, 1, 2, 2]);
      const again = fork.fork();
      fork.split(0, 3, columnOf([ofOctets(family, [0]), below]), 2);
      expect([fork.at(below), again.at(below), tree.at(below)]).toEqual([3, 0, 0]);
    },
  );

  it('splits a fork like the original', () => {
    const tree = new SegmentDirectory(4);
    tree.begin(0);
    const fork = tree.fork();
    const keys = [5, 9, 9, 9, 9, 9, 9, 9, 9].map((w0) => address(4, w0));
    fork.split(0, 1, columnOf(keys), keys.length);
    expect([fork.at(address(4, 5)), fork.at(address(4, 9)), tree.at(address(4, 9))]).toEqual([0, 1, 0]);
  });

  it('refuses to split the keys of one address', () => {
    const tree = new SegmentDirectory(4);
    tree.begin(0);
    expect(() => tree.split(0, 1, columnOf([address(4, 1), address(4, 1)]), 2)).toThrow(/several addresses/);
  });

  it('shows no split in a fork or in its original', () => {
    const tree = new SegmentDirectory(4);
    tree.begin(0);
    const addresses = [1, 2].map((w0) => address(4, w0));
    const fork = tree.fork();
    tree.split(0, 1, columnOf(addresses), 2);
    fork.split(0, 2, columnOf(addresses), 2);
    expect([tree.at(address(4, 2)), fork.at(address(4, 2))]).toEqual([1, 2]);
    expect([tree.at(address(4, 1)), fork.at(address(4, 1))]).toEqual([0, 0]);
  });

  it('gives every segment one range of addresses, with keys in it, and finds those of a prefix', () => {
    const lengths = fc.integer({ min: 0, max: 128 });
    fc.assert(
      fc.property(
        fc.oneof(
          fc.array(ipv4, { minLength: 2, maxLength: 16 }),
          fc.array(ipv6, { minLength: 2, maxLength: 16 }),
        ),
        lengths,
        (keys, anyLength) => {
          const family = keys[0]?.family ?? 4;
          const tree = new SegmentDirectory(family);
          tree.begin(0);
          const sorted = keys.toSorted(compare);
          const distinct = new Set(sorted.map((each) => JSON.stringify(each))).size;
          for (let next = 1; next < distinct; next++) {
            const segments = [...new Set(sorted.map((each) => tree.at(each)))];
            const several = segments
              .map((segment) => ({ segment, of: sorted.filter((each) => tree.at(each) === segment) }))
              .find(({ of }) => compare(of[0] ?? expect.fail(), of.at(-1) ?? expect.fail()) !== 0);
            if (several === undefined) expect.fail('a segment has several addresses');
            tree.split(several.segment, next, columnOf(several.of), several.of.length);
            const [old, made] = [several.segment, next].map((each) => partsOf(tree, several.of, each));
            expect(old).toBeGreaterThan(0);
            expect(made).toBeGreaterThan(0);
            expect((old ?? 0) + (made ?? 0)).toBe(several.of.length);
            const runs = sorted.map((each) => tree.at(each)).filter((each, i, all) => each !== all[i - 1]);
            expect(runs.length).toBe(new Set(runs).size);
            for (const key of sorted.slice(0, 3)) {
              const length = family === 4 ? anyLength >> 2 : anyLength;
              const first = { ...key };
              maskWords(first, length);
              const inside = sorted.filter((each) => containsWords(first, length, each));
              const wanted = new Set([first, ...inside].map((each) => tree.at(each)));
              const found = [...tree.within(first, length)];
              // Behind the last key another segment may begin.
              expect(found.slice(0, wanted.size)).toEqual([...wanted]);
              expect(found.length - wanted.size).toBeLessThanOrEqual(1);
            }
          }
        },
      ),
    );
  });

  it('splits the keys of a segment as well as any split by as few octets', () => {
    const sets = fc.oneof(
      fc.array(ipv4, { minLength: 2, maxLength: 16 }),
      fc.array(ipv6, { minLength: 2, maxLength: 16 }),
    );
    fc.assert(
      fc.property(sets, (keys) => {
        const best = bestCut(keys);
        fc.pre(best !== undefined);
        const family = keys[0]?.family ?? 4;
        const tree = new SegmentDirectory(family);
        tree.begin(3);
        tree.split(3, 5, columnOf(keys), keys.length);
        const lower = keys.filter((each) => tree.at(each) === 3).toSorted(compare);
        expect(Math.min(lower.length, keys.length - lower.length)).toBe(best.part);
        // Behind the octet of the last key below.
        const step = 1n << BigInt((family === 4 ? 32 : 128) - 8 * best.octets);
        const last = numberOf(lower.at(-1) ?? expect.fail());
        const cut = last - (last % step) + step;
        expect([cut - 1n, cut].map((number) => tree.at(addressOf(family, number)))).toEqual([3, 5]);
      }),
    );
  });
});
