import { describe, expect, it } from 'vitest';
import { IPCache } from '../../src/ipcache/ipcache.ts';
import type { ClaimWriter } from '../../src/ipcache/types.ts';

const KEYS = Array.from({ length: 600 }, (_, index) => `10.0.${index >> 8}.${index & 255}`);

function isRestored({ source }: ClaimWriter): boolean {
  return source === 'restored';
}

/** Reads all keys. Calls `change` after the first step. */
function keysOf(
  cache: IPCache,
  isWanted: (writer: ClaimWriter) => boolean,
  change: () => void = () => {},
): readonly string[] {
  const steps = cache.keysOfWriters(isWanted);
  const first = steps.next().value ?? [];
  change();
  return [...first, ...[...steps].flat()];
}

describe('the keys of writers', () => {
  it('contain a key once whose claim is overruled during the iteration', () => {
    const cache = new IPCache();
    for (const key of KEYS) cache.upsert(key, { identity: 300, source: 'restored' });
    const keys = keysOf(cache, isRestored, () => {
      for (const key of KEYS) cache.upsert(key, { identity: 301, source: 'k8s' });
    });
    expect(keys.toSorted()).toEqual(KEYS.toSorted());
  });

  it('contain a key once whose claim becomes effective again during the iteration', () => {
    const cache = new IPCache();
    for (const key of KEYS) {
      cache.upsert(key, { identity: 300, source: 'restored' });
      cache.upsert(key, { identity: 301, source: 'k8s' });
    }
    const keys = keysOf(cache, isRestored, () => cache.withdraw({ source: 'k8s' }));
    expect(keys.toSorted()).toEqual(KEYS.toSorted());
  });

  it('contain no key of a writer that has got the number of a wanted one', () => {
    const cache = new IPCache();
    for (const key of KEYS) cache.upsert(key, { identity: 300, source: 'restored' });
    const keys = keysOf(cache, isRestored, () => {
      cache.withdraw({ source: 'restored' });
      for (const key of KEYS) cache.upsert(key, { identity: 301, source: 'k8s' });
    });
    expect(keys.length).toBeLessThan(KEYS.length);
  });

  it('are read in steps of bounded length, also if no overruled claim matches', () => {
    const cache = new IPCache();
    for (let index = 0; index < 40_000; index++) {
      const key = `10.${index >> 16}.${(index >> 8) & 255}.${index & 255}`;
      cache.upsert(key, { identity: 300, source: 'restored' });
      cache.upsert(key, { identity: 301, source: 'k8s' });
    }
    let tested = 0;
    const steps = cache.keysOfWriters(({ source }) => {
      tested++;
      return source === 'kvstore';
    });
    steps.next();
    expect(tested).toBeLessThan(20_000);
    expect([...steps].flat()).toEqual([]);
    expect(tested).toBeGreaterThan(40_000);
  });
});
