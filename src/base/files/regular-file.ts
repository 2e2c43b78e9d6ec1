import { constants, type Stats } from 'node:fs';
import { type FileHandle, open, stat } from 'node:fs/promises';

/** The beginning of a file. */
export interface FileHead {
  readonly bytes: Buffer;
  /** True if `bytes` is the whole file. */
  readonly isWhole: boolean;
}

/** The path does not name a regular file. */
export class NotAFileError extends Error {
  override readonly name = 'NotAFileError';
  readonly isFolder: boolean;

  constructor(kind: string, isFolder: boolean) {
    super(`is ${kind}, not a file`);
    this.isFolder = isFolder;
  }
}

/** Throws {@link NotAFileError} if the status is not that of a regular file. */
function checkFile(found: Stats): void {
  if (found.isFile()) return;
  const kinds = [
    { isKind: found.isDirectory(), name: 'a folder' },
    { isKind: found.isFIFO(), name: 'a FIFO' },
    { isKind: found.isSocket(), name: 'a socket' },
  ];
  const kind = kinds.find(({ isKind }) => isKind)?.name ?? 'a device';
  throw new NotAFileError(kind, found.isDirectory());
}

/**
 * Opens a regular file for reading; follows links. Rejects with {@link NotAFileError} if the path names anything else,
 * because opening a FIFO would block a thread until it has a writer, and a device may be endless. Otherwise rejects
 * with errors of `fs`.
 */
export async function openRegularFile(path: string): Promise<FileHandle> {
  checkFile(await stat(path));
  // O_NONBLOCK, because a FIFO may have replaced the file since the check.
  const handle = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    checkFile(await handle.stat());
    return handle;
  } catch (error) {
    await handle.close();
    throw error;
  }
}

/** Reads all of a regular file. Rejects like {@link openRegularFile}. */
export async function readRegularFile(path: string): Promise<Buffer> {
  const handle = await openRegularFile(path);
  try {
    return await handle.readFile();
  } finally {
    await handle.close();
  }
}

/** Reads at most `maxBytes` of a regular file. Rejects like {@link openRegularFile}. */
export async function readFileHead(path: string, maxBytes: number): Promise<FileHead> {
  const handle = await openRegularFile(path);
  try {
    const found = await handle.stat();
    const chunks: Buffer[] = [];
    let length = 0;
    // One byte more than needed, so that the first read finds the end of the file, or that the file is too large.
    let room = Math.min(found.size, maxBytes) + 1;
    while (room > 0) {
      const buffer = Buffer.allocUnsafe(room);
      const { bytesRead } = await handle.read(buffer, 0, room);
      chunks.push(buffer.subarray(0, bytesRead));
      length += bytesRead;
      if (bytesRead < room) break;
      room = maxBytes + 1 - length;
    }
    return { bytes: Buffer.concat(chunks, Math.min(length, maxBytes)), isWhole: length <= maxBytes };
  } finally {
    await handle.close();
  }
}
