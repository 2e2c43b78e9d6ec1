import { afterEach, describe, expect, it, vi } from 'vitest';
import { mix } from '../../src/columns/mix.ts';
import { IPCache } from '../../src/ipcache/ipcache.ts';
import { type PrefixRegister, parsePrefix, prefixRegister } from '../../src/net/prefix.ts';
import { SharedLookup } from '../../src/sharedlookup/shared-lookup.ts';
import { requireSharedMemory } from '../../src/sharedlookup/shared-memory.ts';
import { openLookup } from '../../src/sharedlookup/shared-reader.ts';
import { type SharedAttributes, SharedTable } from '../../src/sharedlookup/shared-table.ts';

const MIB: number = 1 << 20;

function ipOf(index: number): string {
  return `10.${index >>> 16}.${(index >>> 8) & 255}.${index & 255}`;
}

describe('a full shared memory', () => {
  it('keeps what it has, and admits the other prefixes when some are deleted', () => {
    const cache = new IPCache();
    const lookup = new SharedLookup(cache, { maxBytes: MIB });
    const reader = openLookup(lookup.handle);
    const keys = Array.from({ length: 80_000 }, (_, i) => ipOf(i));
    for (const key of keys) cache.upsert(key, { identity: 7, source: 'k8s' });
    const { entries, waiting } = lookup.status();
    expect(entries).toBeGreaterThan(40_000);
    expect(entries + waiting).toBe(80_000);
    expect(reader.size).toBe(entries);

    // A waiting prefix that changes is admitted with its last value. One that is deleted is not.
    const [changed = '', deleted = ''] = keys.filter((key) => reader.identityOf(key) === undefined);
    cache.upsert(changed, { identity: 8, source: 'k8s' });
    cache.delete(deleted, { source: 'k8s' });
    expect(lookup.status().waiting).toBe(waiting - 1);
    cache.upsert(keys[0] ?? '', { identity: 9, source: 'k8s' });
    expect(reader.identityOf(keys[0] ?? '')).toBe(9);

    // The room of deleted prefixes is used by others with similar hashes.
    cache.batch(() => {
      for (let i = 1; i < 70_000; i++) if (ipOf(i) !== changed) cache.delete(ipOf(i), { source: 'k8s' });
    });
    expect(lookup.status()).toMatchObject({ waiting: 0, entries: cache.size });
    expect(reader.identityOf(changed)).toBe(8);
    expect(reader.identityOf(deleted)).toBe(undefined);
    for (let i = 70_000; i < 80_000; i++)
      expect(reader.lookupIdentity(ipOf(i))).toBe(cache.lookupIdentity(ipOf(i)));
  });

  it('does not grow while entries come and go', () => {
    const table = new SharedTable(4 * MIB, 0);
    const empty = table.bytes;
    const count = 2_000;
    const key = prefixRegister();
    const keyOf = (i: number): PrefixRegister => {
      parsePrefix(ipOf(i), key);
      return key;
    };
    const value = (i: number): SharedAttributes => ({
      identity: 7,
      hostIP: `192.0.2.${i % 200}`,
      encryptKey: 0,
    });
    const held = Array.from({ length: count }, (_, i) => i);
    let next = count;
    let random = 7;
    /** Replaces as many prefixes as there are, each of them chosen at random, in batches of 10. */
    const churn = (): void => {
      for (let i = 0; i < count; i++) {
        if (i % 10 === 0) table.begin();
        random = (Math.imul(random, 1_103_515_245) + 12_345) | 0;
        const at = (random >>> 8) % count;
        table.remove(keyOf(held[at] ?? 0));
        table.set(keyOf(next), value(next));
        held[at] = next++;
        if (i % 10 === 9) table.publish(next);
      }
    };
    table.begin();
    for (const i of held) table.set(keyOf(i), value(i));
    table.publish(1);
    churn();
    const { bytes } = table;
    // Without merged leaves, twice as much after 60 rounds.
    for (let round = 0; round < 60; round++) churn();
    expect(table.size).toBe(count);
    expect(table.bytes - empty).toBeLessThan(1.1 * (bytes - empty));

    // The remaining prefixes need little memory, and the rest is free.
    for (const [at, i] of held.splice(100).entries()) {
      if (at % 10 === 0) table.begin();
      table.remove(keyOf(i));
      if (at % 10 === 9) table.publish(next);
    }
    table.publish(next);
    expect(table.size).toBe(100);
    expect(table.bytes - empty).toBeLessThan((bytes - empty) / 3);
    const reader = openLookup({ buffer: table.buffer });
    for (const i of held) expect(reader.lookupIdentity(ipOf(i))).toBe(7);
  });
});

/** Writes a prefix for each index in batches of a size. Returns the number of those that were written. */
function writeAll(
  table: SharedTable,
  family: 4 | 6,
  count: number,
  { size, remove = false }: { readonly size: number; readonly remove?: boolean },
): number {
  const key = prefixRegister();
  let done = 0;
  for (let i = 0; i < count; i++) {
    if (i % size === 0) table.begin();
    parsePrefix(family === 4 ? ipOf(i) : `fd00::${i >>> 16}:${(i & 0xffff).toString(16)}`, key);
    const value = { identity: 1 + i, hostIP: undefined, encryptKey: 0 };
    if (remove ? table.remove(key) : table.set(key, value)) done++;
    if (i % size === size - 1 || i === count - 1) table.publish(i);
  }
  return done;
}

describe('prefixes of one family that replace those of the other', () => {
  it('are refused when the memory is used up, and never fail (regression: every later batch failed)', () => {
    const table = new SharedTable(2 * MIB, 0, MIB / 2);
    const count = 130_000;
    // Each prefix changes in one batch, so that every leaf has a copy.
    for (const family of [4, 6, 4] as const) {
      const written = writeAll(table, family, count, { size: count });
      expect(writeAll(table, family, count, { size: count })).toBe(written);
      expect(written).toBeGreaterThan(family === 4 ? 100_000 : 1_000);
      const reader = openLookup({ buffer: table.buffer });
      expect(reader.size).toBe(written);
      expect(writeAll(table, family, count, { size: 500, remove: true })).toBe(written);
      expect(table.size).toBe(0);
    }
  });
});

describe('pairs of host and encryption key', () => {
  const write = (table: SharedTable, index: number, host: number): boolean => {
    const key = prefixRegister();
    parsePrefix(ipOf(index), key);
    return table.set(key, { identity: 7, hostIP: ipOf(host), encryptKey: 1 });
  };

  it('reuse their memory within a batch (regression: the lookup closed)', () => {
    const table = new SharedTable(MIB, 0, MIB / 2);
    table.begin();
    for (let host = 0; host < 70_000; host++) if (!write(table, host % 8, host)) expect.fail(ipOf(host));
    table.publish(1);
    expect(openLookup({ buffer: table.buffer }).lookup(ipOf(3))).toMatchObject({ hostIP: ipOf(69_995) });
  });

  it('are refused when the memory is used up (regression: the lookup closed)', () => {
    const table = new SharedTable(MIB, 0, MIB / 2);
    const reader = openLookup({ buffer: table.buffer });
    table.begin();
    const written = Array.from({ length: 70_000 }, (_, i) => write(table, i, i)).filter(Boolean).length;
    table.publish(1);
    expect([written > 10_000, reader.size]).toEqual([true, written]);
    // A prefix whose new host does not fit is removed, because the old host is wrong.
    table.begin();
    expect([write(table, 5, 70_000), write(table, 6, 7)]).toEqual([false, true]);
    table.publish(2);
    expect([reader.lookup(ipOf(5)), reader.lookup(ipOf(6))]).toMatchObject([undefined, { hostIP: ipOf(7) }]);
  });

  it('leave room for other prefixes, and waiting prefixes take their place (regression: 20 prefixes had room)', () => {
    const cache = new IPCache();
    const lookup = new SharedLookup(cache, { maxBytes: MIB });
    const reader = openLookup(lookup.handle);
    const upsert = (index: number, host: number): unknown =>
      cache.upsert(ipOf(index), { identity: 7, source: 'k8s', hostIP: ipOf(host) });
    cache.batch(() => {
      for (let i = 0; i < 20_000; i++) upsert(i, i);
    });
    const { entries, waiting } = lookup.status();
    expect([waiting > 0, entries + waiting]).toEqual([true, 20_000]);

    // Every prefix moves to another host: twice as many pairs as fit, until the batch ends.
    cache.batch(() => {
      for (let i = 0; i < 20_000; i++) upsert(i, 20_000 + i);
    });
    expect(lookup.status()).toMatchObject({ entries, waiting });
    for (const { key, hostIP } of cache.entries())
      if (![undefined, hostIP].includes(reader.lookup(key)?.hostIP)) expect.fail(key);

    cache.batch(() => {
      for (let i = 0; i < 20_000; i++) if (reader.lookup(ipOf(i))) cache.delete(ipOf(i), { source: 'k8s' });
    });
    expect(lookup.status()).toMatchObject({ entries: waiting, waiting: 0 });
    cache.batch(() => {
      for (let i = 0; i < 20_000; i++) cache.delete(ipOf(i), { source: 'k8s' });
    });
    cache.batch(() => {
      for (let i = 0; i < 16_000; i++) upsert(i, 1);
    });
    expect(lookup.status()).toMatchObject({ entries: 16_000, waiting: 0 });
  });
});

describe('a memory that cannot grow', () => {
  afterEach(() => vi.restoreAllMocks());

  it('closes the lookup with its last complete batch, and does not affect the cache (regression: readers saw parts of later batches)', () => {
    const cache = new IPCache();
    const lookup = new SharedLookup(cache, { maxBytes: 4 * MIB });
    const reader = openLookup(lookup.handle);
    cache.upsert(ipOf(0), { identity: 1, source: 'k8s' });
    vi.spyOn(SharedArrayBuffer.prototype, 'grow').mockImplementation(() => {
      throw new RangeError('out of memory');
    });
    cache.batch(() => {
      for (let i = 0; i < 100_000; i++) cache.upsert(ipOf(i), { identity: 2, source: 'k8s' });
    });
    cache.upsert(ipOf(1), { identity: 3, source: 'k8s' });
    expect([cache.size, cache.lookupIdentity(ipOf(1)), cache.status().listenerFaults]).toEqual([
      100_000, 3, 0,
    ]);
    expect(lookup.status()).toMatchObject({ closed: true, revision: 1, failure: 'out of memory' });
    expect([reader.closed, reader.revision, reader.size, reader.identityOf(ipOf(0))]).toEqual([
      true,
      1,
      1,
      1,
    ]);
    expect(() => new SharedLookup(cache, { maxBytes: 4 * MIB })).toThrow(
      expect.objectContaining({ name: 'SharedMemoryError', code: 'refused' }),
    );
    vi.restoreAllMocks();
    expect(new SharedLookup(cache, { maxBytes: 4 * MIB }).status()).toMatchObject({
      entries: 100_000,
      failure: undefined,
    });
  });
});

/**
 * Returns the i-th of many addresses whose third word compensates for the effect of the second on the hash.
 */
function collidingKey(index: number): PrefixRegister {
  const w0 = 0xfd00_0000 | 0;
  const hash = mix(mix(mix(0, 128), w0), index);
  return {
    ...prefixRegister(),
    family: 6,
    form: 'cidr',
    length: 128,
    w0,
    w1: index,
    w2: hash ^ 12_345,
    w3: 1,
  };
}

it('reserves as little memory for entries that exist as for those that are written later (regression: twice as much)', () => {
  const cache = new IPCache();
  const later = new SharedLookup(cache);
  cache.batch(() => {
    for (let i = 0; i < 300_000; i++) cache.upsert(ipOf(i), { identity: 7, source: 'k8s' });
  });
  const existing = new SharedLookup(cache);
  expect(existing.status().bytes).toBe(later.status().bytes);
  expect(existing.status().reservedBytes).toBeLessThan(24 * cache.size);
});

it('finds keys that all have the same hash', () => {
  const table = new SharedTable(MIB, 0);
  const reader = openLookup({ buffer: table.buffer });
  const value = { hostIP: undefined, encryptKey: 0 };
  const ask = (index: number): number | undefined => {
    const { w1, w2 } = collidingKey(index);
    const groups = [w1, w2].flatMap((word) => [(word >>> 16).toString(16), (word & 0xffff).toString(16)]);
    return reader.lookupIdentity(`fd00:0:${groups.join(':')}:0:1`);
  };
  table.begin();
  for (let i = 0; i < 300; i++) table.set(collidingKey(i), { identity: i, ...value });
  table.publish(1);
  expect(Array.from({ length: 301 }, (_, i) => ask(i))).toEqual([...Array(300).keys(), undefined]);
  table.begin();
  for (let i = 0; i < 300; i += 2) expect(table.remove(collidingKey(i))).toBe(true);
  table.publish(2);
  const left = Array.from({ length: 300 }, (_, i) => (i % 2 === 0 ? undefined : i));
  expect(Array.from({ length: 300 }, (_, i) => ask(i))).toEqual(left);
});

describe('a wrong use is named', () => {
  it('where memory cannot be shared', () => {
    expect(() => requireSharedMemory({})).toThrow(/Cross-Origin-Opener-Policy: same-origin/);
    expect(() => requireSharedMemory({ SharedArrayBuffer, crossOriginIsolated: false })).toThrow(
      expect.objectContaining({ name: 'SharedMemoryError', code: 'unsupported', retryable: false }),
    );
    expect(() => requireSharedMemory({ SharedArrayBuffer: { prototype: {} } })).toThrow(/cannot grow/);
    requireSharedMemory({ SharedArrayBuffer, crossOriginIsolated: true });
  });

  it('in options and handles', () => {
    for (const maxBytes of [0, 1.5, Number.NaN, 2 ** 40])
      expect(() => new SharedLookup(new IPCache(), { maxBytes })).toThrow(/options\.maxBytes must be/);
    expect(() => Reflect.apply(openLookup, undefined, [{ buffer: new ArrayBuffer(9) }])).toThrow(
      'openLookup: handle.buffer must be a SharedArrayBuffer',
    );
    for (const bytes of [0, 4096])
      expect(() => openLookup({ buffer: new SharedArrayBuffer(bytes) })).toThrow(/not of a SharedLookup/);
  });

  it('in lookups', () => {
    const lookup = new SharedLookup(new IPCache(), { maxBytes: MIB });
    const reader = openLookup(lookup.handle);
    expect(() => reader.lookupMany(['10.0.0.1'], new Uint32Array(0))).toThrow(/an element for each address/);
    expect(() => Reflect.apply(reader.lookupMany, reader, [7, new Uint32Array(1)])).toThrow(
      /lookupMany: addresses/,
    );
    for (const ip of ['', 'x', '10.0.0.0/8', -1, 1.5, 2 ** 32])
      expect(reader.lookupIdentity(ip)).toBe(undefined);
    for (const wrong of [undefined, null, {}])
      expect(Reflect.apply(reader.lookupIdentity, reader, [wrong])).toBe(undefined);
    lookup.close();
    lookup.close();
    expect([reader.closed, reader.lookup('10.0.0.1')]).toEqual([true, undefined]);
  });
});
