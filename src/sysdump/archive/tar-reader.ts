import { type ArchiveEntry, ArchiveError, type ArchiveLimits, ByteBudget, checkCount } from './archive.ts';

const BLOCK = 512;
const NUL = 0;
/** Maximum size of a long name or of the records of a pax header. */
const MAX_HEADER_BYTES = 1 << 20;

/** Types of files: regular (two forms), contiguous. */
const FILES: ReadonlySet<string> = new Set(['0', '\0', '7']);
/** Types of headers before an entry: its name (GNU), its records (pax), records of all entries (pax; ignored). */
const EXTENSIONS: ReadonlySet<string> = new Set(['L', 'x', 'g']);

/** Reads or skips a number of bytes of a stream of chunks. */
class BlockSource {
  readonly #chunks: AsyncIterator<Uint8Array>;
  readonly #path: string;
  readonly #budget: ByteBudget;
  #chunk: Uint8Array = new Uint8Array();

  constructor(stream: AsyncIterable<Uint8Array>, path: string, budget: ByteBudget) {
    this.#chunks = stream[Symbol.asyncIterator]();
    this.#path = path;
    this.#budget = budget;
  }

  /** Returns up to `maxBytes` bytes; at the end of the stream, none. */
  async some(maxBytes: number): Promise<Uint8Array> {
    while (this.#chunk.length === 0) {
      const next = await this.#chunks.next();
      if (next.done === true) return this.#chunk;
      this.#budget.take(next.value.length, this.#path);
      this.#chunk = next.value;
    }
    const part = this.#chunk.subarray(0, maxBytes);
    this.#chunk = this.#chunk.subarray(part.length);
    return part;
  }

  /** Returns exactly `size` bytes, or undefined at the end of the stream. Throws if the stream ends within them. */
  async exactly(size: number): Promise<Buffer | undefined> {
    const parts: Uint8Array[] = [];
    for (let left = size; left > 0; ) {
      const part = await this.some(left);
      if (part.length === 0) {
        if (left === size) return undefined;
        throw this.truncated();
      }
      parts.push(part);
      left -= part.length;
    }
    return Buffer.concat(parts);
  }

  async skip(size: number): Promise<void> {
    for (let left = size; left > 0; ) {
      const part = await this.some(left);
      if (part.length === 0) throw this.truncated();
      left -= part.length;
    }
  }

  async close(): Promise<void> {
    await this.#chunks.return?.();
  }

  truncated(): ArchiveError {
    return new ArchiveError('truncated', this.#path, 'ends within a file: copy the archive again');
  }
}

interface TarHeader {
  readonly name: string;
  readonly size: number;
  readonly modifiedAt: number | undefined;
  readonly type: string;
}

function text(block: Buffer, from: number, to: number): string {
  const field = block.subarray(from, to);
  const end = field.indexOf(NUL);
  return field.toString('utf8', 0, end < 0 ? undefined : end);
}

/** Returns an octal number, or a binary one of GNU tar; -1 if it is neither. */
function number(block: Buffer, from: number, to: number): number {
  if (((block[from] ?? 0) & 0x80) !== 0) {
    let value = (block[from] ?? 0) & 0x7f;
    for (let at = from + 1; at < to; at++) value = value * 256 + (block[at] ?? 0);
    return value;
  }
  const digits = text(block, from, to).trim();
  if (digits === '') return 0;
  return /^[0-7]+$/.test(digits) ? Number.parseInt(digits, 8) : -1;
}

const CHECKSUM = { from: 148, to: 156 };

/** Returns true if the checksum of a header is correct: the sum of its bytes, with blanks in place of the checksum. */
function isHeader(block: Buffer): boolean {
  let sum = 0;
  for (const [at, byte] of block.entries()) sum += at >= CHECKSUM.from && at < CHECKSUM.to ? 0x20 : byte;
  return sum === number(block, CHECKSUM.from, CHECKSUM.to);
}

function headerOf(block: Buffer): TarHeader {
  const isUstar = text(block, 257, 263).startsWith('ustar');
  const folder = isUstar ? text(block, 345, 500) : '';
  const name = text(block, 0, 100);
  const seconds = number(block, 136, 148);
  return {
    name: folder === '' ? name : `${folder}/${name}`,
    size: number(block, 124, 136),
    // 0 in archives that were created without times
    modifiedAt: seconds > 0 ? seconds * 1000 : undefined,
    type: String.fromCharCode(block[156] ?? 0),
  };
}

/** Returns the records of a pax header: `27 path=…\n`, each with its own length. */
function paxRecords(bytes: Buffer): ReadonlyMap<string, string> {
  const records = new Map<string, string>();
  for (let at = 0; at < bytes.length; ) {
    const blank = bytes.indexOf(0x20, at);
    const length = Number(bytes.toString('latin1', at, Math.max(at, blank)));
    if (blank < 0 || !Number.isInteger(length) || length <= blank - at) break;
    const record = bytes.toString('utf8', blank + 1, at + length - 1);
    const equals = record.indexOf('=');
    records.set(record.slice(0, equals), record.slice(equals + 1));
    at += length;
  }
  return records;
}

/** Fields of the next entry which replace those of its header. */
interface Override {
  readonly name?: string | undefined;
  readonly size?: number | undefined;
}

/** Returns the fields of the next entry after an extension of this type and content. */
function extend(previous: Override, type: string, bytes: Buffer): Override {
  if (type === 'L') return { ...previous, name: text(bytes, 0, bytes.length) };
  if (type !== 'x') return previous;
  const records = paxRecords(bytes);
  const size = records.get('size');
  return { name: records.get('path') ?? previous.name, size: size === undefined ? undefined : Number(size) };
}

/**
 * Yields the regular files of a tar stream: ustar, pax and GNU. Links, devices and folders are skipped. Content that is
 * not read is skipped. Throws {@link ArchiveError} if the stream is no tar or ends early. Memory: one chunk of the
 * stream.
 */
export async function* readTar(
  stream: AsyncIterable<Uint8Array>,
  path: string,
  limits: ArchiveLimits,
  budget: ByteBudget = new ByteBudget(limits.archiveBytes),
): AsyncGenerator<ArchiveEntry, void, void> {
  const source = new BlockSource(stream, path, budget);
  let count = 0;
  let override: Override = {};
  try {
    for (;;) {
      const block = await source.exactly(BLOCK);
      if (block === undefined) {
        if (count === 0)
          throw new ArchiveError(
            'not-an-archive',
            path,
            'is empty: name a sysdump, a bug report, or a folder',
          );
        return;
      }
      if (block.every((byte) => byte === NUL)) {
        // Read to the end, so that a compressed stream is checked as a whole.
        while ((await source.some(BLOCK)).length > 0);
        return;
      }
      if (!isHeader(block))
        throw count === 0
          ? new ArchiveError(
              'not-an-archive',
              path,
              'is no tar archive: name a sysdump, a bug report, or a folder',
            )
          : new ArchiveError(
              'corrupt',
              path,
              `has an invalid header after ${count} files: copy the archive again`,
            );
      checkCount(++count, path, limits);
      const { name, size: listed, modifiedAt, type } = headerOf(block);
      const size = override.size ?? listed;
      if (!Number.isSafeInteger(size) || size < 0)
        throw new ArchiveError('corrupt', path, `has an invalid size at ${name}: copy the archive again`);
      const padding = (BLOCK - (size % BLOCK)) % BLOCK;
      if (EXTENSIONS.has(type)) {
        if (size > MAX_HEADER_BYTES) throw new ArchiveError('corrupt', path, `has a header of ${size} bytes`);
        const bytes = (await source.exactly(size)) ?? Buffer.alloc(0);
        await source.skip(padding);
        override = extend(override, type, bytes);
        continue;
      }
      const entryName = override.name ?? name;
      override = {};
      let left = size;
      const content = async function* (): AsyncGenerator<Uint8Array, void, void> {
        while (left > 0) {
          const part = await source.some(left);
          if (part.length === 0) throw source.truncated();
          left -= part.length;
          yield part;
        }
      };
      if (FILES.has(type) && !entryName.endsWith('/')) yield { name: entryName, modifiedAt, content };
      await source.skip(left + padding);
    }
  } finally {
    await source.close();
  }
}
