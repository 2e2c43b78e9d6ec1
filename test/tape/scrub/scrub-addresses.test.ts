import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { canonicalKey, Prefix } from '../../../src/net/prefix.ts';
import { AddressScrub } from '../../../src/tape/scrub/scrub-addresses.ts';

const scrub = new AddressScrub(Buffer.alloc(32, 7));

const address = fc.oneof(
  fc.ipV4(),
  fc.ipV6(),
  // Neighbours, which share many bits.
  fc.tuple(fc.nat(3), fc.nat(255)).map(([a, b]) => `10.0.${a}.${b}`),
  fc.nat(0xffff).map((group) => `fd00::1:${group.toString(16)}`),
);

const prefix = fc.tuple(address, fc.nat(128)).map(([text, length]) => {
  const bits = text.includes(':') ? 128 : 32;
  return canonicalKey(`${text}/${length % (bits + 1)}`) ?? text;
});

function bitsOf(text: string): string {
  const of = Prefix.parse(text);
  if (of === undefined) throw new Error(text);
  const words = of.family === 4 ? [of.w0] : [of.w0, of.w1, of.w2, of.w3];
  return words.map((word) => (word >>> 0).toString(2).padStart(32, '0')).join('');
}

function common(a: string, b: string): number {
  const [first, second] = [bitsOf(a), bitsOf(b)];
  if (first.length !== second.length) return -1;
  const index = [...first].findIndex((bit, i) => bit !== second[i]);
  return index < 0 ? first.length : index;
}

describe('the addresses of a scrubbed tape', () => {
  it('have as many leading bits in common as before', () => {
    fc.assert(
      fc.property(address, address, (a, b) => {
        expect(common(scrub.replace(a) ?? '', scrub.replace(b) ?? '')).toBe(common(a, b));
      }),
    );
  });

  it('are in the replacements of the prefixes that contained them', () => {
    fc.assert(
      fc.property(prefix, (text) => {
        const [ip = '', length] = text.split('/');
        const outer = scrub.replace(text) ?? '';
        expect(canonicalKey(outer)).toBe(outer);
        expect(outer.split('/')[1]).toBe(length);
        expect(common(outer.split('/')[0] ?? '', scrub.replace(ip) ?? '')).toBeGreaterThanOrEqual(
          Number(length ?? 0),
        );
      }),
    );
  });

  it.each(['0.0.0.0/0', '::/0', '127.0.0.1', '169.254.1.1', '224.0.0.1', '::1', 'fe80::1', 'ff02::1'])(
    'are kept if they have a meaning of their own: %s',
    (text) => {
      expect(scrub.replace(text)).toBe(text);
    },
  );

  it('keep their address space, and whether their spelling is canonical (regression: 10.0.0.2@05 was 10.0.0.3@05)', () => {
    expect(scrub.replace('10.0.0.1@5')).toMatch(/^\d+\.\d+\.\d+\.\d+@5$/);
    // The address space 05 is canonically 5.
    const texts = ['::ffff:10.0.0.1', 'FD00::1', '10.0.0.1/24', 'fd00::1/64', '::ffff:10.0.0.0/104'];
    const spaces = ['10.0.0.2@05', '10.0.0.3@05', '10.0.0.2/32@05', '10.0.0.0/24@05', 'fd00::2@05'];
    for (const text of [...texts, ...spaces]) {
      const other = scrub.replace(text) ?? '';
      expect(canonicalKey(other)).toBe(scrub.replace(canonicalKey(text) ?? ''));
      expect(canonicalKey(other)).not.toBe(other);
    }
    for (const text of ['', 'a', '10.0.0', '010.0.0.1', '10.0.0.1/33', 'fd00::1%eth0'])
      expect(scrub.replace(text)).toBeUndefined();
  });

  it('differ with the secret, and so does most of their bits from the original', () => {
    const other = new AddressScrub(Buffer.alloc(32, 8));
    expect(other.replace('10.1.2.3')).not.toBe(scrub.replace('10.1.2.3'));
  });
});
