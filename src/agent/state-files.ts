import { type FileHandle, open, readdir, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { checkArgument, checkArguments, TEXT } from '../base/arguments.ts';
import { errorCode } from '../base/failure.ts';
import { createFolder } from '../base/files/create-folder.ts';
import { openRegularFile } from '../base/files/regular-file.ts';
import type { StateFile, StateFolder, StateSink } from '../base/files/state-folder.ts';

async function readFrom(handle: FileHandle, into: Uint8Array, position: number): Promise<number> {
  let length = 0;
  while (length < into.length) {
    const { bytesRead } = await handle.read(into, length, into.length - length, position + length);
    if (bytesRead === 0) break;
    length += bytesRead;
  }
  return length;
}

/** Maximum number of buffers of one call: `IOV_MAX` of Linux. */
const MAX_PARTS = 1024;

/**
 * Returns the number of bytes read: fewer than the buffers can hold if the file ends, or if a read is interrupted.
 */
async function readPartsFrom(
  handle: FileHandle,
  into: readonly Uint8Array[],
  position: number,
): Promise<number> {
  let length = 0;
  for (let at = 0; at < into.length; at += MAX_PARTS) {
    const parts = into.slice(at, at + MAX_PARTS);
    const wanted = parts.reduce((sum, part) => sum + part.length, 0);
    const { bytesRead } = await handle.readv(parts, position + length);
    length += bytesRead;
    if (bytesRead < wanted) break;
  }
  return length;
}

async function writeTo(handle: FileHandle, bytes: Uint8Array): Promise<void> {
  let from = 0;
  while (from < bytes.length) from += (await handle.write(bytes, from)).bytesWritten;
}

/**
 * A {@link StateFolder} in the file system. Opens only regular files, because other files can block a thread of the
 * process. Files are readable by their owner only, because they contain the names of all pods.
 */
export class StateFiles implements StateFolder {
  readonly #path: string;

  constructor(path: string) {
    checkArgument('new StateFiles: path', path, TEXT);
    this.#path = path;
  }

  async names(): Promise<readonly string[]> {
    try {
      return await readdir(this.#path);
    } catch (error) {
      if (errorCode(error) === 'ENOENT') return [];
      throw error;
    }
  }

  async open(name: string): Promise<StateFile | undefined> {
    try {
      const handle = await openRegularFile(join(this.#path, name));
      const { size, dev, ino, mtimeNs, ctimeNs } = await handle.stat({ bigint: true });
      return {
        size: Number(size),
        // A program can set the modification time, but not the time of the last status change (ctime).
        version: [dev, ino, size, mtimeNs, ctimeNs].join(' '),
        read: (into, position) => readFrom(handle, into, position),
        readParts: (into, position) => readPartsFrom(handle, into, position),
        close: () => handle.close(),
      };
    } catch (error) {
      if (errorCode(error) === 'ENOENT') return undefined;
      throw error;
    }
  }

  async create(name: string): Promise<StateSink> {
    await createFolder(this.#path);
    const handle = await open(join(this.#path, name), 'wx', 0o600);
    return {
      write: (bytes) => writeTo(handle, bytes),
      sync: () => handle.sync(),
      close: () => handle.close(),
    };
  }

  async rename(from: string, to: string): Promise<void> {
    await rename(join(this.#path, from), join(this.#path, to));
    const folder = await open(this.#path, 'r');
    try {
      await folder.sync();
    } finally {
      await folder.close();
    }
  }

  remove(name: string): Promise<void> {
    return rm(join(this.#path, name), { force: true });
  }
}

checkArguments(StateFiles, {
  open: { name: TEXT },
  create: { name: TEXT },
  rename: { from: TEXT, to: TEXT },
  remove: { name: TEXT },
});
