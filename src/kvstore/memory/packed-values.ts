import { deflateRawSync, inflateRawSync } from 'node:zlib';
import { asBuffer } from '../codec/bytes.ts';

/** Larger values are not packed, so that a block has many. */
const MOST_VALUE_BYTES = 1024;
/** Compressed in 30 µs and expanded in 10 µs. Twice the size would save 1 byte of the 16 that a value of 142 bytes then takes. */
const BLOCK_BYTES = 8192;
/** A smaller block saves too little. */
const LEAST_BLOCK_BYTES = 2048;
const DEFLATE = { level: 1, windowBits: 13, memLevel: 5, chunkSize: BLOCK_BYTES } as const;
/** A list of keys whose order differs from that of their writes alternates between blocks that were written together. */
const EXPANDED_BLOCKS = 64;

/** The blocks that were expanded last, the oldest first. */
const expanded = new Map<PackedValues, Buffer>();

/**
 * Values that were written together, compressed. The values of one resource repeat each other: those of a million IPs take 16 bytes
 * each and not 160. To read one value, its whole block is expanded.
 */
export class PackedValues {
  readonly #deflated: Uint8Array;
  /** Ends of the values in the block. */
  readonly #ends: Uint16Array;

  /** @param ends of the values in `bytes` */
  constructor(bytes: Buffer, ends: readonly number[]) {
    this.#deflated = Uint8Array.from(deflateRawSync(bytes, DEFLATE)); // a copy, because the result is part of a chunk
    this.#ends = Uint16Array.from(ends);
  }

  /** Returns a copy of the value at an index. */
  at(index: number): Uint8Array {
    const from = index === 0 ? 0 : this.#ends[index - 1];
    return Uint8Array.prototype.slice.call(this.#expanded(), from, this.#ends[index]);
  }

  #expanded(): Buffer {
    let bytes = expanded.get(this);
    if (bytes === undefined) {
      bytes = inflateRawSync(this.#deflated, { chunkSize: BLOCK_BYTES });
      for (const oldest of expanded.keys()) {
        if (expanded.size < EXPANDED_BLOCKS) break;
        expanded.delete(oldest);
      }
      expanded.set(this, bytes);
    }
    return bytes;
  }
}

/** A value of a version: its bytes as a string of one character each, or the block that contains it. */
export interface StoredValue {
  value: string | PackedValues | undefined;
  /** Index in the block. */
  valueIndex: number;
}

/** Moves the values of versions that are written together into blocks, one block for each step. Values in a small rest stay. */
export function* packValues(versions: Iterable<StoredValue>): Generator<void, void, void> {
  let block: StoredValue[] = [];
  let bytes = 0;
  for (const version of versions) {
    const { value } = version;
    if (typeof value !== 'string' || value.length > MOST_VALUE_BYTES) continue;
    if (bytes + value.length > BLOCK_BYTES) {
      pack(block);
      yield;
      block = [];
      bytes = 0;
    }
    block.push(version);
    bytes += value.length;
  }
  if (bytes >= LEAST_BLOCK_BYTES) pack(block);
}

function pack(block: readonly StoredValue[]): void {
  let text = '';
  const ends: number[] = [];
  for (const { value } of block) {
    if (typeof value === 'string') text += value;
    ends.push(text.length);
  }
  const values = new PackedValues(Buffer.from(text, 'latin1'), ends);
  for (const [index, version] of block.entries()) {
    version.value = values;
    version.valueIndex = index;
  }
}

/** Returns a copy of the bytes of a value; undefined if the key was deleted. */
export function bytesOfValue({ value, valueIndex }: Readonly<StoredValue>): Uint8Array | undefined {
  return typeof value === 'string' ? Buffer.from(value, 'latin1') : value?.at(valueIndex);
}

/** Returns the bytes as a string of one character each. It takes 160 bytes of memory for 142 bytes, and a `Uint8Array` over 400. */
export function charactersOf(value: Uint8Array): string {
  return asBuffer(value).toString('latin1');
}
