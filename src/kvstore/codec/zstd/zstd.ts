import { createRequire } from 'node:module';
import { messageOf } from '../../../base/failure.ts';
import { rejectInput } from '../../../net/fields.ts';
import { xxh64Low } from './xxh64.ts';
import { rawZstdFrame, readZstdFrame, rejectSize, type ZstdFrame } from './zstd-frame.ts';

/** The functions of `node:zlib` since Node 22.15. */
interface NativeZstd {
  readonly zstdCompressSync: (content: Uint8Array) => Uint8Array;
  readonly zstdDecompressSync: (frame: Uint8Array, options: { maxOutputLength: number }) => Uint8Array;
}

/** The part of the package `fzstd` that is used here. It does not verify checksums; {@link decompressZstd} does. */
interface Fzstd {
  readonly Decompress: new (
    onData: (chunk: Uint8Array) => void,
  ) => { push(chunk: Uint8Array, isLast: boolean): void };
}

const load = createRequire(import.meta.url);
const native: Partial<NativeZstd> = load('node:zlib');

/** Loaded with the first compressed frame, because most meshes have none. */
let loaded: Fzstd | undefined;

/**
 * Returns the decoder of the package `fzstd`. Rejects the frame if the package is not installed;
 * `@datapath-cache/engines` omits it.
 */
function fzstd(frame: Uint8Array): Fzstd {
  try {
    const found: Fzstd = loaded ?? load('fzstd');
    loaded = found;
    return found;
  } catch {
    return rejectDecoding(frame, 'requires Node.js 22.15 or later, or the package fzstd');
  }
}

function rejectDecoding(frame: Uint8Array, error: unknown): never {
  return rejectInput('invalid-zstd', 'value', `${frame.length} bytes`, messageOf(error));
}

/** Rejects content whose decompression stopped at the limit. */
function rejectOversized(sizeLimit: number): never {
  return rejectSize(`more than ${sizeLimit}`, `must have at most ${sizeLimit} bytes when it is decompressed`);
}

/** Decompresses with the package `fzstd`, one block per step. */
function* decompressBlocks(
  frame: Uint8Array,
  { sizeLimit, blockEnds }: ZstdFrame,
): Generator<undefined, Uint8Array> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  const decoder = new (fzstd(frame).Decompress)((chunk) => {
    size += chunk.length;
    chunks.push(chunk);
  });
  let from = 0;
  for (const [index, end] of blockEnds.entries()) {
    const isLast = index === blockEnds.length - 1;
    try {
      decoder.push(frame.subarray(from, isLast ? frame.length : end), isLast);
    } catch (error) {
      rejectDecoding(frame, error);
    }
    if (size > sizeLimit) rejectOversized(sizeLimit);
    from = end;
    if (!isLast) yield;
  }
  return Buffer.concat(chunks, size);
}

function decompressNatively(
  frame: Uint8Array,
  { sizeLimit }: ZstdFrame,
  decompress: NativeZstd['zstdDecompressSync'],
): Uint8Array {
  try {
    return decompress(frame, { maxOutputLength: sizeLimit });
  } catch (error) {
    if (error instanceof RangeError) rejectOversized(sizeLimit);
    return rejectDecoding(frame, error);
  }
}

/**
 * Decompresses a value that must be one zstd frame, in steps of some milliseconds. Rejects, by `rejectInput`, with
 * `invalid-zstd` or `too-large` (see `zstd-frame.ts`). The window and the content together need at most 16 MiB of
 * memory.
 *
 * @param structure the structure of the frame, from {@link readZstdFrame}
 * @param decompress the decoder of Node; null selects the package `fzstd`
 */
export function* decompressZstd(
  frame: Uint8Array,
  structure: ZstdFrame = readZstdFrame(frame),
  decompress: NativeZstd['zstdDecompressSync'] | null = native.zstdDecompressSync ?? null,
): Generator<undefined, Uint8Array> {
  const { declaredSize, checksum, raw, sizeLimit } = structure;
  let content: Uint8Array;
  if (raw !== undefined) content = Buffer.concat(raw);
  else if (decompress !== null) content = decompressNatively(frame, structure, decompress);
  else content = yield* decompressBlocks(frame, structure);
  if (content.length > sizeLimit) rejectSize(content.length, `must have at most ${sizeLimit} bytes`);
  if (declaredSize !== undefined && content.length !== declaredSize)
    rejectDecoding(
      frame,
      `has ${content.length} bytes when it is decompressed, and declares ${declaredSize}`,
    );
  const isVerified = raw === undefined && decompress !== null;
  if (checksum !== undefined && !isVerified && (yield* xxh64Low(content)) !== checksum)
    rejectDecoding(frame, 'has content that does not match its checksum');
  return content;
}

/** Returns a zstd frame of this content. It is compressed if Node can do that, otherwise it has raw blocks. */
export function compressZstd(content: Uint8Array): Uint8Array {
  return native.zstdCompressSync?.(content) ?? rawZstdFrame(content);
}
