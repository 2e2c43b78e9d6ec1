import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type AddressOwner, IPAM } from '../../src/restore/ipam.ts';

const POD: AddressOwner = { use: 'endpoint', name: 'shop/web-1' };
const OTHER: AddressOwner = { use: 'endpoint', name: 'shop/web-2' };
const ROUTER: AddressOwner = { use: 'router', name: 'cilium_host' };

function ipam(): IPAM {
  return new IPAM([
    ['default', ['10.1.0.0/24', 'fd00::/120']],
    ['small', ['10.2.0.0/31']],
    ['external', []],
  ]);
}

describe('addresses', () => {
  it('are allocated by exact value, in their pools, and only once', () => {
    const all = ipam();
    expect(all.reserve('10.1.0.7', ROUTER)).toBe('reserved');
    expect(all.reserve('::ffff:10.1.0.7', ROUTER)).toBe('reserved');
    expect(all.reserve('10.1.0.7', POD)).toBe('in-use');
    expect(all.reserve('10.1.0.7', { ...ROUTER, name: 'cilium_net' })).toBe('in-use');
    expect(all.reserve('10.1.0.7', { ...ROUTER, use: 'health' })).toBe('in-use');
    expect(all.ownerOf('10.1.0.7')).toEqual({ address: '10.1.0.7', pool: 'default', ...ROUTER });
    expect(all.reserve('10.1.1.7', POD)).toBe('outside');
    expect(all.reserve('10.1.0.8', POD, 'gone')).toBe('unknown-pool');
    expect(all.reserve('10.1.0', POD)).toBe('invalid');
    expect(all.reserve('203.0.113.9', POD, 'external')).toBe('reserved');
    const { reserved: taken, rejections } = all.status();
    expect(taken).toEqual({ default: 1, small: 0, external: 1 });
    expect(rejections.byReason).toEqual({ 'in-use': 3, outside: 1, 'unknown-pool': 1, invalid: 1 });
    expect(rejections.recent.map(({ message }) => message).slice(2)).toEqual([
      'cilium_host: address "10.1.0.7": already in use by another owner',
      'shop/web-1: address "10.1.1.7": not in a CIDR of the pool',
      'shop/web-1: address "10.1.0.8": unknown pool',
      'shop/web-1: address "10.1.0": invalid IP address',
    ]);
  });

  it('are released by their owner only', () => {
    const all = ipam();
    all.reserve('10.1.0.7', POD);
    expect(all.release('10.1.0.7', OTHER)).toBe(false);
    expect(all.release('10.1.0.7', { ...POD, use: 'health' })).toBe(false);
    expect(all.release('10.1.0.7', POD)).toBe(true);
    expect(all.release('10.1.0.7', POD)).toBe(false);
    expect(all.reserve('10.1.0.7', OTHER)).toBe('reserved');
  });

  it('are reused only after all others were allocated', () => {
    const all = ipam();
    expect([all.isOpen, all.isFree('10.1.0.9')]).toEqual([false, false]);
    all.reserve('10.1.0.9', POD);
    all.open();
    expect(all.isFree('10.1.0.9')).toBe(false);
    expect(all.isFree('10.1.0.10')).toBe(true);
  });

  it('are free except those of a network itself: the first, and of IPv4 the last, unless there are at most two', () => {
    for (let hostBits = 0; hostBits <= 6; hostBits++) {
      const count = 2 ** hostBits;
      const all = new IPAM([['default', [`10.1.0.64/${32 - hostBits}`, `ffff:ffff::40/${128 - hostBits}`]]]);
      all.open();
      for (let host = 0; host < 200; host++) {
        const isIn = host >= 64 && host < 64 + count;
        const isFirst = host === 64;
        const isLast = host === 63 + count;
        const [four, six] = [`10.1.0.${host}`, `ffff:ffff::${host.toString(16)}`];
        expect([four, hostBits, all.isFree(four)]).toEqual([
          four,
          hostBits,
          isIn && (count <= 2 || !(isFirst || isLast)),
        ]);
        expect([six, hostBits, all.isFree(six)]).toEqual([six, hostBits, isIn && (count <= 2 || !isFirst)]);
      }
    }
  });

  it('of all of IPv4 are free except the first and the last (regression: the last was free)', () => {
    const all = new IPAM([['default', ['0.0.0.0/0']]]);
    all.open();
    const free = ['0.0.0.0', '0.0.0.1', '255.255.255.254', '255.255.255.255'].map((ip) => all.isFree(ip));
    expect(free).toEqual([false, true, true, false]);
  });

  it('that are invalid, or of no pool, are not free, and have no owner', () => {
    const all = ipam();
    all.open();
    expect([
      all.isFree('nonsense'),
      all.isFree('10.1.0.7', 'gone'),
      all.isFree('203.0.113.9', 'external'),
    ]).toEqual([false, false, true]);
    expect([all.ownerOf('nonsense'), all.ownerOf('10.1.0.7', 'gone')]).toEqual([undefined, undefined]);
    expect([all.release('nonsense', POD), all.release('10.1.0.7', POD, 'gone')]).toEqual([false, false]);
  });

  it('of a pool without a valid CIDR do not exist (regression: any address was one)', () => {
    const all = new IPAM([['default', ['10.1.0.0/33']]]);
    all.open();
    expect([all.reserve('203.0.113.9', POD), all.isFree('203.0.113.9')]).toEqual(['outside', false]);
    expect(all.status().rejections.recent).toMatchObject([
      { reason: 'invalid-cidr', field: 'cidr', value: '"10.1.0.0/33"', at: 'default' },
      { reason: 'outside' },
    ]);
  });

  it('equal those of a plain map of address to owner', () => {
    const step = fc.record({
      take: fc.boolean(),
      address: fc.constantFrom('10.1.0.1', '10.1.0.2', 'fd00::1', '10.9.0.1'),
      owner: fc.constantFrom(POD, OTHER, ROUTER),
    });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 20 }), (steps) => {
        const all = ipam();
        const model = new Map<string, AddressOwner>();
        for (const { take, address, owner } of steps) {
          const held = model.get(address);
          if (take) {
            if (held === undefined && address !== '10.9.0.1') model.set(address, owner);
            expect(all.reserve(address, owner) === 'reserved').toBe(model.get(address) === owner);
          } else {
            if (held === owner) model.delete(address);
            expect(all.release(address, owner)).toBe(held === owner);
          }
        }
        const taken = Array.from(all.reserved(), ({ address, use, name }) => [address, use, name]).sort();
        expect(taken).toEqual([...model].map(([address, { use, name }]) => [address, use, name]).sort());
      }),
    );
  });
});
