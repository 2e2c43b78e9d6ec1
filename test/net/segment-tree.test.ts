import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type AddressWords, maskWords } from '../../src/net/address-words.ts';
import { comparePrefixes, containsWords } from '../../src/net/prefix.ts';
import { SegmentTree } from '../../src/net/segment-tree.ts';

function address(family: 4 | 6, ...words: number[]): AddressWords {
  const [w0 = 0, w1 = 0, w2 = 0, w3 = 0] = words.map((word) => word | 0);
  return { family, w0, w1, w2, w3 };
}

function columnOf(addresses: readonly AddressWords[]): Int32Array {
  return Int32Array.from(addresses.flatMap(({ w0, w1, w2, w3 }) => [w0, w1, w2, w3]));
}

function compare(a: AddressWords, b: AddressWords): number {
  return comparePrefixes({ ...a, length: 0 }, { ...b, length: 0 });
}

function partsOf(tree: SegmentTree, addresses: readonly AddressWords[], segment: number): number {
  return addresses.filter((each) => tree.at(each) === segment).length;
}

// Few distinct bytes, so that addresses share their first octets, and part at every level.
const byte = fc.constantFrom(0, 1, 127, 128, 255);
const word = fc.tuple(byte, byte, byte, byte).map(([a, b, c, d]) => (a << 24) | (b << 16) | (c << 8) | d);
const ipv4 = word.map((w0) => address(4, w0));
const ipv6 = fc
  .tuple(fc.constantFrom(0xfd00_0000, 0), word, fc.constant(0), word)
  .map((w) => address(6, ...w));

describe('the tree of segments', () => {
  it('has no segment for an address until there is one, then the first for all', () => {
    const tree = new SegmentTree(4);
    expect([tree.at(address(4, 0)), [...tree.within(address(4, 0), 0)]]).toEqual([-1, []]);
    tree.begin(0);
    expect([address(4, 0), address(4, 0x0a00_0001), address(4, -1)].map((each) => tree.at(each))).toEqual([
      0, 0, 0,
    ]);
    expect([...tree.within(address(4, 0), 0)]).toEqual([0]);
  });

  it('parts keys in halves, between octets where it can', () => {
    const tree = new SegmentTree(4);
    tree.begin(7);
    const blocks = [1, 2, 3, 4].flatMap((block) =>
      [1, 2, 3].map((host) => (10 << 24) | (block << 16) | host),
    );
    const addresses = blocks.map((w0) => address(4, w0));
    tree.split(7, 8, columnOf(addresses), addresses.length);
    expect([partsOf(tree, addresses, 7), partsOf(tree, addresses, 8)]).toEqual([6, 6]);
    // What lies between belongs to the neighbours.
    expect(tree.at(address(4, (10 << 24) | (2 << 16) | 0xffff))).toBe(7);
    expect(tree.at(address(4, (10 << 24) | (3 << 16)))).toBe(8);
    expect([tree.at(address(4, 0)), tree.at(address(4, -1))]).toEqual([7, 8]);
    expect(tree.bytes).toBe(2 * 1024);
  });

  it('goes down to the last octet where all keys share the others', () => {
    const tree = new SegmentTree(6);
    tree.begin(0);
    const addresses = [1, 2, 3, 4, 5, 6, 7, 8].map((host) => address(6, 0xfd00_0000, 0, 0, host));
    tree.split(0, 1, columnOf(addresses), addresses.length);
    expect(addresses.map((each) => tree.at(each))).toEqual([0, 0, 0, 0, 1, 1, 1, 1]);
    expect([tree.at(address(6, 0xfc00_0000)), tree.at(address(6, 0xfd00_0000, 0, 1))]).toEqual([0, 1]);
    expect(tree.bytes).toBe(16 * 1024);
  });

  it('takes a poor part where one address has nearly all keys', () => {
    const tree = new SegmentTree(4);
    tree.begin(0);
    const addresses = [5, 9, 9, 9, 9, 9, 9, 9, 9].map((w0) => address(4, w0));
    tree.split(0, 1, columnOf(addresses), addresses.length);
    expect([tree.at(address(4, 5)), tree.at(address(4, 9))]).toEqual([0, 1]);
  });

  it('refuses to part the keys of one address', () => {
    const tree = new SegmentTree(4);
    tree.begin(0);
    expect(() => tree.split(0, 1, columnOf([address(4, 1), address(4, 1)]), 2)).toThrow(/several addresses/);
  });

  it('shows nothing of what is split in a fork, or in what was forked', () => {
    const tree = new SegmentTree(4);
    tree.begin(0);
    const addresses = [1, 2].map((w0) => address(4, w0));
    const fork = tree.fork();
    tree.split(0, 1, columnOf(addresses), 2);
    fork.split(0, 2, columnOf(addresses), 2);
    expect([tree.at(address(4, 2)), fork.at(address(4, 2))]).toEqual([1, 2]);
    expect([tree.at(address(4, 1)), fork.at(address(4, 1))]).toEqual([0, 0]);
  });

  it('gives every segment one run of addresses, with keys in it, and finds those of a prefix', () => {
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
          const tree = new SegmentTree(family);
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
              // Behind the last key there may be the beginning of one segment more.
              expect(found.slice(0, wanted.size)).toEqual([...wanted]);
              expect(found.length - wanted.size).toBeLessThanOrEqual(1);
            }
          }
        },
      ),
    );
  });
});
