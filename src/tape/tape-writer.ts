import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import type { Clock } from '../base/clock.ts';
import { type Failure, failureOf } from '../base/failure.ts';
import type { StateFolder, StateSink } from '../base/files/state-folder.ts';
import { MAX_LINE_BYTES } from './tape-line.ts';

const compress = promisify(gzip);

/** Size of the text of one gzip member. */
const MEMBER_BYTES = 1 << 20;
/** Maximum number of bytes that wait for the disk. If more wait, lines are dropped until {@link TapeWriter.begin}. */
const MAX_WAITING_BYTES = 32 * MEMBER_BYTES;
/** The fastest level of compression: about 2 ns a byte. Higher levels save less than a byte per event. */
const COMPRESSION_LEVEL = 1;

const LINE_FEED = 0x0a;
const NO_TEXT = new Uint8Array();

const NAME = /^tape-(\d{6,12})\.jsonl\.gz$/;

/** Returns the numbers and names of the files of a tape, oldest first. */
export function tapeFiles(names: Iterable<string>): readonly (readonly [number, string])[] {
  const found = [...names].flatMap((name) => {
    const number = NAME.exec(name)?.[1];
    return number === undefined ? [] : [[Number(number), name] as const];
  });
  return found.sort(([a], [b]) => a - b);
}

function nameOf(number: number): string {
  return `tape-${String(number).padStart(6, '0')}.jsonl.gz`;
}

interface OutputPart {
  readonly name: string;
  bytes: number;
  sink: StateSink | undefined;
  /** Size of the snapshot at its beginning; undefined until it is complete and the file can be replayed alone. */
  snapshotBytes: number | undefined;
}

export interface TapeWriterOptions {
  readonly folder: StateFolder;
  readonly clock: Pick<Clock, 'wallTime'>;
  /** Maximum size of all files. */
  readonly maxBytes: number;
}

/**
 * Writes lines to the files of a tape, in gzip members. It never throws and never waits: after a failure of the disk,
 * or if too much text waits for it, lines are dropped until {@link TapeWriter.begin}.
 */
export class TapeWriter {
  readonly #options: TapeWriterOptions;
  /** The text of the current member. Lines are encoded immediately, because long-lived strings cost more. */
  #block: Buffer = Buffer.allocUnsafe(0);
  /** Number of bytes of text in the block. */
  used = 0;
  /** Number of accepted lines that were dropped before they were on the disk. */
  dropped = 0;
  #waitingBytes = 0;
  /** Resolves when all work so far has ended. */
  #work: Promise<void> = Promise.resolve();
  /** The files, oldest first; the last one is the current one. Undefined until the folder was read. */
  #parts: OutputPart[] | undefined;
  #nextNumber = 1;
  #isBroken = true;
  /** Number of failures. Work queued before a failure does not run after it. */
  #failures = 0;
  #failure: Failure | undefined;

  constructor(options: TapeWriterOptions) {
    this.#options = options;
  }

  /** True if lines are dropped until {@link TapeWriter.begin}. */
  get isBroken(): boolean {
    return this.#isBroken;
  }

  /** The last failure, until a file was begun successfully. */
  get failure(): Failure | undefined {
    return this.#failure;
  }

  /** Bytes of all files. */
  get bytes(): number {
    return (this.#parts ?? []).reduce((sum, { bytes }) => sum + bytes, 0);
  }

  /** Size of the current file, without waiting bytes. */
  get partBytes(): number {
    return this.#parts?.at(-1)?.bytes ?? 0;
  }

  /** Size of the snapshot of the current file; 0 until it is complete. */
  get snapshotBytes(): number {
    return this.#parts?.at(-1)?.snapshotBytes ?? 0;
  }

  /** Ends the current file and begins the next one. */
  begin(): void {
    this.#endBlock();
    this.#isBroken = false;
    this.#run(() => this.#createPart());
  }

  /** Adds a line without its line feed. Returns false if it is dropped. */
  add(line: string): boolean {
    const isWritten = this.write(line, 1);
    if (isWritten) this.#block[this.used++] = LINE_FEED;
    return isWritten;
  }

  /**
   * Adds the beginning of a line. `rest`: number of bytes that {@link TapeWriter.extend} will add. Returns false if the
   * line is dropped.
   */
  write(text: string, rest: number): boolean {
    // A UTF-16 unit needs at most three bytes.
    const maxBytes = text.length * 3 + rest;
    const likelyBytes = maxBytes <= MAX_LINE_BYTES ? text.length : Buffer.byteLength(text) + rest;
    const block = this.reserve(maxBytes, likelyBytes);
    if (block !== undefined) this.used += block.write(text, this.used);
    return block !== undefined;
  }

  /**
   * Returns a block with room for a line of at most `maxBytes` at {@link TapeWriter.used}, which the caller advances.
   * Returns undefined if lines are dropped. `likelyBytes` is the probable size. If it exceeds {@link MAX_LINE_BYTES},
   * no reader would accept the line: it and the following lines are dropped.
   */
  reserve(maxBytes: number, likelyBytes: number = maxBytes): Buffer | undefined {
    if (this.#isBroken) return undefined;
    if (likelyBytes > MAX_LINE_BYTES) {
      this.#fail(new Error(`a line has more than ${MAX_LINE_BYTES >> 20} MiB`));
      return undefined;
    }
    if (this.used + maxBytes > this.#block.length || this.used + likelyBytes >= MEMBER_BYTES) {
      this.#endBlock();
      if (maxBytes > this.#block.length) this.#block = Buffer.allocUnsafe(Math.max(maxBytes, MEMBER_BYTES));
    }
    return this.#isBroken ? undefined : this.#block;
  }

  /** Continues the last line within its reserved room. */
  extend(bytes: Uint8Array): void {
    for (let i = 0; i < bytes.length; i++) this.#block[this.used + i] = bytes[i] ?? 0;
    this.used += bytes.length;
  }

  /** Must be called when the current file can be replayed without the earlier files, which may then be removed. */
  markReplayable(): void {
    this.#endBlock();
    this.#run(async () => {
      const part = this.#parts?.at(-1);
      if (part !== undefined) part.snapshotBytes = part.bytes;
      await this.#trim();
    });
  }

  /** Resolves when all lines added before are written or dropped. */
  flush(): Promise<void> {
    this.#endBlock();
    return this.#work;
  }

  /** Writes all lines and closes the file. */
  async close(): Promise<void> {
    this.#endBlock();
    this.#run(() => this.#closePart());
    await this.#work;
    this.#isBroken = true;
  }

  /** Queues the text of the block. A block that is mostly full is passed on; of any other, the text is copied. */
  #endBlock(): void {
    if (this.used === 0) return;
    const used = this.#block.subarray(0, this.used);
    const isMostlyFull = this.used > this.#block.length / 2;
    const text = isMostlyFull ? used : Buffer.from(used);
    if (isMostlyFull) this.#block = Buffer.allocUnsafe(0);
    this.used = 0;
    if (this.#waitingBytes + text.length > MAX_WAITING_BYTES) {
      this.#drop(text);
      this.#fail(new Error('the disk is too slow for the tape'));
      return;
    }
    this.#waitingBytes += text.length;
    const options = { level: COMPRESSION_LEVEL, chunkSize: MEMBER_BYTES / 4 };
    this.#run(async () => this.#append(await compress(text, options)), text);
  }

  /** Runs one piece of work after the earlier ones, unless one of them fails. `text` are the lines to write. */
  #run(work: () => Promise<void>, text: Uint8Array = NO_TEXT): void {
    const failures = this.#failures;
    this.#work = this.#work.then(async () => {
      this.#waitingBytes -= text.length;
      if (this.#failures !== failures) {
        this.#drop(text);
        return;
      }
      try {
        await work();
      } catch (error) {
        this.#drop(text);
        this.#fail(error);
      }
    });
  }

  /** Counts the lines of an unwritten text. */
  #drop(text: Uint8Array): void {
    for (const byte of text) if (byte === LINE_FEED) this.dropped++;
  }

  #fail(error: unknown): void {
    this.#drop(this.#block.subarray(0, this.used));
    this.#failure = failureOf(error, this.#options.clock);
    this.#failures++;
    this.#isBroken = true;
    this.used = 0;
  }

  async #createPart(): Promise<void> {
    await this.#closePart();
    if (this.#parts === undefined) await this.#readFolder();
    const name = nameOf(this.#nextNumber++);
    const sink = await this.#options.folder.create(name);
    this.#parts?.push({ name, bytes: 0, sink, snapshotBytes: undefined });
    this.#failure = undefined;
  }

  async #readFolder(): Promise<void> {
    const { folder } = this.#options;
    const parts: OutputPart[] = [];
    for (const [number, name] of tapeFiles(await folder.names())) {
      this.#nextNumber = number + 1;
      const file = await folder.open(name);
      parts.push({ name, bytes: file?.size ?? 0, sink: undefined, snapshotBytes: 0 });
      await file?.close();
    }
    this.#parts = parts;
  }

  async #append(bytes: Uint8Array): Promise<void> {
    const part = this.#parts?.at(-1);
    if (part?.sink === undefined) return;
    await part.sink.write(bytes);
    part.bytes += bytes.length;
    await this.#trim();
  }

  /**
   * Removes files while the tape is too large: the oldest; or the second, if it cannot be replayed without the oldest.
   */
  async #trim(): Promise<void> {
    const { folder, maxBytes } = this.#options;
    const parts = this.#parts ?? [];
    while (this.bytes > maxBytes) {
      const index = parts[1]?.snapshotBytes === undefined ? 1 : 0;
      const part = parts[index];
      if (part === undefined || part === parts.at(-1)) break;
      await folder.remove(part.name);
      parts.splice(index, 1);
    }
    if (this.partBytes > maxBytes) throw new Error('one snapshot of the state needs more than --tape-size');
  }

  /** Closes the current file. Removes it if nothing was written, so that retries on a full disk leave no files. */
  async #closePart(): Promise<void> {
    const part = this.#parts?.at(-1);
    const sink = part?.sink;
    if (part === undefined || sink === undefined) return;
    part.sink = undefined;
    await sink.close();
    if (part.bytes > 0) return;
    this.#parts?.pop();
    await this.#options.folder.remove(part.name);
  }
}
