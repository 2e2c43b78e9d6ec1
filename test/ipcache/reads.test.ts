import fc from 'fast-check';
import ipaddr from 'ipaddr.js';
import { describe, expect, it } from 'vitest';
import { IPCache } from '../../src/ipcache/ipcache.ts';
import type { KeyedEntry } from '../../src/ipcache/types.ts';
import { apply, history, SPELLINGS } from './support/operations.ts';

/** A prefix as numbers, parsed by another library. */
interface Block {
  readonly family: 4 | 6;
  readonly first: bigint;
  readonly length: number;
  readonly space: string | undefined;
}

function blockOf(key: string): Block {
  const [prefix = '', space] = key.split('@');
  const [address = '', length] = prefix.split('/');
  const bytes = ipaddr.parse(address).toByteArray();
  const first = bytes.reduce((sum, byte) => (sum << 8n) | BigInt(byte), 0n);
  return { family: bytes.length === 4 ? 4 : 6, first, length: Number(length ?? bytes.length * 8), space };
}

/** Returns the visible entries in a block, by a scan of all. */
function naiveWithin(entries: Iterable<KeyedEntry>, around: Block): readonly string[] {
  const shift = BigInt((around.family === 4 ? 32 : 128) - around.length);
  return [...entries]
    .map(({ key }) => ({ key, block: blockOf(key) }))
    .filter(
      ({ block }) =>
        block.space === around.space &&
        block.family === around.family &&
        block.length >= around.length &&
        block.first >> shift === around.first >> shift,
    )
    .sort((a, b) => Number(a.block.first - b.block.first) || a.block.length - b.block.length)
    .map(({ key }) => key);
}

/** `10.0.0.0/28` and around: so few addresses that most of them, and their prefixes, are used. */
const ADDRESS = fc.integer({ min: 0, max: 31 }).map((last) => `10.0.0.${last}`);
/** Around `fd00::1:0:0`, where an increment carries from one machine word into the next. */
const ADDRESS6 = fc.integer({ min: -16, max: 15 }).map((offset) => {
  const number = (0xfd00n << 112n) + (1n << 32n) + BigInt(offset);
  return (number.toString(16).match(/.{4}/g) ?? []).join(':');
});
const KEY = fc.oneof(
  ADDRESS,
  fc.tuple(ADDRESS, fc.integer({ min: 20, max: 32 })).map(([ip, length]) => `${ip}/${length}`),
  ADDRESS6,
  fc.tuple(ADDRESS6, fc.integer({ min: 90, max: 128 })).map(([ip, length]) => `${ip}/${length}`),
);

describe('within', () => {
  it('returns the visible entries in a prefix in order, like a scan of all entries', () => {
    fc.assert(
      fc.property(fc.array(KEY, { maxLength: 60 }), fc.array(KEY, { minLength: 1 }), (keys, prefixes) => {
        const cache = new IPCache();
        for (const key of keys) cache.upsert(key, { identity: 300, source: 'k8s' });
        const snapshot = cache.snapshot();
        for (const prefix of prefixes) {
          const found = cache.within(prefix);
          // Masked by the cache itself, whose entries have canonical keys.
          const expected = naiveWithin(cache.entries(), blockOf(prefix));
          expect(found.map(({ key }) => key)).toEqual(expected);
          expect(found).toEqual(found.map(({ key }) => cache.get(key)));
          expect(snapshot.within(prefix)).toEqual(found);
        }
      }),
    );
  });

  it('is correct while claims change, for every spelling', () => {
    fc.assert(
      fc.property(history, fc.constantFrom(...SPELLINGS), (operations, { text, key }) => {
        const cache = new IPCache();
        for (const operation of operations) apply(cache, operation);
        const found = cache.within(text).map((entry) => entry.key);
        expect(found).toEqual(naiveWithin(cache.entries(), blockOf(key)));
      }),
    );
  });

  it('hides the CIDR of an endpoint, and returns nothing for an invalid prefix', () => {
    const cache = new IPCache();
    cache.upsert('10.0.0.1/32', { identity: 300, source: 'k8s' });
    cache.upsert('10.0.0.1', { identity: 400, source: 'k8s' });
    cache.upsert('::ffff:10.0.0.0/120', { identity: 500, source: 'k8s' });
    expect(cache.within('10.0.0.0/8').map(({ identity }) => identity)).toEqual([500, 400]);
    expect(cache.within('10.0.0.1').map(({ identity }) => identity)).toEqual([400]);
    expect(cache.within('10.0.0.0/8', 0), 'a limit of 0 returned one entry').toEqual([]);
    expect([cache.within('::/0'), cache.within('10.0.0.0/33'), cache.within('')]).toEqual([[], [], []]);
  });
});

/** Returns keys by a text of their entries, by a scan of all. */
function keysBy(cache: IPCache, textOf: (entry: KeyedEntry) => string | undefined): Map<string, string[]> {
  const keys = new Map<string, string[]>();
  for (const entry of cache.entries({ includeShadowed: true })) {
    const text = textOf(entry);
    if (text !== undefined) keys.set(text, [...(keys.get(text) ?? []), entry.key].sort());
  }
  return keys;
}

const PODS = ['a', 'b', ''];
const HOSTS = ['192.168.0.1', 'fd01::1', '192.168.0.2'];

describe('lookupByPod and lookupByHost', () => {
  it.each([
    ['from the beginning', true],
    ['late', false],
  ])('return the same as a scan of all entries, called %s', (_name, early) => {
    fc.assert(
      fc.property(history, (operations) => {
        const cache = new IPCache();
        const ask = (): void => {
          const byPod = keysBy(cache, ({ k8s }) => k8s && `${k8s.namespace}/${k8s.podName}`);
          for (const pod of PODS)
            expect([...cache.lookupByPod('shop', pod)].sort()).toEqual(byPod.get(`shop/${pod}`) ?? []);
          const byHost = keysBy(cache, ({ hostIP }) => hostIP);
          for (const host of HOSTS)
            expect([...cache.lookupByHost(host)].sort()).toEqual(byHost.get(host) ?? []);
        };
        if (early) ask();
        for (const operation of operations) {
          apply(cache, operation);
          if (early) ask();
        }
        ask();
      }),
    );
  });

  it('accept any spelling of a host, and distinguish names that are equal when joined', () => {
    const cache = new IPCache();
    const claim = { identity: 300, source: 'k8s', hostIP: '::ffff:192.168.0.1' } as const;
    cache.upsert('10.0.0.1', { ...claim, k8s: { namespace: 'a/b', podName: 'c' } });
    cache.upsert('10.0.0.2', { ...claim, k8s: { namespace: 'a', podName: 'b/c' } });
    expect(cache.lookupByHost('::ffff:192.168.0.1')).toHaveLength(2);
    expect(cache.lookupByHost('no host')).toEqual([]);
    expect(cache.lookupByPod('a', 'b/c')).toEqual(['10.0.0.2']);
    expect(cache.lookupByPod('a/b', 'c')).toEqual(['10.0.0.1']);
  });
});
