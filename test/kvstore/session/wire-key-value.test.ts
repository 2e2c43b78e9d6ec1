import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { bytesOfKey, keyOfBytes } from '../../../src/kvstore/codec/bytes.ts';
import { int64Field, message } from '../../../src/kvstore/codec/proto-writer.ts';
import {
  bytesOf,
  entrySize,
  plainKeyValue,
  WireKeyValue,
} from '../../../src/kvstore/session/wire-key-value.ts';

const bytes = fc.uint8Array({ maxLength: 40 });
const key = fc.oneof(
  fc.string({ maxLength: 300 }).map((text) => Buffer.from(text)),
  fc.string({ unit: 'binary', maxLength: 20 }).map((text) => Buffer.from(text)),
  bytes,
);

/** A key-value in a message with other bytes before, between and after key and value. */
function inMessage(keyBytes: Uint8Array, value: Uint8Array, noise: Uint8Array): WireKeyValue {
  const parts = [noise, keyBytes, noise, value, noise];
  const pool = Buffer.concat([Buffer.from('pool'), ...parts]);
  const keyAt = noise.length;
  const valueAt = keyAt + keyBytes.length + noise.length;
  const message = pool.subarray(4); // messages are parts of larger buffers
  return new WireKeyValue(
    ...([message, keyAt, keyAt + keyBytes.length, valueAt, valueAt + value.length, 3, 7] as const),
  );
}

const read = ({ buffer, keyAt, keyEnd }: ReturnType<typeof bytesOf>): readonly number[] => [
  ...buffer.subarray(keyAt, keyEnd),
];

describe('a key-value in its message', () => {
  it('has the key and the value of the message', () => {
    fc.assert(
      fc.property(key, bytes, bytes, (keyBytes, value, noise) => {
        const kv = inMessage(keyBytes, value, noise);
        const text = keyOfBytes(keyBytes);
        const plain = plainKeyValue(kv);
        expect({ ...plain, value: [...plain.value] }).toEqual({
          key: text,
          value: [...value],
          createRevision: 3,
          modRevision: 7,
        });
        expect(entrySize(kv)).toBe(keyBytes.length + value.length);
        expect(read(bytesOf(kv))).toEqual([...keyBytes]);
      }),
    );
  });

  it('has the lease that is encoded in the message', () => {
    fc.assert(
      fc.property(
        fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }).filter((id) => id !== 0n),
        bytes,
        (lease, noise) => {
          const encoded = message(int64Field(6, String(lease))).subarray(1); // without the tag
          const whole = Buffer.concat([Buffer.alloc(1), noise, encoded, noise]);
          const of = (leaseAt?: number): WireKeyValue => new WireKeyValue(whole, 0, 1, 1, 1, 3, 7, leaseAt);
          expect(of(1 + noise.length).lease).toBe(String(lease));
          expect(of().lease).toBeUndefined();
        },
      ),
    );
  });

  it('has the key behind a prefix', () => {
    fc.assert(
      fc.property(key, key, (prefix, name) => {
        const kv = inMessage(Buffer.concat([prefix, name]), new Uint8Array(0), new Uint8Array(1));
        expect(kv.keyFrom(prefix.length)).toBe(keyOfBytes(name));
      }),
    );
  });

  it('has the bytes of the same key as text', () => {
    fc.assert(
      fc.property(key, (keyBytes) => {
        const text = keyOfBytes(keyBytes);
        expect(read(bytesOf({ key: text }))).toEqual([...bytesOfKey(text)]);
      }),
    );
  });
});
