import { type ArchiveEntry, ArchiveError, type ArchiveLimits } from './archive.ts';

/** Returns the whole content of an entry. Throws if it is larger than the limit. */
export async function readWholeEntry(entry: ArchiveEntry, limits: ArchiveLimits): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of entry.content()) {
    size += chunk.length;
    if (size > limits.entryBytes)
      throw new ArchiveError(
        'entry-too-large',
        entry.name,
        `has more than ${limits.entryBytes >> 20} MiB: remove it from the archive`,
      );
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

/** Returns the last `tailBytes` bytes of an entry. Memory: 64 times that number of bytes, and one chunk. */
export async function readTail(entry: ArchiveEntry, tailBytes: number): Promise<Buffer> {
  let tail: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of entry.content()) {
    tail.push(chunk);
    size += chunk.length;
    if (size < 64 * tailBytes) continue; // joining is rare
    const joined = Buffer.concat(tail);
    // A copy, so that the chunks can be freed.
    const lastBytes = Buffer.from(joined.subarray(Math.max(0, joined.length - tailBytes)));
    tail = [lastBytes];
    size = lastBytes.length;
  }
  const joined = Buffer.concat(tail);
  return joined.subarray(Math.max(0, joined.length - tailBytes));
}
