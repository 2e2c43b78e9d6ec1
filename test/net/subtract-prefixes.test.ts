import fc from 'fast-check';
import { describe, expect, it, vi } from 'vitest';
import { Prefix } from '../../src/net/prefix.ts';
import { subtractPrefixes } from '../../src/net/subtract-prefixes.ts';

function prefix(text: string): Prefix {
  const parsed = Prefix.parse(text);
  if (parsed === undefined) throw new Error(text);
  return parsed;
}

const left = (whole: string, ...others: string[]): readonly string[] =>
  [...subtractPrefixes(prefix(whole), others.map(prefix))].map(String);

/** Prefixes of 192.0.2.0/26 and around it, so that addresses can be counted. */
const small = fc
  .record({ last: fc.integer({ min: 0, max: 127 }), length: fc.integer({ min: 24, max: 32 }) })
  .map(({ last, length }) => `192.0.2.${last}/${length}`);

function addresses(text: string): Set<number> {
  const [address = '', length = ''] = prefix(text).toString().split('/');
  const first = Number(address.split('.')[3]);
  return new Set(Array.from({ length: 2 ** (32 - Number(length)) }, (_, index) => first + index));
}

describe('cutting prefixes out of a prefix', () => {
  it('leaves the smallest set of prefixes, by address', () => {
    expect(left('10.0.0.0/8', '10.0.0.0/9')).toEqual(['10.128.0.0/9']);
    expect(left('10.0.0.0/30', '10.0.0.2')).toEqual(['10.0.0.0/31', '10.0.0.3/32']);
    expect(left('fd00::/62', 'fd00:0:0:3::/64')).toEqual(['fd00::/63', 'fd00:0:0:2::/64']);
    expect(left('::/0', '8000::/1')).toEqual(['::/1']);
    expect(left('0.0.0.0/0', '0.0.0.0/1')).toEqual(['128.0.0.0/1']);
    expect(left('fd00::/127', 'fd00::1')).toEqual(['fd00::/128']);
  });

  it('computes only those that are read (regression: 65,536 in one turn)', () => {
    const contains = vi.spyOn(Prefix.prototype, 'contains');
    const remainders = subtractPrefixes(prefix('fd00::/16'), [prefix('fd00::1')]);
    const calls = Array.from({ length: 112 }, () => {
      contains.mockClear();
      remainders.next();
      return contains.mock.calls.length;
    });
    contains.mockRestore();
    expect(calls.slice(1).every((count) => count <= 4)).toBe(true);
    expect(calls[0]).toBeGreaterThan(100);
  });

  it('leaves nothing of a covered prefix, and all of an unrelated one', () => {
    expect(left('10.1.0.0/16', '10.0.0.0/8')).toEqual([]);
    expect(left('10.1.0.0/16', '10.1.0.0/16')).toEqual([]);
    expect(left('10.1.0.0/16', '10.2.0.0/16', 'fd00::/8')).toEqual(['10.1.0.0/16']);
  });

  it('leaves exactly the addresses that no other prefix has, in as few prefixes as possible', () => {
    fc.assert(
      fc.property(small, fc.array(small, { maxLength: 5 }), (whole, others) => {
        const expected = addresses(whole);
        for (const other of others) for (const address of addresses(other)) expected.delete(address);
        const parts = left(whole, ...others);
        const found = parts.flatMap((part) => [...addresses(part)]);
        expect(found).toEqual([...expected].sort((a, b) => a - b));
        // Two halves of a prefix would be merged.
        const parents = parts.map((part) => {
          const { address, length } = prefix(part);
          return `${prefix(`${address}/${Math.max(0, length - 1)}`)} ${length}`;
        });
        expect(new Set(parents).size).toBe(parents.length);
      }),
    );
  });
});
