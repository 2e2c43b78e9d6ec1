import { randomUUID } from 'node:crypto';
import { crc32 } from 'node:zlib';
import { messageOf } from '../base/failure.ts';
import type { StateFile, StateFolder } from '../base/files/state-folder.ts';

/** Name of the last complete checkpoint. */
export const CHECKPOINT = 'checkpoint';

/** Suffix of an incomplete checkpoint. */
const UNFINISHED = '.unfinished';

/** The written version. Version 2 has service accounts of pods. */
const VERSION = 2;
/** The oldest readable version. */
const OLDEST_VERSION = 1;
const MAGIC: Buffer = Buffer.from('dpcache\n');
/** Bytes before the first section: magic and version. */
const PREAMBLE_BYTES = MAGIC.length + 1;

/** The kinds of sections of a checkpoint. */
export const SECTION = {
  /** A `CheckpointHeader` as JSON. Always the first section, never a later one. */
  header: 1,
  /** A sequence of IPCache entries. */
  entries: 2,
  /** A list of nodes as JSON. */
  nodes: 3,
  /** A list of parts of services as JSON: Service objects, slices and offers. */
  services: 4,
  /** A list of identities with their labels as JSON. */
  identities: 5,
  /** The numbers of entries, nodes, services and identities as JSON. Always the last section, never an earlier one. */
  end: 255,
} as const;

/** One of {@link SECTION}. */
export type SectionKind = (typeof SECTION)[keyof typeof SECTION];

/** Bytes before a payload: length and kind. */
const HEAD_BYTES = 5;
/** Bytes after a payload: checksum. */
const TAIL_BYTES = 4;

/**
 * Maximum number of bytes of a payload. The largest record has a value of 1.5 MiB: 9 MiB of JSON if each byte is
 * escaped by six characters. The maximum limits the memory for a file that is not a checkpoint.
 */
const MAX_SECTION_BYTES: number = 16 << 20;

/** Bytes per read. */
const CHUNK_BYTES: number = 256 << 10;

/** A section of a checkpoint. Its payload is valid until the next section is requested. */
export interface Section {
  readonly kind: SectionKind;
  readonly payload: Uint8Array;
}

/**
 * The reason why a file cannot be restored. `torn`: incomplete, or a checksum does not match. `foreign`: not a
 * checkpoint, or a checkpoint of another cluster. `newer`: written by a later version. `too-large`: larger than the
 * limit.
 */
export type CheckpointFault = 'torn' | 'foreign' | 'newer' | 'too-large';

/** Thrown if a file cannot be restored. */
export class CheckpointError extends Error {
  override readonly name = 'CheckpointError';
  readonly fault: CheckpointFault;

  constructor(fault: CheckpointFault, message: string) {
    super(message);
    this.fault = fault;
  }
}

/**
 * Writes a checkpoint to a new file, syncs it and renames it to {@link CHECKPOINT}. A reader therefore finds the
 * complete new checkpoint or the complete previous one, even if the process is killed. Each call uses its own file
 * name, so that two writers to one folder cannot mix their bytes. Waits for the disk between two sections. Returns the
 * size in bytes. Rejects with an error of the file system; the previous checkpoint is then unchanged.
 *
 *     "dpcache\n" version │ section │ … │ section
 *     section: length of payload (32 bits) │ kind (8) │ payload │ CRC-32 of all three (32)
 */
export async function writeCheckpoint(folder: StateFolder, sections: Iterable<Section>): Promise<number> {
  const unfinished = `${CHECKPOINT}.${randomUUID().slice(0, 8)}${UNFINISHED}`;
  let size = PREAMBLE_BYTES;
  try {
    const sink = await folder.create(unfinished);
    try {
      await sink.write(Buffer.from([...MAGIC, VERSION]));
      const frame = Buffer.allocUnsafe(HEAD_BYTES + MAX_SECTION_BYTES + TAIL_BYTES);
      for (const section of sections) {
        const bytes = frameOf(section, frame);
        size += bytes.length;
        await sink.write(bytes);
      }
      await sink.sync();
    } finally {
      await sink.close();
    }
    await folder.rename(unfinished, CHECKPOINT);
    return size;
  } catch (error) {
    // An error of the cleanup is ignored, because it would hide the first error.
    await folder.remove(unfinished).catch(() => {});
    throw error;
  }
}

/** Returns the bytes of a section, which are written into `frame`. */
function frameOf({ kind, payload }: Section, frame: Buffer): Buffer {
  if (payload.length > MAX_SECTION_BYTES) throw new RangeError(`a section has ${payload.length} bytes`);
  frame.writeUInt32BE(payload.length, 0);
  frame.writeUInt8(kind, 4);
  frame.set(payload, HEAD_BYTES);
  const end = HEAD_BYTES + payload.length;
  frame.writeUInt32BE(crc32(frame.subarray(0, end)), end);
  return frame.subarray(0, end + TAIL_BYTES);
}

/**
 * Opens the checkpoint and checks its framing, not the contents of its sections. Returns undefined if there is no
 * checkpoint.
 */
export async function openCheckpoint(
  folder: StateFolder,
  maxBytes: number,
): Promise<{ readonly file: StateFile; readonly header: Uint8Array } | undefined> {
  const file = await folder.open(CHECKPOINT);
  if (file === undefined) return undefined;
  try {
    if (file.size > maxBytes)
      throw new CheckpointError('too-large', `the file has ${file.size} bytes; the maximum is ${maxBytes}`);
    return { file, header: await checkedHeader(file) };
  } catch (error) {
    await file.close();
    throw error;
  }
}

/** Checks the order and the frames of all sections and returns the payload of the header. */
async function checkedHeader(file: StateFile): Promise<Buffer> {
  let header: Buffer | undefined;
  let last: SectionKind | undefined;
  for await (const { kind, payload } of readSections(file)) {
    if (last === SECTION.end) throw new CheckpointError('torn', 'data after the end');
    if ((kind === SECTION.header) !== (header === undefined))
      throw new CheckpointError('torn', 'the header is not the first section');
    header ??= Buffer.from(payload);
    last = kind;
  }
  if (header === undefined || last !== SECTION.end) throw new CheckpointError('torn', 'the file is cut off');
  return header;
}

/** Removes the files of killed writers. Ignores errors, because such a file only uses disk space. */
export async function removeUnfinished(folder: StateFolder): Promise<void> {
  const names = await folder.names().catch((): readonly string[] => []);
  const leftover = names.filter((name) => name.startsWith(`${CHECKPOINT}.`) && name.endsWith(UNFINISHED));
  for (const name of leftover) await folder.remove(name).catch(() => {});
}

/** Renames an unusable checkpoint and returns its new name. */
export async function setAside(folder: StateFolder, fault: CheckpointFault): Promise<string> {
  const name = `${CHECKPOINT}.${fault}`;
  await folder.rename(CHECKPOINT, name);
  return name;
}

/** Yields the sections of a file. Throws {@link CheckpointError} if the file is invalid. */
export async function* readSections(file: StateFile): AsyncGenerator<Section, void, void> {
  const bytes = new FileBytes(file);
  await checkPreamble(bytes);
  while (!(await bytes.atEnd())) {
    const head = await bytes.peek(HEAD_BYTES);
    const length = head.readUInt32BE(0);
    const kind = head.readUInt8(4);
    if (length > MAX_SECTION_BYTES) throw new CheckpointError('torn', `a section has ${length} bytes`);
    const end = HEAD_BYTES + length;
    const frame = await bytes.take(end + TAIL_BYTES);
    if (frame.readUInt32BE(end) !== crc32(frame.subarray(0, end)))
      throw new CheckpointError('torn', 'a checksum does not match');
    if (!isSectionKind(kind)) throw new CheckpointError('newer', `unknown section ${kind}`);
    yield { kind, payload: frame.subarray(HEAD_BYTES, end) };
  }
}

async function checkPreamble(bytes: FileBytes): Promise<void> {
  const preamble = await bytes.take(PREAMBLE_BYTES).catch((error: unknown) => {
    throw error instanceof CheckpointError ? new CheckpointError('foreign', messageOf(error)) : error;
  });
  if (!preamble.subarray(0, MAGIC.length).equals(MAGIC))
    throw new CheckpointError('foreign', 'not a checkpoint');
  const version = preamble.readUInt8(MAGIC.length);
  if (version > VERSION)
    throw new CheckpointError('newer', `version ${version} is not supported; the current one is ${VERSION}`);
  if (version < OLDEST_VERSION) throw new CheckpointError('foreign', `unknown version ${version}`);
}

function isSectionKind(kind: number): kind is SectionKind {
  return Object.values<number>(SECTION).includes(kind);
}

/** Reads a file sequentially, in large chunks. */
class FileBytes {
  readonly #file: StateFile;
  /** Bytes that were read from the file; those from `#from` on are unread by the caller. */
  #buffer = Buffer.alloc(0);
  #from = 0;
  /** Position in the file after the buffer. */
  #position = 0;

  constructor(file: StateFile) {
    this.#file = file;
  }

  async atEnd(): Promise<boolean> {
    return !(await this.#fill(1));
  }

  /** Returns the next `count` bytes, which are valid until the next call, and advances past them. */
  async take(count: number): Promise<Buffer> {
    const bytes = await this.peek(count);
    this.#from += count;
    return bytes;
  }

  /** Like {@link FileBytes.take}, without advancing. */
  async peek(count: number): Promise<Buffer> {
    if (!(await this.#fill(count))) throw new CheckpointError('torn', 'the file ends within a section');
    return this.#buffer.subarray(this.#from, this.#from + count);
  }

  /** Fills the buffer with `count` or more unread bytes. Returns false if the file has fewer. */
  async #fill(count: number): Promise<boolean> {
    const unread = this.#buffer.subarray(this.#from);
    if (unread.length >= count) return true;
    const next = Buffer.allocUnsafe(Math.max(count, CHUNK_BYTES));
    unread.copy(next);
    const read = await this.#file.read(next.subarray(unread.length), this.#position);
    this.#position += read;
    this.#buffer = next.subarray(0, unread.length + read);
    this.#from = 0;
    return this.#buffer.length >= count;
  }
}
