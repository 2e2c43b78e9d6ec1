import fc from 'fast-check';
import { describe, expect, it, vi } from 'vitest';
import { PAGE_ROWS } from '../../src/columns/int32-rows.ts';
import { HashPrefixTable } from '../../src/lpm/hash-prefix-table.ts';
import { KeyHash } from '../../src/lpm/key-hash.ts';
import { maskWords } from '../../src/net/address-words.ts';
import { type PrefixRegister, parseKey, prefixRegister } from '../../src/net/prefix.ts';
import { PrefixBlock } from '../../src/net/prefix-block.ts';
import { MapPrefixTable } from '../net/support/map-prefix-table.ts';

function key(text: string): PrefixRegister {
  const register = prefixRegister();
  expect(parseKey(text, register), text).toBe(true);
  return register;
}

// Few distinct bits, so that prefixes nest, share stems and collide with their neighbours.
const octet = fc.constantFrom(0, 1, 127, 128, 255);
const ipv4 = fc.tuple(fc.constantFrom(10, 11), octet, octet, octet).map((octets) => octets.join('.'));
const group = fc.constantFrom('0', '1', '8000', 'ffff');
const ipv6 = fc.array(group, { minLength: 7, maxLength: 7 }).map((groups) => `fd00:${groups.join(':')}`);
const plainAddress = fc.oneof(ipv4, ipv6);
const ends = fc.constantFrom(0, 16, 17, 24, 31, 32);
const plainPrefix = fc.oneof(
  plainAddress,
  fc.tuple(ipv4, fc.oneof(fc.nat(32), ends)).map(([ip, length]) => `${ip}/${length}`),
  fc.tuple(ipv6, fc.oneof(fc.nat(128), ends)).map(([ip, length]) => `${ip}/${length === 31 ? 128 : length}`),
);
// Three address spaces with the same keys.
const space = fc.constantFrom('', '', '@1', '@511');
const address = fc.tuple(plainAddress, space).map((parts) => parts.join(''));
const prefix = fc.tuple(plainPrefix, space).map((parts) => parts.join(''));

const step = fc.oneof(
  { weight: 6, arbitrary: fc.record({ op: fc.constant('insert' as const), text: prefix }) },
  { weight: 2, arbitrary: fc.record({ op: fc.constant('remove' as const), nth: fc.nat() }) },
  { weight: 3, arbitrary: fc.record({ op: fc.constant('match' as const), text: address }) },
  { weight: 1, arbitrary: fc.record({ op: fc.constant('covered' as const), text: prefix }) },
  { weight: 1, arbitrary: fc.record({ op: fc.constant('warm' as const), texts: fc.array(prefix) }) },
  { weight: 1, arbitrary: fc.record({ op: fc.constant('fork' as const), nth: fc.nat() }) },
);

/** Segments so small that they split early. */
const SMALL = 9;

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

describe('the hash prefix table matches a naive table', () => {
  it('for any history of insertions, removals and lookups', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 80, size: 'max' }), fc.integer(), (steps, seed) => {
        // Several tables, forked from each other: a write to one must not be visible in another.
        const first = new HashPrefixTable(seed, new KeyHash(seed, SMALL));
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
          } else if (each.op === 'warm') {
            const block = new PrefixBlock();
            each.texts.forEach((text, i) => {
              block.set(i, key(text));
            });
            fast.prefetch(block, each.texts.length);
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
      }),
    );
  });

  it.each([
    ['1,024', 3_000, 10],
    ['512', 3_000, SMALL],
  ])('during growth to several segments of %s buckets, and back to empty', (_, keys, bits) => {
    const fast = new HashPrefixTable(7, new KeyHash(7, bits));
    const naive = new MapPrefixTable();
    const register = prefixRegister();
    const next = randomWords();
    for (let i = 0; i < keys; i++) {
      const length = 8 + (i % 26);
      parseKey(`${ipOf(next())}${length > 32 ? '' : `/${length}`}`, register);
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
      parseKey(ipOf(next()), register);
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

  it('if buckets of removed keys have filled a segment', () => {
    const fast = new HashPrefixTable(1, new KeyHash(1, SMALL));
    const register = key('10.0.0.0');
    for (let i = 0; i < 10_000; i++) {
      register.w0 = i;
      const slot = fast.insert(register);
      expect(fast.find(register)).toBe(slot);
      fast.remove(slot, register);
    }
    expect(fast.slotLimit).toBe(1);
    expect(fast.bytes).toBeLessThan(1 << 15);
  });

  it('if IPv6 keys are chosen that all have one hash', () => {
    const fast = new HashPrefixTable(0, new KeyHash(0, SMALL));
    const keys = Array.from({ length: 600 }, (_, i) => collidingKey(i));
    for (const each of keys) {
      expect(fast.find(each)).toBe(-1);
      fast.insert(each);
    }
    keys.forEach((each, slot) => {
      expect(fast.find(each)).toBe(slot);
    });
    expect(fast.find(collidingKey(600))).toBe(-1);
    for (const each of keys) fast.remove(fast.find(each), each);
    expect([fast.size, ...keys.map((each) => fast.find(each))].every((slot) => slot <= 0)).toBe(true);
  });
});

type Next = () => number;

/** 30,000 steps in `npm test`, 100,000 in `npm run test:long`. */
const { numRuns = 300 } = fc.readConfigureGlobal();
const STEPS = 100 * Math.min(Math.max(numRuns, 50), 1_000);

/**
 * Returns keys of nodes with a /24 each, about half full, and of IPv6 hosts, with the CIDRs of their nodes;
 * by text.
 */
function keysByText(next: Next): string[] {
  const keys: string[] = [];
  for (let node = 0; node < STEPS / 750; node++) {
    keys.push(`10.0.${node}.0/24`, `fd00:10:0:${node.toString(16)}::/64`);
    for (let host = 0; host < 256; host++) {
      if (next() < 0)
        keys.push(`10.0.${node}.${host}`, `fd00:10:0:${node.toString(16)}::${host.toString(16)}`);
    }
  }
  return keys.sort();
}

/** Returns random addresses and CIDRs. */
function keysAnywhere(next: Next): string[] {
  return Array.from({ length: 0.4 * STEPS }, (_, i) => {
    const address = i % 3 === 0 ? ipv6Of(next(), next(), next()) : ipOf(next());
    const length = (next() >>> 8) % (i % 3 === 0 ? 129 : 33);
    return i % 4 === 0 ? `${address}/${length}` : address;
  });
}

/**
 * Returns all possible keys of a few small blocks: addresses, the CIDRs that contain them, and the CIDRs that
 * contain those.
 */
function keysInClusters(next: Next): string[] {
  return Array.from({ length: 0.4 * STEPS }, () => {
    const cluster = (next() >>> 8) % 16;
    const host = (next() >>> 8) & 1023;
    const [address, longest] =
      cluster < 8 ? [ipOf((cluster << 28) | host), 32] : [`fd00:${cluster}::${host.toString(16)}`, 128];
    const up = (next() >>> 8) % 14;
    return up < 6 ? address : `${address}/${longest + 6 - up}`;
  });
}

describe('a hundred thousand steps of the hash prefix table match those of the naive one', () => {
  it.each([
    ['the order of texts', keysByText],
    ['random order', keysAnywhere],
    ['clusters', keysInClusters],
    [
      'clusters in four address spaces',
      (next: Next) => keysInClusters(next).map((text, i) => `${text}${['', '@1', '@2', '@511'][i % 4]}`),
    ],
  ])('in %s', (_, keysOf) => {
    const next = randomWords();
    const keys = keysOf(next).map(key);
    const pick = (): PrefixRegister => keys[(next() >>> 8) % keys.length] ?? expect.fail();
    const past: { fast: HashPrefixTable; naive: MapPrefixTable }[] = [];
    let fast = new HashPrefixTable(3, new KeyHash(3, SMALL));
    let naive = new MapPrefixTable();
    for (let step = 0, at = 0; step < STEPS; step++) {
      const dice = (next() >>> 8) % 1000;
      const wanted = dice < 500 ? (keys[at++ % keys.length] ?? expect.fail()) : pick();
      const slot = naive.find(wanted);
      if (fast.find(wanted) !== slot) expect.fail(`find at step ${step}`);
      if (slot < 0) {
        if (dice < 600 && fast.insert(wanted) !== naive.insert(wanted)) expect.fail(`insert at step ${step}`);
      } else if (dice >= 500 && dice < 700) {
        fast.remove(slot, wanted);
        naive.remove(slot, wanted);
      }
      if (step % 97 === 0) expect(matchOf(fast, wanted)).toEqual(matchOf(naive, wanted));
      if (step % (STEPS / 20) === 0) {
        const around = { ...wanted, length: Math.max(0, wanted.length - ((next() >>> 8) % 20)) };
        maskWords(around, around.length);
        expect([...fast.covered(around)].sort()).toEqual([...naive.covered(around)].sort());
      }
      if (step % ((3 * STEPS) / 10) === (3 * STEPS) / 10 - 1) {
        past.push({ fast, naive });
        fast = fast.fork();
        naive = naive.fork();
      }
    }
    for (const each of [...past, { fast, naive }]) {
      expect([...each.fast.slots()]).toEqual([...each.naive.slots()]);
      for (const wanted of keys) if (each.fast.find(wanted) !== each.naive.find(wanted)) expect.fail('find');
      const all = key('0.0.0.0/0');
      expect([...each.fast.covered(all)].sort()).toEqual([...each.naive.covered(all)].sort());
    }
  });

  function matchOf(table: HashPrefixTable | MapPrefixTable, { family, ...rest }: PrefixRegister): unknown {
    const address: PrefixRegister = { ...rest, family, length: family === 4 ? 32 : 128, form: 'endpoint' };
    const slot = table.longestMatch(address);
    return slot < 0 ? -1 : [slot, address];
  }
});

function ipv6Of(w0: number, w1: number, w3: number): string {
  const group = (word: number): string => `${(word >>> 16).toString(16)}:${(word & 0xffff).toString(16)}`;
  return `${group(w0)}:${group(w1)}::${group(w3)}`;
}

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

it.each(['10.0.0.1', '10.0.0.1/32', '10.0.0.0/24', '0.0.0.0/0'])('a table of %s alone finds it', (text) => {
  const table = new HashPrefixTable();
  table.insert(key(text));
  const at = key('10.0.0.1');
  expect([table.longestMatch(at), at]).toEqual([0, key(text)]);
});

describe('the hash of keys', () => {
  it.each([8, 11])('refuses segments of 2^%d buckets', (bits) => {
    expect(() => new KeyHash(0, bits)).toThrow(/a segment has room/);
  });

  it('has the roots of two trees while it is empty, and as many bytes as its fork', () => {
    const table = new HashPrefixTable();
    expect(table.bytes).toBe(2 * 1024);
    for (const text of ['fd00::1', '10.0.0.1']) table.insert(key(text));
    const { bytes } = table;
    table.insert(key('fd00::1@5'));
    expect(table.bytes).toBe(bytes + 1024);
    expect(table.fork().bytes).toBe(table.bytes);
  });
});

describe('the bytes of a hash prefix table', () => {
  const KEYS = 8192;

  /** Returns the bytes per key, without those of an empty table. */
  function bytesPerKey(textOf: (i: number) => string): number {
    const table = new HashPrefixTable(1, new KeyHash(1, SMALL));
    const empty = table.bytes;
    const register = prefixRegister();
    for (let i = 0; i < KEYS; i++) {
      parseKey(textOf(i), register);
      table.insert(register);
    }
    return (table.bytes - empty) / KEYS;
  }
  const spread = (i: number): number => Math.imul(i, 0x9e37_79b1);

  it.each([
    ['an IPv4 address', (i: number) => ipOf(spread(i)), 22, 26],
    ['an IPv4 CIDR of one address', (i: number) => `${ipOf(spread(i))}/32`, 22, 26],
    ['an IPv6 address', (i: number) => `fd00::${i.toString(16)}`, 33, 40],
    ['an IPv4 prefix with a stem of its own', (i: number) => `${ipOf(spread(i))}/24`, 86, 94],
    ['an IPv6 prefix with a stem of its own', (i: number) => `fd00:${i.toString(16)}::/48`, 48, 58],
  ])('are as many as documented for %s', (_, textOf, least, most) => {
    const bytes = bytesPerKey(textOf);
    expect(bytes).toBeGreaterThan(least);
    expect(bytes).toBeLessThan(most);
  });
});

const FACTOR = 0x9e37_79b1;
const INVERSE = 0x0e8b_2f51; // the inverse of FACTOR modulo 2^32, which undoes the multiplication of one round

function round(hash: number, word: number): number {
  const h = Math.imul(hash ^ word, FACTOR);
  return h ^ (h >>> 15);
}

/**
 * Returns the i-th of many addresses whose third word compensates for the effect of the second on the hash.
 */
function collidingKey(i: number): PrefixRegister {
  const register: PrefixRegister = { ...key('fd00::1'), w1: i };
  const before = round(round(round(0, 128), register.w0), register.w1);
  const wanted = 12_345;
  const product = wanted ^ (wanted >>> 15) ^ (wanted >>> 30);
  register.w2 = before ^ Math.imul(product, INVERSE);
  return register;
}

describe('the keys within a prefix', () => {
  it('are found without reading keys elsewhere', () => {
    const keyOf = vi.spyOn(HashPrefixTable.prototype, 'keyOf');
    const table = new HashPrefixTable(1, new KeyHash(1, SMALL));
    for (let i = 0; i < 8_192; i++) table.insert(key(ipOf((10 << 24) | i)));
    table.insert(key('10.0.1.128/25'));
    const looksFor = (prefix: string): readonly [found: number, looks: number] => {
      keyOf.mockClear();
      return [[...table.covered(key(prefix))].length, keyOf.mock.calls.length];
    };
    const [found, looks] = looksFor('10.0.1.0/24');
    expect(found).toBe(257);
    expect(looks).toBeLessThan(257 + 2 * 512);
    expect(looksFor('10.0.0.0/8')).toEqual([8_193, 8_193]);
    for (let i = 0; i < 100; i++) table.insert(key(`fd00::${i.toString(16)}`));
    expect([looksFor('::/0'), looksFor('0.0.0.0/0')]).toEqual([
      [100, 100],
      [8_193, 8_193],
    ]);
    expect(looksFor('192.0.2.0/24')[0]).toBe(0);
    expect(looksFor('192.0.2.0/24')[1]).toBeLessThan(512);
  });
});
