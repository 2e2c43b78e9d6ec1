import { deflateRawSync, inflateRawSync } from 'node:zlib';
import { forEachInSteps } from '../../base/turn-gate.ts';
import { bytesOfCharacters } from '../codec/bytes.ts';

/** Larger values are not packed, so that a block has many values. */
const MAX_VALUE_BYTES = 1024;
/** Minimum size of the blocks of a large transaction, which have up to twice this size. Compressed in 30 to 60 µs. */
const BLOCK_BYTES = 8192;
/** Minimum size of the only block of a smaller transaction. A smaller block saves too little. */
const MIN_BLOCK_BYTES = 2048;
/** Minimum `chunkSize` of zlib. */
const MIN_CHUNK_BYTES = 64;
const DEFLATE = { level: 1, windowBits: 13, memLevel: 5 } as const;
/**
 * Number of expanded blocks to keep: a read in the order of keys alternates between blocks, because blocks are in
 * the order of writes.
 */
const EXPANDED_BLOCKS = 32;
/** Maximum number of values in a block, which has two bytes for each, also for those that are not packed. */
const MAX_VALUES = 4096;
const VALUES_PER_STEP = 512;

/**
 * Values that were written together, compressed. Values of one resource are similar: a value of an IP takes 16 bytes
 * instead of 160. To read one value, its whole block is expanded: see {@link ExpandedBlocks}.
 */
export class PackedValues {
  /** Index of the first value in its transaction. */
  readonly first: number;
  /** One character for each byte, because a small `Uint8Array` takes 200 bytes more. */
  readonly deflated: string;
  /** Number of expanded bytes. */
  readonly size: number;

  constructor(first: number, deflated: string, size: number) {
    this.first = first;
    this.deflated = deflated;
    this.size = size;
  }
}

/** A value of a transaction: its bytes as a string of one character each, or the block that contains it. */
export interface StoredValue {
  /** Undefined if the key was deleted. */
  value: string | PackedValues | undefined;
  /** Index in its transaction. */
  readonly index: number;
}

interface ExpandedBlock {
  /** The length of each value, two bytes each, then the values. */
  readonly bytes: Buffer;
  /** Ends of the values in `bytes`. Has as many bytes as the lengths before the first value. */
  readonly ends: Uint16Array;
}

/** Reads values, and keeps the last expanded blocks. */
export class ExpandedBlocks {
  /** The oldest first. */
  readonly #blocks = new Map<PackedValues, ExpandedBlock>();
  #expansions = 0;

  /** Number of blocks expanded so far. One takes about 10 µs. */
  get expansions(): number {
    return this.#expansions;
  }

  /** Returns a copy of the bytes of a value; undefined if the key was deleted. */
  bytesOf({ value, index }: Readonly<StoredValue>): Uint8Array | undefined {
    if (!(value instanceof PackedValues)) return value === undefined ? undefined : bytesOfCharacters(value);
    const { bytes, ends } = this.#expanded(value);
    const at = index - value.first;
    const from = at === 0 ? ends.byteLength : (ends[at - 1] ?? 0);
    const to = ends[at] ?? from;
    const copy = Buffer.allocUnsafe(to - from);
    bytes.copy(copy, 0, from, to);
    return copy;
  }

  #expanded(values: PackedValues): ExpandedBlock {
    const known = this.#blocks.get(values);
    if (known !== undefined) return known;
    this.#expansions++;
    const block = expand(values);
    for (const oldest of this.#blocks.keys()) {
      if (this.#blocks.size < EXPANDED_BLOCKS) break;
      this.#blocks.delete(oldest);
    }
    this.#blocks.set(values, block);
    return block;
  }
}

/** Expands a block. It begins with the number of values and the length of each value, two bytes each. */
function expand({ deflated, size }: PackedValues): ExpandedBlock {
  // With room for one more byte, because zlib allocates a second chunk if the first one is full.
  const all = inflateRawSync(bytesOfCharacters(deflated), { chunkSize: Math.max(size + 1, MIN_CHUNK_BYTES) });
  const bytes = all.subarray(2);
  const ends = new Uint16Array(all.readUInt16LE(0));
  let end = ends.byteLength;
  for (let at = 0; at < ends.length; at++) {
    end += bytes.readUInt16LE(2 * at);
    ends[at] = end;
  }
  return { bytes, ends };
}

/**
 * Moves the values of a transaction into blocks of about equal size, one block for each step. Small transactions, large
 * values and deletes stay as they are.
 */
export function* packValues(versions: readonly StoredValue[]): Generator<void, void, void> {
  let total = 0;
  yield* forEachInSteps(versions, VALUES_PER_STEP, ({ value }) => (total += packable(value).length));
  if (total < MIN_BLOCK_BYTES) return;
  const blockCount = Math.max(1, Math.floor(total / BLOCK_BYTES));
  let block: StoredValue[] = [];
  let blockNumber = 0;
  let bytes = 0; // before this value
  for (const version of versions) {
    const { length } = packable(version.value);
    const target = Math.floor((bytes * blockCount) / total); // number of the block for this value
    if ((length > 0 && target > blockNumber) || block.length === MAX_VALUES) {
      pack(block);
      yield;
      block = [];
      blockNumber = target;
    }
    bytes += length;
    if (length > 0 || block.length > 0) block.push(version);
  }
  pack(block);
}

/** Returns the value if it can be packed, otherwise an empty text. */
function packable(value: StoredValue['value']): string {
  return typeof value === 'string' && value.length <= MAX_VALUE_BYTES ? value : '';
}

/** Packs consecutive values. Values that cannot be packed take no bytes. */
function pack(block: readonly StoredValue[]): void {
  const [first] = block;
  if (first === undefined) return;
  const texts = block.map(({ value }) => packable(value));
  const lengths = Buffer.from(Uint16Array.of(texts.length, ...texts.map(({ length }) => length)).buffer);
  const bytes = Buffer.concat([lengths, bytesOfCharacters(texts.join(''))]);
  const values = new PackedValues(
    first.index,
    deflateRawSync(bytes, DEFLATE).toString('latin1'),
    bytes.length,
  );
  for (const version of block) if (packable(version.value) !== '') version.value = values;
}
