import { rejectInput } from '../../../net/fields.ts';
import { hasEndlessWeights } from './zstd-huffman.ts';

/*
 * The structure of a zstd frame (RFC 8878, section 3.1.1), without the content of its blocks:
 *
 *     magic  descriptor  [window]  [dictionary]  [content size]  block …  [checksum]
 *     4      1           0 or 1    0 to 4        0 to 8          3 + n    0 or 4 bytes
 */

const MAGIC = 0xfd2fb528;
const MIB = 1024 * 1024;

/** Maximum size of a block's content. */
const MAX_BLOCK = 128 * 1024;
/** Bytes before the content of a block. */
const BLOCK_HEADER = 3;
const CHECKSUM = 4;
/** Types of blocks. The content of a `RUN` is one byte, which is repeated. */
const RAW = 0;
const RUN = 1;
const COMPRESSED = 2;
const RESERVED = 3;

/** Maximum window. It is the memory that a decoder needs; RFC 8878 recommends that decoders support 8 MiB. */
const MAX_WINDOW = 8 * MIB;
/** Maximum size of the content. A slice of 1,000 endpoints with long names has about 200 KiB. */
export const MAX_CONTENT: number = 8 * MIB;
/** Content above 1 MiB must not have more than this multiple of the size of its frame. Slices have about 5 to 15. */
const MAX_RATIO = 200;

/**
 * Maximum product of the number of blocks and the size of the window; a window below 128 KiB counts as 128 KiB. A
 * decoder in JavaScript moves the window for each block, which takes about 50 ms per GiB. 8 MiB of content in blocks of
 * 128 KiB is just within the limit if the window has 8 MiB.
 */
const MAX_WORK: number = 512 * MIB;

/** A frame that may be decompressed: one frame without a dictionary, within the limits. */
export interface ZstdFrame {
  /** Memory for back references, in bytes. */
  readonly window: number;
  /** Size of the content according to the header; undefined if the header does not contain it. */
  readonly declaredSize: number | undefined;
  /** Upper bound of the size of the content, from the structure of the frame. */
  readonly maxSize: number;
  /** Maximum allowed size of the content. */
  readonly sizeLimit: number;
  /** The index after each block. */
  readonly blockEnds: readonly number[];
  /** The low 32 bits of XXH64 of the content; undefined if the frame has no checksum. */
  readonly checksum: number | undefined;
  /** The content in parts if all blocks are raw, otherwise undefined. */
  readonly raw: readonly Uint8Array[] | undefined;
}

function rejectFrame(size: number, reason: string): never {
  return rejectInput('invalid-zstd', 'value', `${size} bytes`, reason);
}

export function rejectSize(size: number | string, reason: string): never {
  return rejectInput('too-large', 'value', `${size} bytes`, reason);
}

/** Returns a little-endian content size of 1, 2, 4 or 8 bytes, exact below 2⁵³. Two bytes store the size minus 256. */
function sizeAt(view: DataView, at: number, bytes: number): number {
  switch (bytes) {
    case 1:
      return view.getUint8(at);
    case 2:
      return view.getUint16(at, true) + 256;
    case 4:
      return view.getUint32(at, true);
    default:
      return view.getUint32(at, true) + view.getUint32(at + 4, true) * 2 ** 32;
  }
}

interface FrameHeader {
  readonly window: number;
  readonly declaredSize: number | undefined;
  readonly hasChecksum: boolean;
  /** Index of the first block. */
  readonly blocksAt: number;
}

function readFrameHeader(frame: Uint8Array, view: DataView): FrameHeader {
  const size = frame.length;
  if (size < 6 || view.getUint32(0, true) !== MAGIC) rejectFrame(size, 'is not a zstd frame');
  const descriptor = view.getUint8(4);
  if ((descriptor & 0b1000) !== 0) rejectFrame(size, 'has a reserved bit set');
  if ((descriptor & 0b11) !== 0) rejectFrame(size, 'needs a dictionary');
  // A single segment has no byte for the window. Its content size has at least one byte.
  const isSingle = (descriptor & 0b10_0000) !== 0;
  const flag = descriptor >> 6;
  const sizeBytes = flag === 0 ? Number(isSingle) : 1 << flag;
  const contentSizeAt = isSingle ? 5 : 6;
  const blocksAt = contentSizeAt + sizeBytes;
  if (size < blocksAt) rejectFrame(size, 'ends in its header');
  const declaredSize = sizeBytes === 0 ? undefined : sizeAt(view, contentSizeAt, sizeBytes);
  // The byte of the window has 5 bits of exponent and 3 bits of mantissa, in eighths.
  const exponent = view.getUint8(5) >> 3;
  const window = isSingle ? (declaredSize ?? 0) : 2 ** (10 + exponent) * (1 + (view.getUint8(5) & 7) / 8);
  return { window, declaredSize, hasChecksum: (descriptor & 0b100) !== 0, blocksAt };
}

/** Returns the blocks and the maximum size of their content. The last block must end where the frame ends. */
function readBlocks(
  frame: Uint8Array,
  { window, hasChecksum, blocksAt }: FrameHeader,
): Pick<ZstdFrame, 'maxSize' | 'blockEnds' | 'raw'> {
  const size = frame.length;
  const maxLength = Math.min(window, MAX_BLOCK);
  const maxBlocks = MAX_WORK / Math.max(window, MAX_BLOCK);
  const blockEnds: number[] = [];
  const raw: Uint8Array[] = [];
  let at = blocksAt;
  let maxSize = 0;
  for (let isLast = false; !isLast; blockEnds.push(at)) {
    if (blockEnds.length >= maxBlocks) rejectSize(size, 'has too many blocks for its window');
    if (at + BLOCK_HEADER > size) rejectFrame(size, 'ends before its last block');
    const header = (frame[at] ?? 0) | ((frame[at + 1] ?? 0) << 8) | ((frame[at + 2] ?? 0) << 16);
    const type = (header >> 1) & 3;
    const length = header >> 3;
    if (type === RESERVED) rejectFrame(size, 'has a block of a reserved type');
    if (length > maxLength) rejectFrame(size, 'has a block that is larger than its window or 128 KiB');
    isLast = (header & 1) !== 0;
    maxSize += type === COMPRESSED ? maxLength : length;
    const content = frame.subarray(at + BLOCK_HEADER, at + BLOCK_HEADER + length);
    if (type === COMPRESSED && hasEndlessWeights(content))
      rejectFrame(size, 'has a block with an invalid Huffman table');
    if (type === RAW) raw.push(content);
    at += BLOCK_HEADER + (type === RUN ? 1 : length);
  }
  if (hasChecksum) at += CHECKSUM;
  if (at > size) rejectFrame(size, 'ends in a block');
  if (at < size) rejectFrame(size, 'has more than one frame');
  return { maxSize, blockEnds, raw: raw.length === blockEnds.length ? raw : undefined };
}

/**
 * Checks the structure of a zstd frame. Rejects by {@link rejectInput}: as `too-large` if the window, the declared
 * content or the number of blocks is too large; as `invalid-zstd` anything else than one frame without a dictionary.
 * Costs a few nanoseconds per block.
 */
export function readZstdFrame(frame: Uint8Array): ZstdFrame {
  const size = frame.length;
  const view = new DataView(frame.buffer, frame.byteOffset, size);
  const header = readFrameHeader(frame, view);
  const { window, declaredSize } = header;
  const sizeLimit = Math.min(MAX_CONTENT, Math.max(MIB, MAX_RATIO * size));
  if (declaredSize !== undefined && declaredSize > sizeLimit)
    rejectSize(declaredSize, `must have at most ${sizeLimit} bytes when it is decompressed`);
  if (window > MAX_WINDOW) rejectSize(window, `must have a window of at most ${MAX_WINDOW} bytes`);
  const { maxSize, blockEnds, raw } = readBlocks(frame, header);
  if (declaredSize !== undefined && declaredSize > maxSize)
    rejectFrame(size, 'has less content than it declares');
  const checksum = header.hasChecksum ? view.getUint32(size - CHECKSUM, true) : undefined;
  return {
    window,
    declaredSize,
    maxSize: Math.min(declaredSize ?? maxSize, sizeLimit),
    sizeLimit,
    blockEnds,
    checksum,
    raw,
  };
}

/** Returns a frame that contains `content` uncompressed, in raw blocks. Every zstd decoder can read it. */
export function rawZstdFrame(content: Uint8Array): Uint8Array {
  const header = Buffer.alloc(9);
  header.writeUInt32LE(MAGIC, 0);
  header.writeUInt8(0b1010_0000, 4); // a single segment, with its size in 4 bytes
  header.writeUInt32LE(content.length, 5);
  const parts: Uint8Array[] = [header];
  for (let at = 0; at === 0 || at < content.length; at += MAX_BLOCK) {
    const block = content.subarray(at, at + MAX_BLOCK);
    const isLast = at + MAX_BLOCK >= content.length;
    const blockHeader = Buffer.alloc(BLOCK_HEADER);
    blockHeader.writeUIntLE((block.length << 3) | Number(isLast), 0, BLOCK_HEADER);
    parts.push(blockHeader, block);
  }
  return Buffer.concat(parts);
}
