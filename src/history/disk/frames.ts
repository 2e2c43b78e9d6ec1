import { DamagedError } from '../../net/byte-buffer.ts';

/** Returns the CRC-32 of bytes: pass `crc32` of `node:zlib`, because the history imports no Node module. */
export type Checksum = (bytes: Uint8Array) => number;

const MAGIC: Uint8Array = new TextEncoder().encode('dphist\n');

/** The version of written files. Other versions cannot be read. */
const VERSION = 2;

/** Bytes before the first frame. */
export const PREAMBLE_BYTES: number = MAGIC.length + 1;

const FRAME_HEAD_BYTES = 5; // length of the payload (4), kind (1)
/** Size of the checksum after the payload of a frame. */
export const CHECKSUM_BYTES = 4;

/** Bytes of a frame in addition to its payload. */
export const FRAME_BYTES: number = FRAME_HEAD_BYTES + CHECKSUM_BYTES;

export const FRAME = {
  /** A `SegmentHead` as JSON. Always the first frame. */
  head: 1,
  /** Records, and the time until which they are complete. */
  records: 2,
  /** The index. Always the last frame of a complete segment. */
  end: 3,
} as const;

export type FrameKind = (typeof FRAME)[keyof typeof FRAME];

/** Thrown if a later version has written the file. */
export class NewerVersionError extends Error {}

/** Returns the first bytes of a file. */
export function preamble(): Uint8Array {
  return Uint8Array.of(...MAGIC, VERSION);
}

/** Throws {@link DamagedError} or {@link NewerVersionError} if the bytes do not begin a segment of this version. */
export function checkPreamble(bytes: Uint8Array): void {
  if (bytes.length < PREAMBLE_BYTES || !MAGIC.every((byte, at) => bytes[at] === byte))
    throw new DamagedError('not a segment of a history');
  const version = bytes[MAGIC.length];
  if (version === undefined || version < VERSION)
    throw new DamagedError(`version ${version} is not supported any more`);
  if (version > VERSION)
    throw new NewerVersionError(`version ${version} is not supported; the current one is ${VERSION}`);
}

/**
 * Returns a frame. It has the format of a section of a checkpoint (`src/restore`):
 *
 *     length of the payload (32 bits) │ kind (8) │ payload │ CRC-32 of all three (32)
 */
export function frameOf(kind: FrameKind, parts: readonly Uint8Array[], checksum: Checksum): Uint8Array {
  const length = parts.reduce((sum, part) => sum + part.length, 0);
  const frame = new Uint8Array(length + FRAME_BYTES);
  const view = new DataView(frame.buffer);
  view.setUint32(0, length);
  view.setUint8(4, kind);
  let at = FRAME_HEAD_BYTES;
  for (const part of parts) {
    frame.set(part, at);
    at += part.length;
  }
  view.setUint32(at, checksum(frame.subarray(0, at)));
  return frame;
}

export interface Frame {
  readonly kind: FrameKind;
  readonly payload: Uint8Array;
  /** Position after the frame. */
  readonly end: number;
}

/**
 * Returns the frame at a position, or undefined if it is incomplete or its checksum does not match. Without `checksum`,
 * the checksum is not verified. Throws {@link NewerVersionError} if the kind is unknown.
 */
export function readFrame(bytes: Uint8Array, at: number, checksum: Checksum | undefined): Frame | undefined {
  if (at + FRAME_BYTES > bytes.length) return undefined;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const end = at + FRAME_BYTES + view.getUint32(at);
  if (end > bytes.length) return undefined;
  const sum = checksum?.(bytes.subarray(at, end - CHECKSUM_BYTES));
  if (sum !== undefined && view.getUint32(end - CHECKSUM_BYTES) !== sum) return undefined;
  const kind = view.getUint8(at + 4);
  const known = Object.values<number>(FRAME).includes(kind);
  if (!known) throw new NewerVersionError(`unknown frame ${kind}`);
  return {
    kind: kind as FrameKind, // checked
    payload: bytes.subarray(at + FRAME_HEAD_BYTES, end - CHECKSUM_BYTES),
    end,
  };
}
