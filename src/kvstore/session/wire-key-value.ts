import { bufferView, isAscii } from '../../columns/byte-words.ts';
import { bytesOfKey, charactersIn, keyOfBytes } from '../codec/bytes.ts';
import { ProtoReader } from '../codec/proto-reader.ts';
import type { KeyValue, LeaseID } from './transport.ts';

/** The bytes of a key: `buffer[keyAt, keyEnd)`. */
export interface KeyBytes {
  readonly buffer: Uint8Array;
  readonly keyAt: number;
  readonly keyEnd: number;
}

/**
 * A key and its value, as positions in the buffer of the received message, which therefore stays in memory. A listing
 * compares most keys by their bytes, so the text of the key and the view of the value are created only on access, and
 * again on each access.
 */
export class WireKeyValue implements KeyValue, KeyBytes {
  readonly buffer: Buffer;
  readonly keyAt: number;
  readonly keyEnd: number;
  readonly valueAt: number;
  readonly valueEnd: number;
  readonly createRevision: number;
  readonly modRevision: number;
  /** Index of the encoded lease; 0 if the key has none. */
  readonly leaseAt: number;

  constructor(
    buffer: Buffer,
    keyAt: number,
    keyEnd: number,
    valueAt: number,
    valueEnd: number,
    createRevision: number,
    modRevision: number,
    leaseAt: number = 0,
  ) {
    this.buffer = buffer;
    this.keyAt = keyAt;
    this.keyEnd = keyEnd;
    this.valueAt = valueAt;
    this.valueEnd = valueEnd;
    this.createRevision = createRevision;
    this.modRevision = modRevision;
    this.leaseAt = leaseAt;
  }

  get lease(): LeaseID | undefined {
    return this.leaseAt === 0 ? undefined : leaseIn(this.buffer, this.leaseAt);
  }

  get key(): string {
    return this.keyFrom(0);
  }

  get value(): Uint8Array {
    return this.buffer.subarray(this.valueAt, this.valueEnd);
  }

  get size(): number {
    return this.keyEnd - this.keyAt + this.valueEnd - this.valueAt;
  }

  /** Returns the key without its first `from` bytes. */
  keyFrom(from: number): string {
    return textOf(this.buffer, this.keyAt + from, this.keyEnd);
  }
}

/** The last lease, because up to 1,000 keys in succession have the same one. */
const lastLease = { bytes: Buffer.alloc(0), id: '0' };

function leaseIn(buffer: Buffer, at: number): LeaseID {
  const { bytes, id } = lastLease;
  let matching = 0;
  while (matching < bytes.length && buffer[at + matching] === bytes[matching]) matching++;
  if (matching > 0 && matching === bytes.length) return id;
  const reader = new ProtoReader(buffer);
  reader.at = at;
  lastLease.id = reader.int64();
  lastLease.bytes = Buffer.from(buffer.subarray(at, reader.at));
  return lastLease.id;
}

function textOf(buffer: Buffer, from: number, to: number): string {
  const { byteOffset } = buffer;
  return isAscii(bufferView(buffer), byteOffset + from, byteOffset + to)
    ? charactersIn(buffer, from, to)
    : keyOfBytes(buffer.subarray(from, to));
}

/**
 * Returns the number of bytes of a key and its value, without creating their text or view. A text counts as one byte
 * for each character.
 */
export function entrySize(kv: { readonly key: string; readonly value: Uint8Array | undefined }): number {
  return kv instanceof WireKeyValue ? kv.size : kv.key.length + (kv.value?.length ?? 0);
}

/** Returns the same key and value as a plain object. */
export function plainKeyValue({ key, value, createRevision, modRevision }: KeyValue): KeyValue {
  return { key, value, createRevision, modRevision };
}

const INITIAL_BYTES = 256;

/** The bytes of the last ASCII text. */
const encoded = { buffer: Buffer.alloc(INITIAL_BYTES), keyAt: 0, keyEnd: 0 };

/** Returns the bytes of a key. Unless `kv` is a {@link WireKeyValue}, they are valid until the next call. */
export function bytesOf(kv: { readonly key: string }): KeyBytes {
  if (kv instanceof WireKeyValue) return kv;
  const { key } = kv;
  if (key.length > encoded.buffer.length) encoded.buffer = Buffer.alloc(2 * key.length);
  const { buffer } = encoded;
  for (let i = 0; i < key.length; i++) {
    const code = key.charCodeAt(i);
    if (code > 0x7f) return encodedBytes(key);
    buffer[i] = code;
  }
  encoded.keyEnd = key.length;
  return encoded;
}

function encodedBytes(key: string): KeyBytes {
  const buffer = bytesOfKey(key);
  return { buffer, keyAt: 0, keyEnd: buffer.length };
}
