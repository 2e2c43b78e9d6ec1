import fc from 'fast-check';
import ipaddr from 'ipaddr.js';
import { describe, expect, it } from 'vitest';
import { formatAddress, formatPrefix, isCanonicalAddress } from '../../src/net/format-address.ts';
import {
  canonicalAddress,
  canonicalCIDR,
  canonicalEndpoint,
  canonicalKey,
  comparePrefixes,
  copyRegister,
  formatKey,
  formatKeyOf,
  formatPrefixOf,
  Prefix,
  parseKey,
  parsePrefix,
  prefixOfKey,
  prefixRegister,
  sameKey,
} from '../../src/net/prefix.ts';
import { alone, expectRefused, without } from '../base/support/wrong-arguments.ts';
import { addressText, almostAddressText, cidrText, ipv6Groups } from './support/arbitraries.ts';

function parse(text: string): Prefix {
  const prefix = Prefix.parse(text);
  if (prefix === undefined) throw new Error(`not a prefix: ${text}`);
  return prefix;
}

/** A prefix as numbers of arbitrary size: too simple to be wrong. */
interface NaivePrefix {
  readonly family: 4 | 6;
  readonly value: bigint;
  readonly length: number;
}

function naive(prefix: Prefix): NaivePrefix {
  const bytes = ipaddr.parse(prefix.address).toByteArray();
  const value = bytes.reduce((sum, byte) => (sum << 8n) | BigInt(byte), 0n);
  return { family: prefix.family, value, length: prefix.length };
}

function naiveContains(net: NaivePrefix, inner: NaivePrefix): boolean {
  const shift = BigInt((net.family === 4 ? 32 : 128) - net.length);
  return (
    net.family === inner.family && net.length <= inner.length && net.value >> shift === inner.value >> shift
  );
}

function naiveCompare(a: NaivePrefix, b: NaivePrefix): number {
  if (a.family !== b.family) return a.family - b.family;
  if (a.value !== b.value) return a.value < b.value ? -1 : 1;
  return a.length - b.length;
}

/** Prefixes that are often related: from one short list of addresses, with any length. */
const relatedCidr: fc.Arbitrary<string> = fc
  .tuple(
    fc.constantFrom(
      '10.1.2.3',
      '10.1.2.255',
      '10.128.0.0',
      '0.0.0.0',
      'fd00::1',
      'fd00:0:0:8000::',
      '::',
      '8000::',
    ),
    fc.nat(),
  )
  .map(([text, n]) => `${text}/${n % (text.includes(':') ? 129 : 33)}`);
const anyPrefix: fc.Arbitrary<Prefix> = fc.oneof(relatedCidr, cidrText, addressText).map(parse);

describe('a prefix', () => {
  it('survives formatting and parsing', () => {
    fc.assert(
      fc.property(anyPrefix, (prefix) => {
        expect(parse(prefix.toString()).equals(prefix)).toBe(true);
        expect(parse(prefix.toString()).toString()).toBe(prefix.toString());
      }),
    );
  });

  it('is masked like in the independent library', () => {
    fc.assert(
      fc.property(cidrText, (text) => {
        const [address, length] = ipaddr.parseCIDR(text.replace(/^::(\d+\.\d+\.\d+\.\d+)/, '::0:$1'));
        const mapped =
          address.kind() === 'ipv6' && (address as ipaddr.IPv6).isIPv4MappedAddress() && length >= 96;
        const expected = mapped
          ? `${ipaddr.IPv4.networkAddressFromCIDR(`${(address as ipaddr.IPv6).toIPv4Address()}/${length - 96}`)}/${length - 96}`
          : address.kind() === 'ipv4'
            ? `${ipaddr.IPv4.networkAddressFromCIDR(`${address}/${length}`)}/${length}`
            : `${ipaddr.IPv6.networkAddressFromCIDR(`${address.toNormalizedString()}/${length}`).toRFC5952String()}/${length}`;
        expect(parse(text).toString()).toBe(expected);
      }),
    );
  });

  it('contains an address that differs from its own at some bit if and only if it is no longer than that', () => {
    const bit = fc.integer({ min: 0, max: 127 });
    const near = fc.integer({ min: -2, max: 3 });
    fc.assert(
      fc.property(
        ipv6Groups,
        bit,
        fc.oneof(near, fc.integer({ min: -127, max: 128 })),
        (groups, bit, more) => {
          const length = Math.min(Math.max(bit + more, 0), 128);
          const text = (values: readonly number[]): string => values.map((n) => n.toString(16)).join(':');
          const other = groups.map((value, i) => (i === bit >> 4 ? value ^ (0x8000 >> (bit & 15)) : value));
          const [net, address] = [parse(`${text(groups)}/${length}`), parse(text(other))];
          if (address.family === 6) expect(net.contains(address)).toBe(length <= bit);
        },
      ),
    );
  });

  it('contains another if and only if that one starts with its bits', () => {
    fc.assert(
      fc.property(anyPrefix, anyPrefix, (a, b) => {
        expect(a.contains(b)).toBe(naiveContains(naive(a), naive(b)));
        expect(a.contains(parse(a.toString()))).toBe(true);
      }),
    );
  });

  it('has its place in a total order: IPv4 first, then by number, then shorter first', () => {
    fc.assert(
      fc.property(anyPrefix, anyPrefix, anyPrefix, (a, b, c) => {
        expect(Math.sign(comparePrefixes(a, b))).toBe(Math.sign(naiveCompare(naive(a), naive(b))));
        expect(Math.sign(comparePrefixes(a, b)) + Math.sign(comparePrefixes(b, a))).toBe(0);
        expect(comparePrefixes(a, b) === 0).toBe(a.toString() === b.toString());
        expect(a.equals(b)).toBe(a.toString() === b.toString());
        if (comparePrefixes(a, b) <= 0 && comparePrefixes(b, c) <= 0)
          expect(comparePrefixes(a, c)).toBeLessThanOrEqual(0);
      }),
    );
  });

  it.each(['contains', 'equals'])('refuses what is none: %s', (method) => {
    const right = { family: 4, length: 8 };
    expectRefused(parse('10.0.0.0/8'), method, alone(without(right, 'family', 'length')));
  });

  it.each([
    ['10.1.2.3/8', '10.0.0.0/8', 'host bits are zeroed'],
    ['10.1.2.3', '10.1.2.3/32', 'an address covers itself'],
    ['FD00::1/64', 'fd00::/64', 'lower case'],
    ['10.1.2.3/0', '0.0.0.0/0', 'everything'],
    ['fd00::1/0', '::/0', 'everything, IPv6'],
    ['::ffff:10.1.2.3/128', '10.1.2.3/32', 'a mapped address with its length'],
    ['::ffff:10.1.2.3/104', '10.0.0.0/8', 'a mapped CIDR'],
    ['::ffff:10.1.2.3/96', '0.0.0.0/0', 'all mapped addresses are all of IPv4'],
    ['::ffff:10.1.2.3/95', '::fffe:0:0/95', 'wider than the mapped range: IPv6'],
    ['::ffff:0:0/0', '::/0', 'a mapped address in a CIDR of everything'],
    ['10.1.2.3/31', '10.1.2.2/31', 'one host bit'],
    ['1:2:3:4:5:6:7:8/65', '1:2:3:4::/65', 'in the middle of a group'],
  ])('%s is %s: %s', (text, canonical) => {
    expect(parse(text).toString()).toBe(canonical);
  });

  it.each([
    ['10.1.2.3/33', 'too long'],
    ['fd00::/129', 'too long, IPv6'],
    ['10.1.2.3/64', 'a length of the other family'],
    ['::ffff:10.1.2.3/129', 'too long for a mapped one'],
    ['10.1.2.3/', 'no length'],
    ['/8', 'no address'],
    ['10.1.2.3/-1', 'a sign'],
    ['10.1.2.3/+8', 'another sign'],
    ['10.1.2.3/08', 'a leading zero'],
    ['10.1.2.3/00', 'two zeros'],
    ['10.1.2.3/8.0', 'not a whole number'],
    ['10.1.2.3/8/8', 'two lengths'],
    ['10.1.2.3/ 8', 'white space'],
    ['10.1.2.3/8 ', 'white space behind'],
    ['10.1.2.3/1e1', 'an exponent'],
    ['10.1.2.3/255.0.0.0', 'a mask'],
    ['10.1.2.3/0000000008', 'many zeros'],
    ['10.1.2.3/99999999999999999999', 'many digits'],
    ['fe80::1%eth0/64', 'a zone id'],
    ['10.1/16', 'a short address'],
    ['256', 'a number above an octet'],
    ['108', 'a number'],
    ['.18', 'a dot and a number'],
    ['fd00::/', 'no length, IPv6'],
    ['fd00::/a', 'a letter for a length'],
    ['10.1.2.3/:', 'the character after the digits for a length'],
    ['10.1.2.3:8', 'a port'],
    ['10.1.2.3 8', 'white space for a slash'],
  ])('%j is rejected: %s', (text) => {
    expect(Prefix.parse(text)).toBeUndefined();
  });
});

describe('a key', () => {
  it('is accepted or rejected like its address and length, if it is almost valid', () => {
    const almostLength = fc.string({ unit: fc.constantFrom(...'0123689ax:/'), maxLength: 3 });
    const almostKey = fc.oneof(
      almostAddressText.filter((text) => !text.includes('@')), // the id of a cluster
      fc.tuple(fc.oneof(addressText, cidrText), almostLength).map(([text, length]) => `${text}/${length}`),
    );
    fc.assert(
      fc.property(almostKey, (text) => {
        const [, address = '', length] = /^([^/]*)(?:\/(0|[1-9][0-9]*))?$/.exec(text) ?? [];
        const canonical = canonicalAddress(address);
        const most = address.includes(':') ? 128 : 32;
        const legal = canonical !== undefined && Number(length ?? 0) <= most;
        expect(Prefix.parse(text) !== undefined).toBe(legal);
        expect(canonicalKey(text)).toBe(
          legal ? (length === undefined ? canonical : parse(text).toString()) : undefined,
        );
      }),
    );
  });

  it('is formatted the same with and without its text', () => {
    fc.assert(
      fc.property(fc.oneof(addressText, cidrText), (text) => {
        const register = prefixRegister();
        expect(parsePrefix(text, register)).toBe(true);
        expect(formatKeyOf(text, register)).toBe(formatKey(register));
        expect(formatPrefixOf(text, register)).toBe(formatPrefix(register, register.length));
        expect(formatPrefixOf('', register)).toBe(formatPrefix(register, register.length));
        const canonical = formatKey(register);
        expect(formatPrefixOf(canonical, register)).toBe(formatPrefix(register, register.length));
        // The longest match of an address may be a CIDR.
        expect(formatKeyOf(text, { ...register, form: 'cidr' })).toBe(parse(text).toString());
      }),
    );
  });

  it('keeps its text only if that is canonical, wherever its zeros are', () => {
    const register = prefixRegister();
    const mistaken: string[] = [];
    const check = (text: string): void => {
      const isRight =
        parsePrefix(text, register) &&
        isCanonicalAddress(text, register) === (text === formatAddress(register));
      if (!isRight) mistaken.push(text);
    };
    for (let pattern = 0; pattern < 3 ** 8; pattern++) {
      const groups = Array.from(
        { length: 8 },
        (_, i) => ['0', '1', 'f0'][Math.floor(pattern / 3 ** i) % 3] ?? '',
      );
      check(groups.join(':'));
      for (let from = 0; from < 8; from++) {
        for (let to = from; groups[to] === '0'; to++)
          check(`${groups.slice(0, from).join(':')}::${groups.slice(to + 1).join(':')}`);
      }
    }
    for (const text of [
      'fd00::0a',
      'fd00::A',
      'fd00::00',
      'fd00:0a::',
      '0fd0::',
      'fd00::a0',
      'fd00::1.2.3.4',
      'fd00::9',
      '::',
      '10.1.2.3',
      '::ffff:10.1.2.3',
    ])
      check(text);
    expect(mistaken).toEqual([]);
  });

  it('equals another if and only if both are formatted the same', () => {
    const word = fc.constantFrom(0, 1);
    const register = fc.record({
      family: fc.constantFrom(4, 6),
      form: fc.constantFrom('endpoint', 'cidr'),
      length: word,
      w0: word,
      w1: word,
      w2: word,
      w3: word,
      clusterID: word,
    });
    const almost = fc.record({
      which: fc.constantFrom('w0', 'w1', 'w2', 'w3', 'length', 'clusterID'),
      value: word,
    });
    fc.assert(
      fc.property(register, register, almost, (a, other, { which, value }) => {
        for (const b of [
          a,
          other,
          { ...a, [which]: value },
          { ...a, family: other.family },
          { ...a, form: other.form },
        ])
          expect(sameKey(a, b)).toBe(JSON.stringify(a) === JSON.stringify({ ...a, ...b }));
      }),
    );
  });

  it.each([
    ['10.1.2.3@5', '10.1.2.3@5', '10.1.2.3/32@5'],
    ['10.1.2.3/16@511', '10.1.0.0/16@511', '10.1.0.0/16@511'],
    ['::ffff:10.1.2.3@007', '10.1.2.3@7', '10.1.2.3/32@7'],
    ['FD00::0:1@1', 'fd00::1@1', 'fd00::1/128@1'],
    ['10.1.2.3@0', '10.1.2.3', '10.1.2.3/32'],
    ['10.1.2.100@000', '10.1.2.100', '10.1.2.100/32'],
    ['fd00::1@0', 'fd00::1', 'fd00::1/128'],
    ['10.1.0.0/16@0', '10.1.0.0/16', '10.1.0.0/16'],
    ['10.1.2.30', '10.1.2.30', '10.1.2.30/32'],
  ])('has the address space of %s', (text, canonical, prefix) => {
    const register = prefixRegister();
    expect(parseKey(text, register)).toBe(true);
    expect([formatKey(register), formatKeyOf(text, register), formatPrefixOf(text, register)]).toEqual([
      ...[canonical, canonical, prefix],
    ]);
    expect([canonicalKey(text), prefixOfKey(canonical), `${Prefix.parseAnnotated(text)}`]).toEqual([
      ...[canonical, prefix, prefix],
    ]);
    expect(parsePrefix(text, register)).toBe(!text.includes('@'));
    expect(Prefix.parse(text) === undefined).toBe(text.includes('@'));
  });

  it.each([
    '10.1.2.3@',
    '10.1.2.3@512',
    '10.1.2.3@-1',
    '10.1.2.3@1.0',
    '10.1.2.3@a',
    '@1',
    '10.1.2.3@1@2',
    'x@1',
    ' 10.1.2.3@1',
    '10.1.2.3@1 ',
    '10.1.2.3@1/32',
    '10.1.2.3@99999999999999999999',
  ])('is not %s', (text) => {
    expect([canonicalKey(text), canonicalEndpoint(text), Prefix.parseAnnotated(text)]).toEqual([
      ...[undefined, undefined, undefined],
    ]);
  });

  it('contains no address of another address space, and is ordered by it first', () => {
    const [in5, in6, plain] = ['10.0.0.0/8@5', '10.1.0.0/16@6', '10.0.0.0/8'].map(
      (text) => Prefix.parseAnnotated(text) ?? expect.fail(),
    );
    const inner = Prefix.parseAnnotated('10.1.0.0/16@5') ?? expect.fail();
    expect([in5?.contains(inner), plain?.contains(inner), in6?.contains(inner)]).toEqual([
      true,
      false,
      false,
    ]);
    expect(in5?.equals(plain ?? expect.fail())).toBe(false);
    expect(comparePrefixes(inner, in6 ?? expect.fail())).toBeLessThan(0);
  });

  it('is not parsed from a value that is not text', () => {
    for (const value of [undefined, null, 7, ['10.0.0.1']])
      expect(Reflect.apply(parsePrefix, undefined, [value, prefixRegister()])).toBe(false);
  });

  it.each(['10.1.2.0/24', '10.1.2.3/32', 'fd00::/64', 'fd00::1/128'])(
    'that is a CIDR is not an address: %s',
    (text) => {
      expect([canonicalAddress(text), canonicalKey(text), canonicalCIDR(text)]).toEqual([
        undefined,
        text,
        text,
      ]);
      expect(canonicalCIDR(text.replace(/\/.*/, ''))).toBeUndefined();
      expect(canonicalCIDR('10.0.0')).toBeUndefined();
      const register = prefixRegister();
      expect(parsePrefix(text, register) && register.form).toBe('cidr');
    },
  );

  it('is 0.0.0.0 in a new register', () => {
    const register = prefixRegister();
    expect(parsePrefix('0.0.0.0', register) && register).toEqual(prefixRegister());
  });

  it('that was copied is unchanged', () => {
    const register = prefixRegister();
    parsePrefix('fd00:1:2:3:4:5:6:7/120', register);
    const copy = copyRegister(register);
    expect(copy).toEqual(register);
    parsePrefix('10.1.2.3', register);
    expect(formatKey(copy)).toBe('fd00:1:2:3:4:5:6:0/120');
  });

  it('written as an address and as its full-length CIDR is one prefix in two forms', () => {
    const register = prefixRegister();
    expect(parsePrefix('10.1.2.3', register) && { ...register }).toMatchObject({
      form: 'endpoint',
      length: 32,
    });
    expect(parsePrefix('10.1.2.3/32', register) && { ...register }).toMatchObject({
      form: 'cidr',
      length: 32,
    });
    expect(parse('10.1.2.3').equals(parse('10.1.2.3/32'))).toBe(true);
    expect(parse('fd00::1').isFullLength && parse('fd00::1/128').isFullLength).toBe(true);
    expect(parse('10.1.2.3/31').isFullLength).toBe(false);
  });

  it('parsed into a used register leaves nothing of the earlier one', () => {
    fc.assert(
      fc.property(fc.oneof(addressText, cidrText), fc.oneof(addressText, cidrText), (first, second) => {
        const used = prefixRegister();
        const fresh = prefixRegister();
        parsePrefix(first, used);
        expect(parsePrefix(second, used)).toBe(parsePrefix(second, fresh));
        expect(used).toEqual(fresh);
      }),
    );
  });
});
