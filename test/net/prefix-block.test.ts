import { describe, expect, it } from 'vitest';
import { type PrefixRegister, parsePrefix, prefixRegister } from '../../src/net/prefix.ts';
import { BLOCK_KEYS, PrefixBlock } from '../../src/net/prefix-block.ts';

function key(text: string): PrefixRegister {
  const register = prefixRegister();
  expect(parsePrefix(text, register), text).toBe(true);
  return register;
}

describe('a block of keys', () => {
  it('returns every key that was added, and none otherwise', () => {
    const texts = [
      ['0.0.0.0/0', '10.1.2.3', '10.1.2.3/32', '255.255.255.255', '10.1.0.0/16', '128.0.0.0/1'],
      [
        '::/0',
        '::',
        '::/128',
        'fd00:1:2:3:4:5:6:7',
        'ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128',
        'fd00::/8',
      ],
    ].flat();
    const block = new PrefixBlock();
    const out = prefixRegister();
    expect(block.get(0, out)).toBe(false);
    texts.forEach((text, i) => {
      block.set(i, key(text));
    });
    texts.forEach((text, i) => {
      expect(block.get(i, out), text).toBe(true);
      expect(out, text).toEqual(key(text));
    });
    block.set(1, undefined);
    expect([block.get(1, out), block.get(texts.length, out), block.get(BLOCK_KEYS, out)]).toEqual([
      false,
      false,
      false,
    ]);
    expect(out).toEqual(key(texts.at(-1) ?? ''));
  });

  it.each([
    ['neighbours in a /24', ['10.0.0.1', '10.0.0.10', '10.0.0.100', '10.0.1.0/24', '10.0.1.7'], false],
    ['addresses of several /24s', ['10.0.0.1', '10.0.1.1', '10.0.2.1', '10.0.3.1', '10.0.3.2'], true],
    [
      'neighbours in a /64',
      ['fd00::1', 'fd00::2', 'fd00::ffff:0:0', 'fd00:0:0:1::1', 'fd00:0:0:1::2'],
      false,
    ],
    ['addresses of several /64s', ['fd00::1', 'fd00:0:0:1::1', 'fd00:0:1::1', 'fd01:0:1::1'], true],
    [
      'addresses of several /32s, whose next words are alike',
      ['fd00::1', 'fd01::1', 'fd02::1', 'fd03::1'],
      true,
    ],
    ['half neighbours', ['10.0.0.1', '10.0.0.2', '10.0.1.1', '10.0.1.2'], false],
    ['nothing', [], false],
  ])('decides whether to prefetch: %s', (_, texts, scattered) => {
    const block = new PrefixBlock();
    texts.forEach((text, i) => {
      block.set(i, key(text));
    });
    expect(block.isScattered(texts.length)).toBe(scattered);
  });

  it('reads no key after those of its call', () => {
    const block = new PrefixBlock();
    ['10.0.0.1', '10.0.1.1', '10.0.1.2', '10.0.1.3'].forEach((text, i) => {
      block.set(i, key(text));
    });
    expect([2, 3, 4].map((count) => block.isScattered(count))).toEqual([true, true, false]);
  });

  it('has room for 256', () => {
    const block = new PrefixBlock();
    const out = prefixRegister();
    for (let i = 0; i < BLOCK_KEYS; i++) block.set(i, key(`10.0.0.${i}`));
    for (let i = 0; i < BLOCK_KEYS; i++) {
      block.get(i, out);
      expect(out.w0).toBe(0x0a00_0000 + i);
    }
  });
});
