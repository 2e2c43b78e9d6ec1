import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { charactersOf } from '../../../src/kvstore/codec/bytes.ts';
import { encodeIPIdentityPair } from '../../../src/kvstore/codec/ip-identity-pair.ts';
import {
  ExpandedBlocks,
  PackedValues,
  packValues,
  type StoredValue,
} from '../../../src/kvstore/memory/packed-values.ts';

const stored = (value: Uint8Array | undefined, index: number): StoredValue => ({
  value: value === undefined ? undefined : charactersOf(value),
  index,
});
const none = stored(undefined, 0);

/** Compares bytes. `toEqual` takes 100 times as long. */
function isEqual(a: Uint8Array | undefined, b: Uint8Array | undefined): boolean {
  return a === undefined || b === undefined ? a === b : Buffer.compare(a, b) === 0;
}

/** Packs all values. Returns the number of steps. */
function pack(versions: readonly StoredValue[]): number {
  return [...packValues(versions)].length;
}

const ips = Array.from({ length: 10_000 }, (_, i) =>
  encodeIPIdentityPair({
    key: `10.1.${i >> 8}.${i & 255}`,
    identity: 65_536 + i,
    hostIP: '192.168.0.1',
    encryptKey: 0,
    k8s: { namespace: `namespace-${i % 50}`, podName: `workload-${i}` },
  }),
);

describe('values that are written together', () => {
  it('are read as they were written, in any order', () => {
    const size = fc.oneof(fc.nat(3), fc.nat(300), fc.constantFrom(1023, 1024, 1025, 9000));
    const value = fc.option(fc.tuple(size, fc.nat(255)), { nil: undefined });
    const values = fc.array(value, { maxLength: 100, size: 'max' });
    fc.assert(
      fc.property(values, fc.array(fc.nat(), { maxLength: 100, size: 'max' }), (sizes, order) => {
        const expected = sizes.map((one) => one && Buffer.alloc(one[0], one[1]));
        const versions = expected.map(stored);
        pack(versions);
        const blocks = new ExpandedBlocks();
        const wrong = order.filter((turn) => {
          const at = turn % versions.length;
          return !isEqual(blocks.bytesOf(versions[at] ?? none), expected[at]);
        });
        expect(versions.length === 0 ? [] : wrong).toEqual([]);
      }),
    );
  });

  it('share blocks, which are packed in steps', () => {
    const versions = ips.map(stored);
    expect(pack(versions)).toBeGreaterThan(100);
    const packed = new Set(versions.map(({ value }) => value));
    expect(packed.size).toBeLessThan(ips.length / 40);
    expect([...packed].every((block) => block instanceof PackedValues)).toBe(true);
    const blocks = new ExpandedBlocks();
    // Every block is read many times, and more blocks than stay expanded.
    const wrong = ips.filter((_, i) => {
      const at = (i * 7919) % ips.length;
      return !isEqual(blocks.bytesOf(versions[at] ?? none), ips[at]);
    });
    expect(wrong).toHaveLength(0);
  });

  it('leave no rest that is not packed, in a transaction of any size', () => {
    for (const count of [20, 57, 58, 100, 128, 1000]) {
      const versions = ips.slice(0, count).map(stored);
      pack(versions);
      expect(versions.filter(({ value }) => typeof value === 'string')).toHaveLength(0);
    }
  });

  it('are read between many deletes', () => {
    const values = Array.from({ length: 20_000 }, (_, i) => (i % 5000 === 1 ? ips[i % 100] : undefined));
    const many = [...values, ...ips.slice(0, 40)];
    const versions = many.map(stored);
    pack(versions);
    const blocks = new ExpandedBlocks();
    expect(versions.filter((version, i) => !isEqual(blocks.bytesOf(version), many[i]))).toHaveLength(0);
  });

  it('are expanded once while a reader follows their order, and counted', () => {
    const versions = ips.map(stored);
    pack(versions);
    const blocks = new ExpandedBlocks();
    for (const version of versions) blocks.bytesOf(version);
    expect(blocks.expansions).toBe(new Set(versions.map(({ value }) => value)).size);
  });

  it('stay as they are if they are few or large', () => {
    const versions = [...ips.slice(0, 10), Buffer.alloc(5000)].map(stored);
    expect(pack(versions)).toBe(0);
    expect(versions.every(({ value }) => typeof value === 'string')).toBe(true);
  });

  it('are not affected by changes of what was read', () => {
    const versions = ips.slice(0, 100).map(stored);
    pack(versions);
    const [first = none] = versions;
    const blocks = new ExpandedBlocks();
    blocks.bytesOf(first)?.fill(0);
    expect(isEqual(blocks.bytesOf(first), ips[0])).toBe(true);
  });
});
