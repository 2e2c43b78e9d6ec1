import { describe, expect, it } from 'vitest';
import { isPort, PROTOCOL_NUMBERS, protocolName, protocolNumber } from '../../src/net/port.ts';

describe('a protocol', () => {
  it('has the number assigned by IANA', () => {
    expect(PROTOCOL_NUMBERS).toEqual({ ANY: 0, ICMP: 1, TCP: 6, UDP: 17, ICMPv6: 58, SCTP: 132 });
  });

  it('is found by its number, and the number by its name', () => {
    for (const [name, number] of Object.entries(PROTOCOL_NUMBERS)) {
      expect(protocolNumber(name)).toBe(number);
      expect(protocolName(number)).toBe(name);
    }
    expect(protocolName(47)).toBe('47');
  });

  it.each(['tcp', 'Tcp', '', ' TCP', '6', '__proto__', 'constructor', 'toString'])(
    'has no name %j',
    (name) => {
      expect(protocolNumber(name)).toBeUndefined();
    },
  );
});

describe('a port', () => {
  it.each([0, 1, 80, 65535])('may be %d', (port) => expect(isPort(port)).toBe(true));
  it.each([-1, 65536, 1.5, Number.NaN, Number.POSITIVE_INFINITY, '80', null, undefined, 80n])(
    'is never %s',
    (port) => {
      expect(isPort(port)).toBe(false);
    },
  );
});
