import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { HashPrefixTable } from '../../src/net/hash-prefix-table.ts';
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
  fc.record({ op: fc.constant('insert' as const), text: prefix }),
  fc.record({ op: fc.constant('remove' as const), nth: fc.nat() }),
  fc.record({ op: fc.constant('match' as const), text: address }),
  fc.record({ op: fc.constant('covered' as const), text: prefix }),
  fc.record({ op: fc.constant('fork' as const), nth: fc.nat() }),
);

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
      fc.property(fc.array(step, { maxLength: 60, size: 'max' }), fc.integer(), (steps, seed) => {
        // Several tables by and by, forked from each other: what is written to one must not show in another.
        const worlds: World[] = [{ fast: new HashPrefixTable(seed), naive: new MapPrefixTable(), held: [] }];
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
            expect(textsOf(fast, fast.covered(within))).toEqual(textsOf(naive, naive.covered(within)));
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

  it('through growth to many segments, and back to empty', () => {
    const fast = new HashPrefixTable(7);
    const naive = new MapPrefixTable();
    const register = prefixRegister();
    let random = 1;
    const next = (): number => {
      random = (Math.imul(random, 1_103_515_245) + 12_345) | 0;
      return random;
    };
    for (let i = 0; i < 40_000; i++) {
      const length = 8 + (i % 26);
      const text = length > 32 ? '' : `/${length}`;
      const word = next();
      const ip = `${word >>> 24}.${(word >>> 16) & 255}.${(word >>> 8) & 255}.${word & 255}`;
      parsePrefix(`${ip}${text}`, register);
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
    for (let i = 0; i < 5_000; i++) {
      const word = next();
      parsePrefix(`${word >>> 24}.${(word >>> 16) & 255}.${(word >>> 8) & 255}.${word & 255}`, register);
      expect(fast.longestMatch({ ...register })).toBe(naive.longestMatch(register));
    }
    for (const slot of [...naive.slots()]) {
      naive.keyOf(slot, register);
      expect(fast.find(register)).toBe(slot);
      fast.remove(slot, register);
    }
    expect([fast.size, [...fast.slots()]]).toEqual([0, []]);
    expect(fast.longestMatch(key('10.0.0.1'))).toBe(-1);
  });

  it('when buckets of removed keys have filled a segment', () => {
    const fast = new HashPrefixTable(1);
    const register = key('10.0.0.0');
    for (let i = 0; i < 20_000; i++) {
      register.w0 = i;
      const slot = fast.insert(register);
      expect(fast.find(register)).toBe(slot);
      fast.remove(slot, register);
    }
    expect(fast.slotLimit).toBe(1);
    expect(fast.bytes).toBeLessThan(1 << 20);
  });

  it('when strangers choose IPv6 keys that all have one hash', () => {
    const fast = new HashPrefixTable(0);
    const keys = Array.from({ length: 3000 }, (_, i) => collidingKey(i));
    for (const each of keys) {
      expect(fast.find(each)).toBe(-1);
      fast.insert(each);
    }
    keys.forEach((each, slot) => {
      expect(fast.find(each)).toBe(slot);
    });
    expect(fast.find(collidingKey(3000))).toBe(-1);
    for (const each of keys) fast.remove(fast.find(each), each);
    expect([fast.size, ...keys.map((each) => fast.find(each))].every((slot) => slot <= 0)).toBe(true);
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
