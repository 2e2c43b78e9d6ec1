import { type FileHandle, open } from 'node:fs/promises';
import { crc32, createInflateRaw } from 'node:zlib';
import {
  type Archive,
  type ArchiveEntry,
  ArchiveError,
  type ArchiveLimits,
  ByteBudget,
  checkCount,
} from './archive.ts';
import { decompressed } from './decompressed.ts';

// Magic numbers of the records. The directory is a list of central records, followed by an end record.
const END = 0x0605_4b50;
const END_64 = 0x0606_4b50;
const END_64_LOCATOR = 0x0706_4b50;
const CENTRAL = 0x0201_4b50;
const LOCAL = 0x0403_4b50;
/** Sizes of the records without their texts. */
const END_SIZE = 22;
const CENTRAL_SIZE = 46;
const LOCAL_SIZE = 30;
/** Maximum size of the end record with its comment. */
const MAX_END_BYTES: number = END_SIZE + 0xffff;
/** Value of a field whose number is in an extra field, because it needs more than 32 bits. */
const UNKNOWN_32 = 0xffff_ffff;
// Compression methods.
const STORED = 0;
const DEFLATED = 8;
/** Flag of an encrypted file. */
const ENCRYPTED = 1;
/** Bytes per read. */
const CHUNK_BYTES: number = 256 << 10;
/** Maximum size of the directory: 200,000 names of 1,000 bytes. */
const MAX_DIRECTORY_BYTES: number = 256 << 20;

interface DirectoryEntry {
  readonly name: string;
  readonly flags: number;
  readonly method: number;
  readonly crc: number;
  /** Size in the archive. */
  readonly packed: number;
  /** Size of the content. */
  readonly size: number;
  /** Position of the local header. */
  readonly offset: number;
  readonly modifiedAt: number | undefined;
}

/** Kinds of extra fields: sizes and offsets above 4 GiB, and the time in seconds since the epoch. */
const EXTRA_64 = 1;
const EXTRA_TIME = 0x5455;

/** A zip file. The directory at its end is read once; contents are read from the file when they are requested. */
export class ZipArchive implements Archive {
  readonly #file: FileHandle;
  readonly #path: string;
  readonly #listed: readonly DirectoryEntry[];

  private constructor(file: FileHandle, path: string, listed: readonly DirectoryEntry[]) {
    this.#file = file;
    this.#path = path;
    this.#listed = listed;
  }

  /** Opens a zip file. Throws {@link ArchiveError} if it is no zip file or is truncated. */
  static async open(path: string, limits: ArchiveLimits): Promise<ZipArchive> {
    const file = await open(path, 'r');
    try {
      const listed = await readDirectory(file, path, limits);
      // Add up the unpacked sizes, because the entries of a zip bomb may share their packed bytes.
      const budget = new ByteBudget(limits.archiveBytes);
      for (const { size } of listed) budget.take(size, path);
      return new ZipArchive(file, path, listed);
    } catch (error) {
      await file.close();
      throw error;
    }
  }

  async *entries(): AsyncGenerator<ArchiveEntry, void, void> {
    for (const one of this.#listed)
      yield { name: one.name, modifiedAt: one.modifiedAt, content: () => this.#content(one) };
  }

  async close(): Promise<void> {
    await this.#file.close();
  }

  async *#content(listed: DirectoryEntry): AsyncGenerator<Uint8Array, void, void> {
    const { name, method, flags, size, crc } = listed;
    const at = `${this.#path}: ${name}`;
    if ((flags & ENCRYPTED) !== 0)
      throw new ArchiveError('unsupported', at, 'is encrypted: unpack the archive into a folder');
    if (method !== STORED && method !== DEFLATED)
      throw new ArchiveError(
        'unsupported',
        at,
        `has compression method ${method}: unpack the archive into a folder`,
      );
    const packed = this.#packed(listed);
    const chunks = method === STORED ? packed : inflated(packed, at);
    let sum = 0;
    let read = 0;
    for await (const chunk of chunks) {
      read += chunk.length;
      if (read > size) break;
      sum = crc32(chunk, sum);
      yield chunk;
    }
    if (read !== size || sum !== crc)
      throw new ArchiveError(
        'corrupt',
        at,
        'does not have the size and checksum of the directory: copy the archive again',
      );
  }

  async *#packed({ name, offset, packed }: DirectoryEntry): AsyncGenerator<Buffer, void, void> {
    const at = `${this.#path}: ${name}`;
    const header = await readAt(this.#file, offset, LOCAL_SIZE);
    if (header.length < LOCAL_SIZE || header.readUInt32LE(0) !== LOCAL)
      throw new ArchiveError('corrupt', at, 'is not at the offset in the directory: copy the archive again');
    const begin = offset + LOCAL_SIZE + header.readUInt16LE(26) + header.readUInt16LE(28);
    for (let done = 0; done < packed; ) {
      const chunk = await readAt(this.#file, begin + done, Math.min(CHUNK_BYTES, packed - done));
      if (chunk.length === 0) throw new ArchiveError('truncated', at, 'ends early: copy the archive again');
      done += chunk.length;
      yield chunk;
    }
  }
}

async function* inflated(packed: AsyncIterable<Buffer>, at: string): AsyncGenerator<Buffer, void, void> {
  try {
    yield* decompressed(packed, createInflateRaw({ chunkSize: CHUNK_BYTES }));
  } catch (cause) {
    if (cause instanceof ArchiveError) throw cause;
    throw new ArchiveError('corrupt', at, 'cannot be decompressed: copy the archive again', { cause });
  }
}

async function readAt(file: FileHandle, position: number, length: number): Promise<Buffer> {
  const buffer = Buffer.allocUnsafe(length);
  let done = 0;
  while (done < length) {
    const { bytesRead } = await file.read(buffer, done, length - done, position + done);
    if (bytesRead === 0) break;
    done += bytesRead;
  }
  return buffer.subarray(0, done);
}

/** Number of entries, size and offset of the directory. */
interface Directory {
  readonly count: number;
  readonly size: number;
  readonly offset: number;
}

/** Reads the end record. It is searched from the end of the file, because a comment may follow it. */
async function findDirectory(file: FileHandle, path: string): Promise<Directory> {
  const { size: total } = await file.stat();
  const from = Math.max(0, total - MAX_END_BYTES);
  const tail = await readAt(file, from, total - from);
  let at = tail.length - END_SIZE;
  while (at >= 0 && tail.readUInt32LE(at) !== END) at--;
  if (at < 0)
    throw new ArchiveError(
      'truncated',
      path,
      'has no directory at its end, so it is truncated or no zip file: copy it again',
    );
  const directory = {
    count: tail.readUInt16LE(at + 10),
    size: tail.readUInt32LE(at + 12),
    offset: tail.readUInt32LE(at + 16),
  };
  const is64 = directory.offset === UNKNOWN_32 || directory.count === 0xffff;
  if (!is64 || at < 20 || tail.readUInt32LE(at - 20) !== END_64_LOCATOR) return directory;
  const end = await readAt(file, Number(tail.readBigUInt64LE(at - 12)), 56);
  if (end.length < 56 || end.readUInt32LE(0) !== END_64)
    throw new ArchiveError('corrupt', path, 'has an invalid directory: copy it again');
  return {
    count: Number(end.readBigUInt64LE(32)),
    size: Number(end.readBigUInt64LE(40)),
    offset: Number(end.readBigUInt64LE(48)),
  };
}

async function readDirectory(
  file: FileHandle,
  path: string,
  limits: ArchiveLimits,
): Promise<readonly DirectoryEntry[]> {
  const { count, size, offset } = await findDirectory(file, path);
  checkCount(count, path, limits);
  if (size > MAX_DIRECTORY_BYTES)
    throw new ArchiveError('archive-too-large', path, `has a directory of ${size} bytes`);
  const bytes = await readAt(file, offset, size);
  const listed: DirectoryEntry[] = [];
  for (let at = 0; listed.length < count; ) {
    if (at + CENTRAL_SIZE > bytes.length || bytes.readUInt32LE(at) !== CENTRAL)
      throw new ArchiveError(
        'corrupt',
        path,
        `has an invalid directory after ${listed.length} files: copy it again`,
      );
    const lengths = [28, 30, 32].map((field) => bytes.readUInt16LE(at + field));
    const [nameLength = 0, extraLength = 0, commentLength = 0] = lengths;
    listed.push(entryAt(bytes, at, nameLength, extraLength));
    at += CENTRAL_SIZE + nameLength + extraLength + commentLength;
  }
  return listed.filter(({ name }) => name !== '' && !name.endsWith('/')); // without folders
}

/** Returns the central record at a position of the directory. */
function entryAt(bytes: Buffer, at: number, nameLength: number, extraLength: number): DirectoryEntry {
  const nameEnd = at + CENTRAL_SIZE + nameLength;
  const extra = bytes.subarray(nameEnd, nameEnd + extraLength);
  let packed = bytes.readUInt32LE(at + 20);
  let size = bytes.readUInt32LE(at + 24);
  let offset = bytes.readUInt32LE(at + 42);
  let modifiedAt: number | undefined;
  for (let field = 0; field + 4 <= extra.length; ) {
    const data = extra.subarray(field + 4, field + 4 + extra.readUInt16LE(field + 2));
    if (extra.readUInt16LE(field) === EXTRA_TIME && data.length >= 5)
      modifiedAt = data.readUInt32LE(1) * 1000 || undefined;
    if (extra.readUInt16LE(field) === EXTRA_64) {
      // Only the numbers that are too large for 32 bits are present, in this order.
      let next = 0;
      const numberOf = (value: number): number => {
        if (value !== UNKNOWN_32 || next + 8 > data.length) return value;
        next += 8;
        return Number(data.readBigUInt64LE(next - 8));
      };
      size = numberOf(size);
      packed = numberOf(packed);
      offset = numberOf(offset);
    }
    field += 4 + data.length;
  }
  return {
    name: bytes.toString('utf8', at + CENTRAL_SIZE, nameEnd),
    flags: bytes.readUInt16LE(at + 8),
    method: bytes.readUInt16LE(at + 10),
    crc: bytes.readUInt32LE(at + 16),
    packed,
    size,
    offset,
    modifiedAt,
  };
}
