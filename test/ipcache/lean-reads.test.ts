import { beforeEach, describe, expect, it } from 'vitest';
import type { AddressList } from '../../src/ipcache/address-list.ts';
import { IPCache } from '../../src/ipcache/ipcache.ts';
import { formatAddress } from '../../src/net/format-address.ts';

const WORLD = 2;
const POD = 300;
const PODS = 900;

function cacheOf(entries: Readonly<Record<string, number>>): IPCache {
  const cache = new IPCache();
  for (const [key, identity] of Object.entries(entries)) cache.upsert(key, { identity, source: 'k8s' });
  return cache;
}

let small = new IPCache();

beforeEach(() => {
  small = cacheOf({
    '0.0.0.0/0': WORLD,
    '10.1.0.0/16': PODS,
    '10.1.2.3': POD,
    '10.1.2.3/32': 301,
    '10.1.2.4/32': 302,
    'fd00::/64': PODS,
    'fd00::3': 4_294_967_295,
  });
});

function many(cache: IPCache, addresses: AddressList, count: number): readonly [number, readonly number[]] {
  const identities = new Uint32Array(count).fill(77);
  return [cache.lookupMany(addresses, identities), [...identities]];
}

/** Numbers of 32 bits, the same in each run (mulberry32). */
function randomWords(): () => number {
  let state = 7;
  return () => {
    state = (state + 0x6d2b_79f5) | 0;
    const word = Math.imul(state ^ (state >>> 15), 1 | state);
    const next = (word + Math.imul(word ^ (word >>> 7), 61 | word)) ^ word;
    return (next ^ (next >>> 14)) >>> 0;
  };
}

describe('reads of identities only', () => {
  it.each([
    '10.1.2.3',
    '::ffff:10.1.2.3',
    '10.1.2.3/32',
    '10.1.0.0/16',
    '10.1.7.0/24',
    'fd00::3',
    'FD00:0::3',
  ])('return that of the entry of the key %s', (key) => {
    expect(small.identityOf(key)).toBe(small.get(key)?.identity);
  });

  it.each([
    '10.1.2.3',
    '10.1.2.4',
    '10.1.9.9',
    '192.0.2.1',
    'fd00::3',
    'fd00::4',
    'fe80::1',
    '::ffff:10.1.2.4',
  ])('return that of the longest match of %s', (ip) => {
    expect(small.lookupIdentity(ip)).toBe(small.lookup(ip)?.identity);
  });

  it('return undefined for an invalid or unknown address', () => {
    for (const text of ['', '10.1.2', '10.1.2.3/33', 'localhost']) {
      expect([small.identityOf(text), small.lookupIdentity(text)], text).toEqual([undefined, undefined]);
    }
    expect(small.lookupIdentity('10.1.0.0/16')).toBeUndefined();
    expect([small.identityOf('10.1.2.9'), small.lookupIdentity('fe80::1')]).toEqual([undefined, undefined]);
  });

  it('accept an IPv4 address as a number; signed or too large ones have no identity', () => {
    expect([0x0a01_0203, 0x0a01_0909, 0xc000_0201].map((ip) => small.lookupIdentity(ip))).toEqual([
      300, 900, 2,
    ]);
    for (const ip of [-1, 2 ** 32, 0.5, Number.NaN])
      expect(small.lookupIdentity(ip), `${ip}`).toBeUndefined();
  });

  it('of a snapshot return the same, whatever is written later', () => {
    const cache = cacheOf({ '10.0.0.1': 300 });
    const before = cache.snapshot();
    cache.upsert('10.0.0.1', { identity: 301, source: 'k8s' });
    expect([before, cache].map((each) => each.identityOf('10.0.0.1'))).toEqual([300, 301]);
    expect([before, cache].map((each) => each.lookupIdentity('10.0.0.1'))).toEqual([300, 301]);
    expect([before, cache].map((each) => many(each as IPCache, ['10.0.0.1'], 1))).toEqual([
      [1, [300]],
      [1, [301]],
    ]);
  });
});

describe('identities of many addresses', () => {
  it('are returned at their indices, 0 if there is none', () => {
    const texts = ['10.1.2.3', 'nonsense', '10.1.9.9', 'fe80::1', '10.1.0.0/16', 'fd00::3'];
    expect(many(small, texts, texts.length)).toEqual([3, [300, 0, 900, 0, 0, 4_294_967_295]]);
    expect(many(small, Uint32Array.of(0x0a01_0204, 1), 2)).toEqual([2, [302, 2]]);
    expect(many(small, [], 0)).toEqual([0, []]);
  });

  it('leave indices after the last address unchanged, and reject an array that is too small', () => {
    expect(many(small, ['10.1.2.3'], 3)).toEqual([1, [300, 77, 77]]);
    expect(() => small.lookupMany(['10.1.2.3', '10.1.2.4'], new Uint32Array(1))).toThrow(/an element/);
  });

  it('find no entry for invalid text', () => {
    expect(many(small, [undefined, 5.5, null] as unknown as string[], 3)).toEqual([0, [0, 0, 0]]);
  });

  it('are read from records of a buffer', () => {
    const record = [9, 9, 10, 1, 2, 3, 9, 10, 1, 9, 9, 9, 9];
    const bytes = Uint8Array.from([...record, ...record.slice(0, 6)]);
    expect(many(small, { bytes, family: 4, offset: 2, stride: 13 }, 2)).toEqual([2, [300, 300]]);
    expect(many(small, { bytes, family: 4, offset: 7, stride: 13 }, 2)).toEqual([1, [900, 77]]);
    expect(many(small, { bytes: bytes.subarray(0, 3), family: 4 }, 1)).toEqual([0, [77]]);
    const mapped = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 10, 1, 2, 3];
    const ipv6 = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3];
    const both = Uint8Array.from([...mapped, ...ipv6, 1]);
    expect(many(small, { bytes: both, family: 6 }, 2)).toEqual([2, [300, 4_294_967_295]]);
  });

  it.each([
    [{ family: 5 as 4 }, /family/],
    [{ family: 4 as const, offset: -1 }, /offset/],
    [{ family: 4 as const, offset: 0.5 }, /offset/],
    [{ family: 4 as const, stride: 0 }, /stride/],
    [{ family: 4 as const, stride: Number.NaN }, /stride/],
  ])('are not read from %j', (layout, fault) => {
    const list = { bytes: new Uint8Array(64), ...layout };
    expect(() => small.lookupMany(list, new Uint32Array(16))).toThrow(fault);
  });

  it('are equal for thousands of addresses as texts, as numbers, in bytes, and one by one', () => {
    const next = randomWords();
    const cache = new IPCache();
    const some = (): number => 0x0a00_0000 | (next() & 0x0000_7fff);
    for (let i = 0; i < 2_000; i++) {
      const text = formatAddress({ family: 4, w0: some(), w1: 0, w2: 0, w3: 0 });
      const host = formatAddress({ family: 6, w0: 0xfd00_0000 | 0, w1: 0, w2: next() & 3, w3: some() });
      const claim = { identity: 1 + i, source: 'k8s' } as const;
      cache.upsert(i % 3 === 0 ? `${text}/${20 + (i % 12)}` : text, claim);
      cache.upsert(i % 3 === 0 ? `${host}/${90 + (i % 38)}` : host, claim);
    }
    const n = 3_000;
    const numbers = Uint32Array.from({ length: n }, some);
    const texts = Array.from(numbers, (w0) => formatAddress({ family: 4, w0: w0 | 0, w1: 0, w2: 0, w3: 0 }));
    const words = numbers.map((word, i) => (i % 7 === 0 ? next() : word));
    const wideTexts = Array.from(words, (w3, i) =>
      formatAddress({ family: 6, w0: 0xfd00_0000 | 0, w1: 0, w2: i & 3, w3: w3 | 0 }),
    );
    const bytes = new DataView(new ArrayBuffer(4 * n));
    const wide = new DataView(new ArrayBuffer(20 * n + 3));
    numbers.forEach((word, i) => {
      bytes.setUint32(4 * i, word);
    });
    words.forEach((word, i) => {
      wide.setUint32(20 * i + 3, 0xfd00_0000);
      wide.setUint32(20 * i + 3 + 8, i & 3);
      wide.setUint32(20 * i + 3 + 12, word);
    });
    const [found, identities] = many(cache, texts, n);
    expect(found).toBe(identities.filter((identity) => identity > 0).length);
    expect(many(cache, numbers, n)).toEqual([found, identities]);
    expect(many(cache, { bytes: new Uint8Array(bytes.buffer), family: 4 }, n)).toEqual([found, identities]);
    expect(texts.map((text) => cache.lookup(text)?.identity ?? 0)).toEqual(identities);
    expect(texts.map((text) => cache.lookupIdentity(text) ?? 0)).toEqual(identities);
    expect(Array.from(numbers, (number) => cache.lookupIdentity(number) ?? 0)).toEqual(identities);
    const ofWide = many(cache, wideTexts, n);
    const layout = { bytes: new Uint8Array(wide.buffer), family: 6, offset: 3, stride: 20 } as const;
    expect(many(cache, layout, n)).toEqual(ofWide);
    expect(wideTexts.map((text) => cache.lookup(text)?.identity ?? 0)).toEqual(ofWide[1]);
  });
});
