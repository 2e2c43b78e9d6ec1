import { constants, type Stats } from 'node:fs';
import { open, stat } from 'node:fs/promises';

/** The beginning of a file. */
export interface FileHead {
  readonly bytes: Buffer;
  /** Whether the file has no more than that. */
  readonly isWhole: boolean;
}

/** Something that is not a file lies where one should. */
export class NotAFileError extends Error {
  override readonly name = 'NotAFileError';
}

function checkFile(found: Stats): void {
  if (found.isFile()) return;
  const kinds = [
    [found.isDirectory(), 'a folder'],
    [found.isFIFO(), 'a FIFO'],
    [found.isSocket(), 'a socket'],
  ] as const;
  const kind = kinds.find(([is]) => is)?.[1] ?? 'a device';
  throw new NotAFileError(`is ${kind}, not a file`);
}

/**
 * Reads at most `maxBytes` of a file. Never opens anything else, through links neither: opening a FIFO waits for its
 * writer, and a device may have no end. Rejects with {@link NotAFileError} then, else as `fs` does.
 */
export async function readFileHead(path: string, maxBytes: number): Promise<FileHead> {
  checkFile(await stat(path));
  // Should it become a FIFO in this moment: without O_NONBLOCK opening one would wait.
  const handle = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    const found = await handle.stat();
    checkFile(found);
    const chunks: Buffer[] = [];
    let length = 0;
    // One byte more than there should be, so that the end is seen at once.
    for (let room = found.size + 1; length <= maxBytes; room = maxBytes + 1 - length) {
      const buffer = Buffer.allocUnsafe(Math.min(room, maxBytes + 1 - length));
      const { bytesRead } = await handle.read(buffer, 0, buffer.length);
      chunks.push(buffer.subarray(0, bytesRead));
      length += bytesRead;
      if (bytesRead < buffer.length) break;
    }
    return { bytes: Buffer.concat(chunks, Math.min(length, maxBytes)), isWhole: length <= maxBytes };
  } finally {
    await handle.close();
  }
}
