import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { PAGE_ROWS } from '../../src/base/int32-rows.ts';
import { HashPrefixTable } from '../../src/net/hash-prefix-table.ts';
import { KeyHash } from '../../src/net/key-hash.ts';
import { type PrefixRegister, parsePrefix, prefixRegister } from '../../src/net/prefix.ts';
import { MapPrefixTable } from './support/map-prefix-table.ts';

function key(text: string): PrefixRegister {
  const register = prefixRegister();
  expect(parsePrefix(text, register), text).toBe(true);
  return register;
}

// Few distinct bits, so that prefixes nest, share stems and collide with their neighbours.
const octet = fc.constantFrom(0, 1, 127, 128, 255);
const ipv4 = fc.tuple(fc.constantFrom(10, 11), octet, octet, octet).map((octets) => octets.join('.'));
const group = fc.constantFrom('0', '1', '8000', 'ffff');
const ipv6 = fc.array(group, { minLength: 7, maxLength: 7 }).map((groups) => `fd00:${groups.join(':')}`);
const address = fc.oneof(ipv4, ipv6);
const prefix = fc.oneof(
  address,
  fc.tuple(ipv4, fc.integer({ min: 0, max: 32 })).map(([ip, length]) => `${ip}/${length}`),
  fc.tuple(ipv6, fc.integer({ min: 0, max: 128 })).map(([ip, length]) => `${ip}/${length}`),
);

const step = fc.oneof(
  { weight: 6, arbitrary: fc.record({ op: fc.constant('insert' as const), text: prefix }) },
  { weight: 2, arbitrary: fc.record({ op: fc.constant('remove' as const), nth: fc.nat() }) },
  { weight: 3, arbitrary: fc.record({ op: fc.constant('match' as const), text: address }) },
  { weight: 1, arbitrary: fc.record({ op: fc.constant('covered' as const), text: prefix }) },
  { weight: 1, arbitrary: fc.record({ op: fc.constant('fork' as const), nth: fc.nat() }) },
);

// Segments so small that they split, and so few that keys are left over, within a short history.
const sizes = fc.record({ segmentBits: fc.constant(3), maxDepth: fc.integer({ min: 0, max: 4 }) });

interface World {
  readonly fast: HashPrefixTable;
  readonly naive: MapPrefixTable;
  readonly held: PrefixRegister[];
}

function textsOf(table: HashPrefixTable | MapPrefixTable, slots: Iterable<number>): string[] {
  const register = prefixRegister();
  return Array.from(slots, (slot) => {
    table.keyOf(slot, register);
    return JSON.stringify(register);
  }).sort();
}

describe('the hash prefix table does what the obvious table does', () => {
  it('for any history of insertions, removals and look-ups', () => {
    fc.assert(
      fc.property(
        fc.array(step, { maxLength: 80, size: 'max' }),
        fc.integer(),
        sizes,
        (steps, seed, small) => {
          // Several tables by and by, forked from each other: what is written to one must not show in another.
          const first = new HashPrefixTable(seed, new KeyHash(seed, small));
          const worlds: World[] = [{ fast: first, naive: new MapPrefixTable(), held: [] }];
          let at = 0;
          for (const each of steps) {
            const { fast, naive, held } = worlds[at] ?? expect.fail();
            if (each.op === 'insert') {
              const wanted = key(each.text);
              expect(fast.find(wanted)).toBe(naive.find(wanted));
              if (naive.find(wanted) >= 0) continue;
              expect(fast.insert(wanted)).toBe(naive.insert(wanted));
              held.push(wanted);
            } else if (each.op === 'remove') {
              const [gone] = held.splice(each.nth % Math.max(held.length, 1), 1);
              if (gone === undefined) continue;
              fast.remove(fast.find(gone), gone);
              naive.remove(naive.find(gone), gone);
              expect(fast.find(gone)).toBe(-1);
            } else if (each.op === 'match') {
              const [one, other] = [key(each.text), key(each.text)];
              const slot = naive.longestMatch(other);
              expect(fast.longestMatch(one)).toBe(slot);
              if (slot >= 0) expect(one).toEqual(other);
            } else if (each.op === 'fork') {
              worlds.push({ fast: fast.fork(), naive: naive.fork(), held: [...held] });
              at = each.nth % worlds.length;
            } else {
              const within = key(each.text);
              expect([...textsOf(fast, fast.covered(within))].sort()).toEqual(
                [...textsOf(naive, naive.covered(within))].sort(),
              );
            }
            expect(fast.size).toBe(naive.size);
          }
          for (const { fast, naive, held } of worlds) {
            expect(textsOf(fast, fast.slots())).toEqual(textsOf(naive, naive.slots()));
            for (const { family, length, form } of held) {
              expect(fast.countOf(family, length, form)).toBe(naive.countOf(family, length, form));
            }
          }
        },
      ),
    );
  });

  it.each([
    ['1,024', 3_000, undefined],
    ['32', 1_000, { segmentBits: 5, maxDepth: 20 }],
  ])('through growth to several segments of %s buckets, and back to empty', (_, keys, sizes) => {
    const fast = new HashPrefixTable(7, new KeyHash(7, sizes));
    const naive = new MapPrefixTable();
    const register = prefixRegister();
    const next = randomWords();
    for (let i = 0; i < keys; i++) {
      const length = 8 + (i % 26);
      parsePrefix(`${ipOf(next())}${length > 32 ? '' : `/${length}`}`, register);
      if (naive.find(register) >= 0) continue;
      expect(fast.insert(register)).toBe(naive.insert(register));
      if (i % 3 === 0) {
        const gone = (next() >>> 8) % naive.slotLimit;
        naive.keyOf(gone, register);
        if (naive.find(register) !== gone) continue;
        fast.remove(gone, register);
        naive.remove(gone, register);
      }
    }
    for (let i = 0; i < 200; i++) {
      parsePrefix(ipOf(next()), register);
      expect(fast.longestMatch({ ...register })).toBe(naive.longestMatch(register));
    }
    const everyOtherPage = (slot: number): boolean => slot % (2 * PAGE_ROWS) === 0;
    expect([...fast.slots(everyOtherPage)]).toEqual([...naive.slots(everyOtherPage)]);
    for (const slot of [...naive.slots()]) {
      naive.keyOf(slot, register);
      expect(fast.find(register)).toBe(slot);
      fast.remove(slot, register);
    }
    expect([fast.size, [...fast.slots()]]).toEqual([0, []]);
    expect(fast.longestMatch(key('10.0.0.1'))).toBe(-1);
  });

  it('when buckets of removed keys have filled a segment', () => {
    const fast = new HashPrefixTable(1, new KeyHash(1, { segmentBits: 5, maxDepth: 20 }));
    const register = key('10.0.0.0');
    for (let i = 0; i < 1_000; i++) {
      register.w0 = i;
      const slot = fast.insert(register);
      expect(fast.find(register)).toBe(slot);
      fast.remove(slot, register);
    }
    expect(fast.slotLimit).toBe(1);
    expect(fast.bytes).toBeLessThan(1 << 13);
  });

  it('when strangers choose IPv6 keys that all have one hash', () => {
    const fast = new HashPrefixTable(0, new KeyHash(0, { segmentBits: 5, maxDepth: 3 }));
    const keys = Array.from({ length: 200 }, (_, i) => collidingKey(i));
    for (const each of keys) {
      expect(fast.find(each)).toBe(-1);
      fast.insert(each);
    }
    keys.forEach((each, slot) => {
      expect(fast.find(each)).toBe(slot);
    });
    expect(fast.find(collidingKey(200))).toBe(-1);
    for (const each of keys) fast.remove(fast.find(each), each);
    expect([fast.size, ...keys.map((each) => fast.find(each))].every((slot) => slot <= 0)).toBe(true);
  });
});

function randomWords(): () => number {
  let random = 1;
  return () => {
    random = (Math.imul(random, 1_103_515_245) + 12_345) | 0;
    return random;
  };
}

function ipOf(word: number): string {
  return `${word >>> 24}.${(word >>> 16) & 255}.${(word >>> 8) & 255}.${word & 255}`;
}

describe('the bytes of a hash prefix table', () => {
  /** Bytes a key, over those of an empty table. */
  function bytesPerKey(textOf: (i: number) => string): number {
    const table = new HashPrefixTable(1, new KeyHash(1, { segmentBits: 5, maxDepth: 20 }));
    const empty = table.bytes;
    const register = prefixRegister();
    for (let i = 0; i < 1024; i++) {
      parsePrefix(textOf(i), register);
      table.insert(register);
    }
    return (table.bytes - empty) / 1024;
  }
  const spread = (i: number): number => Math.imul(i, 0x9e37_79b1);

  it.each([
    ['an IPv4 address', (i: number) => ipOf(spread(i)), 22, 24],
    ['an IPv6 address', (i: number) => `fd00::${i.toString(16)}`, 33, 36],
    ['an IPv4 prefix with a stem of its own', (i: number) => `${ipOf(spread(i))}/24`, 98, 108],
    ['an IPv6 prefix with a stem of its own', (i: number) => `fd00:${i.toString(16)}::/48`, 140, 154],
  ])('are as many as promised for %s', (_, textOf, least, most) => {
    const bytes = bytesPerKey(textOf);
    expect(bytes).toBeGreaterThan(least);
    expect(bytes).toBeLessThan(most);
  });
});

const FACTOR = 0x9e37_79b1;
const INVERSE = 0x0e8b_2f51; // of FACTOR, modulo 2^32: undoes the multiplication of one round

function round(hash: number, word: number): number {
  const h = Math.imul(hash ^ word, FACTOR);
  return h ^ (h >>> 15);
}

/** The i-th of many addresses whose last word makes up for what the others do to the hash. */
function collidingKey(i: number): PrefixRegister {
  const register: PrefixRegister = { ...key('fd00::1'), w1: i };
  const before = round(round(round(128 + 1 + 256 + 1, register.w0), register.w1), register.w2);
  const wanted = 12_345;
  const product = wanted ^ (wanted >>> 15) ^ (wanted >>> 30);
  register.w3 = before ^ Math.imul(product, INVERSE);
  return register;
}

describe('the keys that a prefix covers', () => {
  class CountingKeys extends KeyHash {
    finds = 0;

    override find(...wanted: Parameters<KeyHash['find']>): number {
      this.finds++;
      return super.find(...wanted);
    }
  }

  it('are probed one by one in a small block, and searched for among all in a large one', () => {
    const keys = new CountingKeys(1);
    const table = new HashPrefixTable(1, keys);
    for (let i = 0; i < 4096; i++) table.insert(key(ipOf((10 << 24) | i)));
    table.insert(key('10.0.1.128/25'));
    const findsFor = (prefix: string): readonly number[] => {
      keys.finds = 0;
      return [[...table.covered(key(prefix))].length, keys.finds];
    };
    expect(findsFor('10.0.1.0/24')).toEqual([257, 256 + 2]);
    expect(findsFor('10.0.0.0/8')).toEqual([4097, 0]);
    expect(findsFor('192.0.2.0/24')).toEqual([0, 256 + 2]);
  });
});
