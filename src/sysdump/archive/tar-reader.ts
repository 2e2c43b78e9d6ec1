import { type ArchiveEntry, ArchiveError, type ArchiveLimits, ByteBudget, checkCount } from './archive.ts';

/** Size of a header. The content of a file is padded to a multiple of it. */
export const TAR_BLOCK_BYTES = 512;
const NUL = 0;
/** Maximum size of a long name or of the records of a pax header. */
const MAX_HEADER_BYTES = 1 << 20;

/** Types of files: regular (two forms), contiguous. */
const FILES: ReadonlySet<string> = new Set(['0', '\0', '7']);
/** Types of headers before an entry: its name (GNU), its records (pax), records of all entries (pax; ignored). */
const EXTENSIONS: ReadonlySet<string> = new Set(['L', 'x', 'g']);

const END_OF_STREAM = new Uint8Array();

/** Reads a stream of chunks up to given positions. */
class ByteSource {
  readonly #chunks: AsyncIterator<Uint8Array>;
  readonly #path: string;
  readonly #budget: ByteBudget;
  #chunk: Uint8Array = END_OF_STREAM;
  /** Number of bytes read. */
  position = 0;

  constructor(stream: AsyncIterable<Uint8Array>, path: string, budget: ByteBudget) {
    this.#chunks = stream[Symbol.asyncIterator]();
    this.#path = path;
    this.#budget = budget;
  }

  async hasEnded(): Promise<boolean> {
    while (this.#chunk.length === 0) {
      const next = await this.#chunks.next();
      if (next.done === true) return true;
      this.#budget.take(next.value.length, this.#path);
      this.#chunk = next.value;
    }
    return false;
  }

  /** Yields the bytes before the position `end`. Throws if the stream ends before. */
  async *readTo(end: number): AsyncGenerator<Uint8Array, void, void> {
    while (this.position < end) {
      if (await this.hasEnded())
        throw new ArchiveError('truncated', this.#path, 'ends within a file: copy the archive again');
      const part = this.#chunk.subarray(0, end - this.position);
      this.#chunk = this.#chunk.subarray(part.length);
      this.position += part.length;
      yield part;
    }
  }

  async bytesTo(end: number): Promise<Buffer> {
    const parts: Uint8Array[] = [];
    for await (const part of this.readTo(end)) parts.push(part);
    return Buffer.concat(parts);
  }

  async skipTo(end: number): Promise<void> {
    for await (const _ of this.readTo(end));
  }

  async skipAll(): Promise<void> {
    while (!(await this.hasEnded())) this.#chunk = END_OF_STREAM;
  }

  async close(): Promise<void> {
    await this.#chunks.return?.();
  }
}

interface TarHeader {
  readonly name: string;
  readonly size: number;
  readonly modifiedAt: number | undefined;
  readonly type: string;
}

function textField(block: Buffer, from: number, to: number): string {
  const field = block.subarray(from, to);
  const end = field.indexOf(NUL);
  return field.toString('utf8', 0, end < 0 ? undefined : end);
}

/** Returns an octal number, or a binary one of GNU tar; -1 if it is neither. */
function numberField(block: Buffer, from: number, to: number): number {
  if (((block[from] ?? 0) & 0x80) !== 0) {
    let value = (block[from] ?? 0) & 0x7f;
    for (let at = from + 1; at < to; at++) value = value * 256 + (block[at] ?? 0);
    return value;
  }
  const digits = textField(block, from, to).trim();
  if (digits === '') return 0;
  return /^[0-7]+$/.test(digits) ? Number.parseInt(digits, 8) : -1;
}

const CHECKSUM = { from: 148, to: 156 };

/** Returns true if the checksum of a header is correct: the sum of its bytes, with blanks in place of the checksum. */
function isHeader(block: Buffer): boolean {
  let sum = 0;
  for (const [at, byte] of block.entries()) sum += at >= CHECKSUM.from && at < CHECKSUM.to ? 0x20 : byte;
  return sum === numberField(block, CHECKSUM.from, CHECKSUM.to);
}

function headerOf(block: Buffer): TarHeader {
  const isUstar = textField(block, 257, 263).startsWith('ustar');
  const folder = isUstar ? textField(block, 345, 500) : '';
  const name = textField(block, 0, 100);
  const seconds = numberField(block, 136, 148);
  return {
    name: folder === '' ? name : `${folder}/${name}`,
    size: numberField(block, 124, 136),
    // 0 in archives created without times
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
  if (type === 'L') return { ...previous, name: textField(bytes, 0, bytes.length) };
  if (type !== 'x') return previous;
  const records = paxRecords(bytes);
  const size = records.get('size');
  return { name: records.get('path') ?? previous.name, size: size === undefined ? undefined : Number(size) };
}

/** Returns the next header; undefined at the end of the archive. `count`: number of the headers before it. */
async function nextHeader(source: ByteSource, path: string, count: number): Promise<TarHeader | undefined> {
  const remedy = 'name a sysdump, a bug report, or a folder';
  if (await source.hasEnded()) {
    if (count === 0) throw new ArchiveError('not-an-archive', path, `is empty: ${remedy}`);
    return undefined;
  }
  const block = await source.bytesTo(source.position + TAR_BLOCK_BYTES);
  if (block.every((byte) => byte === NUL)) {
    await source.skipAll(); // so that a compressed stream is checked as a whole
    return undefined;
  }
  if (isHeader(block)) return headerOf(block);
  if (count === 0) throw new ArchiveError('not-an-archive', path, `is no tar archive: ${remedy}`);
  const problem = `has an invalid header after ${count} headers: copy the archive again`;
  throw new ArchiveError('corrupt', path, problem);
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
  const source = new ByteSource(stream, path, budget);
  let override: Override = {};
  try {
    for (let count = 0; ; ) {
      const header = await nextHeader(source, path, count);
      if (header === undefined) return;
      checkCount(++count, path, limits);
      // The records of a pax header belong to the next file, not to another header in between.
      const { name = header.name, size = header.size } = EXTENSIONS.has(header.type) ? header : override;
      if (!Number.isSafeInteger(size) || size < 0)
        throw new ArchiveError(
          'corrupt',
          path,
          `has an invalid size at ${header.name}: copy the archive again`,
        );
      const end = source.position + size;
      if (EXTENSIONS.has(header.type)) {
        if (size > MAX_HEADER_BYTES) throw new ArchiveError('corrupt', path, `has a header of ${size} bytes`);
        override = extend(override, header.type, await source.bytesTo(end));
      } else {
        override = {};
        if (FILES.has(header.type) && !name.endsWith('/'))
          yield { name, modifiedAt: header.modifiedAt, content: () => source.readTo(end) };
      }
      await source.skipTo(Math.ceil(end / TAR_BLOCK_BYTES) * TAR_BLOCK_BYTES);
    }
  } finally {
    await source.close();
  }
}
