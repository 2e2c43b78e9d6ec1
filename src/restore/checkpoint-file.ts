import { crc32 } from 'node:zlib';
import { messageOf } from '../base/failure.ts';
import type { StateFile, StateFolder } from './state-folder.ts';

/** The file of the last checkpoint, and the one that is being written. */
export const CHECKPOINT = 'checkpoint';
const UNFINISHED = 'checkpoint.unfinished';

/** Files of this version are read and written. Another one means other sections. */
const VERSION = 1;
const MAGIC: Buffer = Buffer.from('dpcache\n');
const PREAMBLE = MAGIC.length + 1;

/** What a section is about. */
export const SECTION = {
  /** JSON: a `CheckpointHeader`. The first section, and only that. */
  header: 1,
  /** Entries of the IPCache, one after the other. */
  entries: 2,
  /** JSON: a list of nodes. */
  nodes: 3,
  /** JSON: a list of parts of services. */
  services: 4,
  /** JSON: a list of identities with their labels. */
  identities: 5,
  /** JSON: how much there is. The last section, and only that. */
  end: 255,
} as const;

/** One of {@link SECTION}. */
export type SectionKind = (typeof SECTION)[keyof typeof SECTION];

const HEAD = 5; // length and kind
const TAIL = 4; // checksum

/** No section is longer: of a file that is none, no more is read into memory. */
const MAX_SECTION: number = 4 << 20;

/** Bytes that are read or written at a time. */
const CHUNK: number = 256 << 10;

/** A section of a checkpoint; its payload holds until the next one is asked for. */
export interface Section {
  readonly kind: SectionKind;
  readonly payload: Uint8Array;
}

/**
 * Why a file is no checkpoint to start from. `torn`: it does not end, or its checksums do not match. `foreign`: it is no
 * checkpoint at all, or one of another cluster. `newer`: a later version has written it. `too-large`: larger than allowed.
 */
export type CheckpointFault = 'torn' | 'foreign' | 'newer' | 'too-large';

/** A file is no checkpoint to start from. */
export class CheckpointError extends Error {
  readonly fault: CheckpointFault;

  constructor(fault: CheckpointFault, message: string) {
    super(message);
    this.name = 'CheckpointError';
    this.fault = fault;
  }
}

/**
 * Writes a checkpoint so that whoever reads finds all of it or all of the one before, whatever happens meanwhile: to another
 * file, which takes the place of the old one once it is on the disk. Holds back the sections while the disk is slow;
 * between two of them others have their turn. Rejects as the file system does; then the old checkpoint is as it was.
 *
 *     "dpcache\n" version │ section │ … │ section
 *     section: length of payload (32 bits) │ kind (8) │ payload │ CRC-32 of all three (32)
 */
export async function writeCheckpoint(folder: StateFolder, sections: Iterable<Section>): Promise<number> {
  let size = PREAMBLE;
  try {
    const sink = await folder.create(UNFINISHED);
    try {
      await sink.write(Buffer.from([...MAGIC, VERSION]));
      const frame = Buffer.allocUnsafe(HEAD + MAX_SECTION + TAIL);
      for (const section of sections) {
        const bytes = frameOf(section, frame);
        size += bytes.length;
        await sink.write(bytes);
      }
      await sink.sync();
    } finally {
      await sink.close();
    }
    await folder.rename(UNFINISHED, CHECKPOINT);
    return size;
  } catch (error) {
    // What could not be written is not worth a second failure.
    await folder.remove(UNFINISHED).catch(() => {});
    throw error;
  }
}

function frameOf({ kind, payload }: Section, frame: Buffer): Buffer {
  if (payload.length > MAX_SECTION) throw new RangeError(`a section has ${payload.length} bytes`);
  frame.writeUInt32BE(payload.length, 0);
  frame.writeUInt8(kind, 4);
  frame.set(payload, HEAD);
  const end = HEAD + payload.length;
  frame.writeUInt32BE(crc32(frame.subarray(0, end)), end);
  return frame.subarray(0, end + TAIL);
}

/** Opens the checkpoint and checks all of it but what its sections say; `undefined` where there is none. */
export async function openCheckpoint(
  folder: StateFolder,
  maxBytes: number,
): Promise<{ readonly file: StateFile; readonly header: Uint8Array } | undefined> {
  const file = await folder.open(CHECKPOINT);
  if (file === undefined) return undefined;
  try {
    if (file.size > maxBytes)
      throw new CheckpointError('too-large', `it has ${file.size} bytes, more than ${maxBytes}`);
    return { file, header: await checkedHeader(file) };
  } catch (error) {
    await file.close();
    throw error;
  }
}

/** The payload of the header of a file whose frames are all right. */
async function checkedHeader(file: StateFile): Promise<Buffer> {
  let header: Buffer | undefined;
  let last: SectionKind | undefined;
  for await (const { kind, payload } of readSections(file)) {
    if (last === SECTION.end) throw new CheckpointError('torn', 'it goes on after its end');
    if ((kind === SECTION.header) !== (header === undefined))
      throw new CheckpointError('torn', 'its header is not the first section');
    header ??= Buffer.from(payload);
    last = kind;
  }
  if (header === undefined || last !== SECTION.end)
    throw new CheckpointError('torn', 'it ends before its end');
  return header;
}

/** Removes what a writer that was killed has left. Where that cannot be, it is only room on the disk. */
export function removeUnfinished(folder: StateFolder): Promise<void> {
  return folder.remove(UNFINISHED).catch(() => {});
}

/** Puts a file that cannot be used out of the way; gives its new name. */
export async function setAside(folder: StateFolder, fault: CheckpointFault): Promise<string> {
  const name = `${CHECKPOINT}.${fault}`;
  await folder.rename(CHECKPOINT, name);
  return name;
}

/** The sections of a file. Throws {@link CheckpointError} where they are none. */
export async function* readSections(file: StateFile): AsyncGenerator<Section, void, void> {
  const bytes = new FileBytes(file);
  await checkPreamble(bytes);
  while (!(await bytes.atEnd())) {
    const head = await bytes.take(HEAD, 0);
    const length = head.readUInt32BE(0);
    const kind = head.readUInt8(4);
    if (length > MAX_SECTION) throw new CheckpointError('torn', `a section has ${length} bytes`);
    const frame = await bytes.take(HEAD + length + TAIL, HEAD + length + TAIL);
    const end = HEAD + length;
    if (frame.readUInt32BE(end) !== crc32(frame.subarray(0, end)))
      throw new CheckpointError('torn', 'a checksum does not match');
    if (!isSectionKind(kind)) throw new CheckpointError('newer', `there is no section ${kind}`);
    yield { kind, payload: frame.subarray(HEAD, end) };
  }
}

async function checkPreamble(bytes: FileBytes): Promise<void> {
  const preamble = await bytes.take(PREAMBLE, PREAMBLE).catch((error: unknown) => {
    throw error instanceof CheckpointError ? new CheckpointError('foreign', messageOf(error)) : error;
  });
  if (!preamble.subarray(0, MAGIC.length).equals(MAGIC))
    throw new CheckpointError('foreign', 'it does not begin as a checkpoint');
  const version = preamble.readUInt8(MAGIC.length);
  if (version > VERSION)
    throw new CheckpointError('newer', `it is of version ${version}, and ${VERSION} is known`);
  if (version < VERSION) throw new CheckpointError('foreign', `there is no version ${version}`);
}

function isSectionKind(kind: number): kind is SectionKind {
  return Object.values<number>(SECTION).includes(kind);
}

/** A file as a sequence of bytes, read in large pieces. */
class FileBytes {
  readonly #file: StateFile;
  #buffer = Buffer.alloc(0);
  #from = 0;
  #position = 0;

  constructor(file: StateFile) {
    this.#file = file;
  }

  async atEnd(): Promise<boolean> {
    return !(await this.#has(1));
  }

  /** The next bytes; the first `used` of them are not given again. They hold until the next call. */
  async take(count: number, used: number): Promise<Buffer> {
    if (!(await this.#has(count))) throw new CheckpointError('torn', 'it ends within a section');
    const from = this.#from;
    this.#from += used;
    return this.#buffer.subarray(from, from + count);
  }

  async #has(count: number): Promise<boolean> {
    const left = this.#buffer.subarray(this.#from);
    if (left.length >= count) return true;
    const next = Buffer.allocUnsafe(Math.max(count, CHUNK));
    left.copy(next);
    const read = await this.#file.read(next.subarray(left.length), this.#position);
    this.#position += read;
    this.#buffer = next.subarray(0, left.length + read);
    this.#from = 0;
    return this.#buffer.length >= count;
  }
}
