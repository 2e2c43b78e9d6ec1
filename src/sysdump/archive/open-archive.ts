import { lstat, readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { createGunzip } from 'node:zlib';
import { errorCode, messageOf } from '../../base/failure.ts';
import { NotAFileError, openRegularFile, readFileHead } from '../../base/files/regular-file.ts';
import {
  type Archive,
  type ArchiveEntry,
  ArchiveError,
  type ArchiveLimits,
  ByteBudget,
  checkCount,
} from './archive.ts';
import { decompressed } from './decompressed.ts';
import { readTar, TAR_BLOCK_BYTES } from './tar-reader.ts';
import { ZipArchive } from './zip-reader.ts';

/** Maximum depth of nested folders. */
const MAX_DEPTH = 8;
/** Maximum depth of nested archives. */
const MAX_ARCHIVE_DEPTH = 2;
/** Size of the beginning of a file with its magic: a block of a tar file. */
const HEAD_BYTES = TAR_BLOCK_BYTES;
const TAR = /\.(tar|tar\.gz|tgz)$/;
/** The first four bytes of a zip file: a file, or the end record of an empty archive. */
const ZIP_MAGICS: ReadonlySet<number> = new Set([0x0403_4b50, 0x0605_4b50]);

async function* gunzipped(
  packed: AsyncIterable<Uint8Array>,
  path: string,
): AsyncGenerator<Uint8Array, void, void> {
  try {
    yield* decompressed(packed, createGunzip({ chunkSize: 256 << 10 }));
  } catch (cause) {
    if (cause instanceof ArchiveError) throw cause;
    throw errorCode(cause) === 'Z_BUF_ERROR'
      ? new ArchiveError('truncated', path, 'ends early: copy the archive again', { cause })
      : new ArchiveError('corrupt', path, 'cannot be decompressed: copy the archive again', { cause });
  }
}

function unreadableFile(path: string, cause: unknown): ArchiveError {
  const remedy = cause instanceof NotAFileError ? '' : ': check the path and its permissions';
  return new ArchiveError('unreadable', path, `${messageOf(cause)}${remedy}`, { cause });
}

/** Yields the content of a file. Throws {@link ArchiveError} if it cannot be read. */
async function* chunksOf(path: string): AsyncGenerator<Uint8Array, void, void> {
  try {
    const file = await openRegularFile(path);
    const chunks: AsyncIterable<Uint8Array> = file.createReadStream({ highWaterMark: 256 << 10 });
    yield* chunks;
  } catch (cause) {
    throw unreadableFile(path, cause);
  }
}

/** Yields the files of a folder and its subfolders, sorted by name. Links are not followed. */
async function* filesOf(
  root: string,
  limits: ArchiveLimits,
  onBroken?: (error: ArchiveError) => void,
): AsyncGenerator<ArchiveEntry, void, void> {
  let count = 0;
  let broken = 0;
  const onUnreadable = (error: ArchiveError): void => {
    if (onBroken === undefined) throw error;
    broken++;
    onBroken(error);
  };
  for await (const entry of filesWithin(root, '', 0, onUnreadable)) {
    checkCount(++count, root, limits);
    yield entry;
  }
  if (count === 0 && broken === 0)
    throw new ArchiveError(
      'not-an-archive',
      root,
      'has no files: name the folder of an unpacked sysdump or bug report',
    );
}

async function* filesWithin(
  root: string,
  folder: string,
  depth: number,
  onUnreadable: (error: ArchiveError) => void,
): AsyncGenerator<ArchiveEntry, void, void> {
  const parent = join(root, folder);
  const items = await readdir(parent, { withFileTypes: true }).catch((cause: unknown) => {
    const error = unreadableFile(parent, cause);
    if (folder === '') throw error;
    onUnreadable(error);
    return [];
  });
  items.sort((a, b) => (a.name < b.name ? -1 : 1));
  for (const item of items) {
    const name = folder === '' ? item.name : `${folder}/${item.name}`;
    const path = join(root, name);
    if (item.isDirectory() && depth < MAX_DEPTH) yield* filesWithin(root, name, depth + 1, onUnreadable);
    if (!item.isFile()) continue;
    // If the file was deleted, reading its content throws the error.
    const found = await lstat(path).catch(() => undefined);
    yield { name, modifiedAt: found?.mtimeMs, content: () => chunksOf(path) };
  }
}

/**
 * Opens a folder, or a zip, tar or tar.gz file, by its content. Throws {@link ArchiveError} if it is another file or
 * cannot be read.
 */
export async function openArchive(path: string, limits: ArchiveLimits): Promise<Archive> {
  let head: Buffer;
  try {
    const kind = await stat(path);
    if (kind.isDirectory())
      return { entries: (onBroken) => filesOf(path, limits, onBroken), close: async () => {} };
    const { bytes } = await readFileHead(path, HEAD_BYTES);
    head = Buffer.concat([bytes], HEAD_BYTES); // filled with zeros
  } catch (cause) {
    throw unreadableFile(path, cause);
  }
  if (ZIP_MAGICS.has(head.readUInt32LE(0))) return ZipArchive.open(path, limits);
  const isCompressed = head[0] === 0x1f && head[1] === 0x8b;
  if (isCompressed || head.toString('latin1', 257, 262) === 'ustar')
    return {
      entries: () => readTar(isCompressed ? gunzipped(chunksOf(path), path) : chunksOf(path), path, limits),
      close: async () => {},
    };
  throw new ArchiveError(
    'not-an-archive',
    path,
    'is no zip, tar or tar.gz file: name a Cilium sysdump, a bug report, or a folder',
  );
}

export interface NestedOptions {
  readonly limits: ArchiveLimits;
  /** Receives the error of a nested archive. Its files before the error were yielded. */
  readonly onBroken: (error: ArchiveError) => void;
  /** Remaining bytes for unpacked nested archives; default: the limit of an archive. */
  readonly budget?: ByteBudget;
  /** Returns false for a nested archive that is to be yielded as a file. Default: all are opened. */
  readonly opens?: (name: string) => boolean;
}

/**
 * Yields the files of an archive and of nested tar archives. All nested archives together may have the unpacked size of
 * one archive.
 */
export async function* allEntries(
  entries: AsyncIterable<ArchiveEntry>,
  options: NestedOptions,
  depth = 1,
): AsyncGenerator<ArchiveEntry, void, void> {
  const { limits, budget = new ByteBudget(limits.archiveBytes) } = options;
  for await (const entry of entries) {
    const { name } = entry;
    if (depth >= MAX_ARCHIVE_DEPTH + 1 || !TAR.test(name) || options.opens?.(name) === false) {
      yield entry;
      continue;
    }
    const content = entry.content();
    const nested = readTar(name.endsWith('gz') ? gunzipped(content, name) : content, name, limits, budget);
    try {
      for await (const inner of allEntries(nested, { ...options, budget }, depth + 1))
        yield { ...inner, name: `${name}/${inner.name}` };
    } catch (error) {
      if (!(error instanceof ArchiveError)) throw error;
      options.onBroken(error);
    }
  }
}
