import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { IPCache } from '../../src/ipcache/ipcache.ts';
import { Prefix } from '../../src/net/prefix.ts';
import { SharedLookup } from '../../src/sharedlookup/shared-lookup.ts';
import { openLookup, type SharedEntry, type SharedReader } from '../../src/sharedlookup/shared-reader.ts';
import { address, apply, write } from './support/operations.ts';

/** Returns the expected result of a reader for an address, computed from the cache. */
function expectedOf(cache: IPCache, ip: string): SharedEntry | undefined {
  const entry = cache.lookup(ip);
  if (entry === undefined) return undefined;
  const { key, identity, hostIP, encryptKey } = entry;
  return { prefix: String(Prefix.parse(key)), identity, hostIP, encryptKey };
}

function expectEqual(cache: IPCache, reader: SharedReader, addresses: readonly string[]): void {
  const visible = [...cache.entries()].filter(({ key }) => !key.includes('@'));
  expect(reader.size).toBe(visible.length);
  expect(reader.revision).toBe(cache.revision);
  for (const { key, identity } of visible) expect(reader.identityOf(key)).toBe(identity);
  const expected = addresses.map((ip) => expectedOf(cache, ip));
  expect(addresses.map((ip) => reader.lookup(ip))).toEqual(expected);
  expect(addresses.map((ip) => reader.lookupIdentity(ip))).toEqual(expected.map((entry) => entry?.identity));
  const identities = new Uint32Array(addresses.length);
  expect(reader.lookupMany(addresses, identities)).toBe(expected.filter((entry) => entry).length);
  expect([...identities]).toEqual(expected.map((entry) => entry?.identity ?? 0));
}

describe('a reader returns what the cache returns', () => {
  it('after any writes and batches, and if it is opened at any time', () => {
    const step = fc.oneof(write, fc.array(write, { maxLength: 20 }), fc.constant('open' as const));
    const steps = fc.array(step, { maxLength: 60, size: 'max' });
    fc.assert(
      fc.property(steps, fc.array(address), fc.integer(), fc.nat(5), (list, addresses, hashSeed, before) => {
        const cache = new IPCache();
        const readers: SharedReader[] = [];
        let lookup: SharedLookup | undefined;
        for (const [i, each] of list.entries()) {
          if (i >= before) lookup ??= new SharedLookup(cache, { hashSeed, maxBytes: 1 << 20 });
          if (each === 'open') {
            if (lookup !== undefined) readers.push(openLookup(structuredClone(lookup.handle)));
          } else if (Array.isArray(each)) {
            cache.batch(() => {
              for (const one of each) apply(cache, one);
            });
          } else apply(cache, each);
        }
        lookup ??= new SharedLookup(cache, { hashSeed, maxBytes: 1 << 20 });
        readers.push(openLookup(lookup.handle));
        const asked = [...addresses, ...Array.from(cache.entries(), ({ key }) => key.replace(/[/@].*/, ''))];
        for (const reader of readers) expectEqual(cache, reader, asked);
        expect(lookup.status()).toMatchObject({
          entries: readers[0]?.size,
          waiting: 0,
          revision: cache.revision,
        });
      }),
      { numRuns: Math.ceil((fc.readConfigureGlobal().numRuns ?? 300) / 2) },
    );
  });
});

it('omits prefixes of other address spaces (regression: 10.0.0.1@5 replaced 10.0.0.1)', () => {
  const cache = new IPCache();
  const lookup = new SharedLookup(cache, { maxBytes: 1 << 20 });
  const reader = openLookup(lookup.handle);
  for (const [key, identity] of [
    ['10.0.0.1', 1],
    ['10.0.0.1@5', 2],
    ['10.0.0.2@5', 3],
  ] as const)
    cache.upsert(key, { identity, source: 'kvstore' });
  cache.delete('10.0.0.1@5', { source: 'kvstore' });
  expect(reader.lookup('10.0.0.1')).toMatchObject({ prefix: '10.0.0.1/32', identity: 1 });
  expect([reader.size, reader.identityOf('10.0.0.2@5')]).toEqual([1, undefined]);
});
