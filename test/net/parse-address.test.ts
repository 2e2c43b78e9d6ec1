import { isIP, isIPv4 } from 'node:net';
import fc from 'fast-check';
import ipaddr from 'ipaddr.js';
import { describe, expect, it } from 'vitest';
import { canonicalAddress } from '../../src/net/prefix.ts';
import { addressText, almostAddressText, ipv4Text, ipv6Groups } from './support/arbitraries.ts';

/** Returns the canonical text of an independent library; `undefined` if we do not accept the address. */
function byOthers(text: string): string | undefined {
  if (isIP(text) === 0 || text.includes('%')) return undefined;
  if (isIPv4(text)) return ipaddr.IPv4.parse(text).toString();
  // ipaddr.js treats `::1.2.3.4` as IPv4-mapped, but it is IPv4-compatible, so it is passed in hexadecimal.
  const address = ipaddr.IPv6.parse(
    text.replace(/^::(\d+)\.(\d+)\.(\d+)\.(\d+)$/, (_, ...octets) => hexTail(octets)),
  );
  return address.isIPv4MappedAddress() ? address.toIPv4Address().toString() : address.toRFC5952String();
}

function hexTail(match: readonly unknown[]): string {
  const [a = 0, b = 0, c = 0, d = 0] = match.slice(0, 4).map(Number);
  return `::${((a << 8) | b).toString(16)}:${((c << 8) | d).toString(16)}`;
}

describe('an address', () => {
  it('is parsed and formatted like in an independent library, in any spelling', () => {
    fc.assert(
      fc.property(addressText, (text) => {
        expect(canonicalAddress(text)).toBe(byOthers(text));
      }),
    );
  });

  it('is accepted or rejected like in two independent parsers, if it is almost valid', () => {
    fc.assert(
      fc.property(almostAddressText, (text) => {
        expect(canonicalAddress(text)).toBe(byOthers(text));
      }),
    );
  });

  it('with a dotted tail is not canonical (regression: was, if :: stood before another group of zero)', () => {
    expect(canonicalAddress('1000:0:1000::0:fff:183.0.255.255')).toBe('1000:0:1000::fff:b700:ffff');
  });

  it('is its own canonical form once it is canonical', () => {
    fc.assert(
      fc.property(addressText, (text) => {
        const canonical = canonicalAddress(text);
        expect(canonical).toBeDefined();
        expect(canonicalAddress(canonical ?? '')).toBe(canonical);
      }),
    );
  });

  it('of IPv4 is the same key if it is written as IPv4-mapped IPv6, dotted or in hexadecimal', () => {
    fc.assert(
      fc.property(ipv4Text, (text) => {
        expect(canonicalAddress(`::ffff:${text}`)).toBe(text);
        expect(canonicalAddress(`::FFFF:${hexTail(text.split('.')).slice(2)}`)).toBe(text);
      }),
    );
  });

  it('of IPv6 may be written with all of its groups', () => {
    fc.assert(
      fc.property(ipv6Groups, (groups) => {
        const text = groups.map((value) => value.toString(16).padStart(4, '0')).join(':');
        expect(canonicalAddress(text)).toBe(byOthers(text));
      }),
    );
  });

  it.each([
    ['2001:DB8:0:0:0:0:0:1', '2001:db8::1', 'lower case, compressed'],
    ['1:0:0:2:0:0:0:3', '1:0:0:2::3', 'the longest run of zeros'],
    ['1:0:0:2:3:0:0:4', '1::2:3:0:0:4', 'the leftmost of two equal runs'],
    ['1:0:2:3:4:5:6:7', '1:0:2:3:4:5:6:7', 'never a single group'],
    ['1:2:3:4:5:6:7::', '1:2:3:4:5:6:7:0', '`::` for one group is read, not written'],
    ['::', '::', 'all zeros'],
    ['::1.2.3.4', '::102:304', 'IPv4-compatible is not IPv4-mapped (regression: was parsed as IPv4)'],
    ['::0.0.0.0', '::', 'all zeros, with a dotted tail near its start'],
    ['64:ff9b::192.0.2.33', '64:ff9b::c000:221', 'a dotted tail'],
    ['0:0:1:0:0:ffff:1.2.3.4', '::1:0:0:ffff:102:304', 'mapped but for a bit in the second word'],
    ['::ffff:0:1.2.3.4', '::ffff:0:102:304', 'IPv4-translated is not IPv4-mapped'],
  ])('%s is %s: %s', (text, canonical) => {
    expect(canonicalAddress(text)).toBe(canonical);
  });

  it.each([
    ['', 'nothing'],
    ['10.1.2', 'three octets'],
    ['10.1.2.3.4', 'five octets'],
    ['10.1.2.', 'an empty octet'],
    ['.1.2.3', 'an empty octet in front'],
    ['10..2.3', 'an empty octet inside'],
    ['256.1.2.3', 'an octet out of range'],
    ['010.1.2.3', 'a leading zero: octal to some'],
    ['10.1.2.03', 'a leading zero at the end'],
    ['00.0.0.0', 'two zeros'],
    ['0x0a.1.2.3', 'hexadecimal octets'],
    ['167838211', 'one number'],
    ['+1.2.3.4', 'a sign'],
    [' 10.1.2.3', 'white space in front'],
    ['10.1.2.3\n', 'a line end'],
    ['10.1.2.3 ', 'white space behind'],
    ['１0.1.2.3', 'digits that are not ASCII'],
    ['10.1.2.3:80', 'a port'],
    ['256', 'a number above an octet'],
    ['[::1]', 'brackets'],
    ['::g', 'no hexadecimal digit'],
    ['::@', 'the character before the upper-case letters'],
    ['::`', 'the character before the lower-case letters'],
    ['1g::2', 'something else behind a group'],
    ['1::2g3', 'something else than a colon between groups'],
    [':', 'one colon'],
    [':::', 'three colons'],
    ['1:', 'a colon at the end'],
    ['::1:', 'a colon at the end, behind a gap'],
    ['1:2:3:4:5:6:7:8:', 'a colon behind eight groups'],
    ['1:::2', 'three colons inside'],
    [':::1', 'three colons in front'],
    [':1', 'a colon in front'],
    ['1::2::3', 'two gaps'],
    ['::1::2', 'two gaps, one in front'],
    ['1:2:3:4:5:6:7', 'seven groups'],
    ['1:2:3:4:5:6:7:8:9', 'nine groups'],
    ['1:2:3:4::5:6:7:8:9', 'nine groups and a gap'],
    ['1:2:3:4::5:6:7:8', 'a gap of nothing'],
    ['12345::', 'five digits'],
    ['00001::', 'five digits with zeros'],
    ['::ffff:010.1.2.3', 'a leading zero in a dotted tail'],
    ['1:2:3:4:5:6:7:1.2.3.4', 'a dotted tail too far right'],
    ['1:2:3:4:5:6:7::1.2.3.4', 'a dotted tail too far right, behind a gap'],
    ['1.2.3.4::', 'dotted decimal in front'],
    ['fe80::1%eth0', 'a zone id'],
    ['fe80::1%', 'an empty zone id'],
    ['10.1.2.3%eth0', 'a zone id on IPv4'],
    ['::1/128', 'a CIDR, where an address is wanted'],
    [`${'0'.repeat(2000)}::`, 'far too much text'],
  ])('%j is rejected: %s', (text) => {
    expect(canonicalAddress(text)).toBeUndefined();
  });
});
