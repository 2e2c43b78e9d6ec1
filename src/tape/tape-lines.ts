import { writeNumber } from '../kvstore/codec/json-bytes.ts';
import type { TapeWriter } from './tape-writer.ts';

/** The bytes `buffer[from, to)`. */
export interface Bytes {
  readonly buffer: Uint8Array;
  readonly from: number;
  readonly to: number;
}

const encoded = (text: string): Uint8Array => Buffer.from(text, 'latin1');

const SEQ = encoded('{"seq":');
const MS = encoded(',"ms":');
const REVISION = encoded('","rev":');
const VALUE = encoded(',"value":"');
/** End of the last line of a batch. */
const END = encoded('}\n');
/** End of the other lines of a batch. */
const MORE_AND_END = encoded(',"more":1}\n');
const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;

/**
 * Maximum size of a put without its place, name and value: two numbers of 16 digits, one of 10, the names of fields,
 * and the end.
 */
const FIXED_BYTES = 128;

/** Writes bytes. Returns the end. */
function writeBytes(block: Uint8Array, at: number, bytes: Uint8Array): number {
  for (let i = 0; i < bytes.length; i++) block[at + i] = bytes[i] ?? 0;
  return at + bytes.length;
}

/** Writes bytes as the content of a JSON string. Returns the end; -1 if a byte is not printable ASCII. */
function writeEscaped(block: Uint8Array, begin: number, { buffer, from, to }: Bytes): number {
  let at = begin;
  for (let i = from; i < to; i++) {
    const code = buffer[i] ?? 0;
    if (code === QUOTE || code === BACKSLASH) block[at++] = BACKSLASH;
    else if (code < 0x20 || code > 0x7e) return -1;
    block[at++] = code;
  }
  return at;
}

/** Writes text as the content of a JSON string. Returns the end; -1 if the text needs escapes. */
function writePlain(block: Uint8Array, at: number, text: string): number {
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    if (code < 0x20 || code > 0x7e || code === QUOTE || code === BACKSLASH) return -1;
    block[at + i] = code;
  }
  return at + text.length;
}

/**
 * Numbers the lines of a tape and writes them. A line of a batch gets its end when the next line arrives (with
 * `"more"`) or when the batch ends (without). Other lines that are added during a batch are written after the batch.
 */
export class TapeLines {
  readonly #writer: TapeWriter;
  readonly #ms: () => number;
  /** The contents of lines added during the batch. */
  readonly #afterBatch: string[] = [];
  #seq = 0;
  /** Number of lines refused by the writer. */
  #refused = 0;
  /** Number of lost lines returned by `takeLost`. */
  #takenLost = 0;
  #isInBatch = false;
  /** Time of the lines of the batch, in milliseconds. */
  #batchMs = 0;
  /** True if the last line in the writer has no end yet. */
  #isOpen = false;

  /** @param ms returns the monotonic milliseconds since the agent's start */
  constructor(writer: TapeWriter, ms: () => number) {
    this.#writer = writer;
    this.#ms = ms;
  }

  /** Number of lines, lost ones included. */
  get count(): number {
    return this.#seq;
  }

  get lost(): number {
    return this.#refused + this.#writer.dropped;
  }

  /** Returns the number of lines lost since the last call. */
  takeLost(): number {
    const lost = this.lost - this.#takenLost;
    this.#takenLost += lost;
    return lost;
  }

  /** Adds a line. `content` is JSON without the opening brace. */
  add(content: string): void {
    if (this.#isInBatch) this.#afterBatch.push(content);
    else {
      this.#seq++;
      this.#countIfLost(this.#writer.add(`{"seq":${this.#seq},"ms":${this.#ms()},${content}`));
    }
  }

  /** Adds a line to the batch. `content` is JSON without the opening and the closing brace. */
  addToBatch(content: string): void {
    this.#beginInBatch();
    this.#seq++;
    const line = `{"seq":${this.#seq},"ms":${this.#batchMs},${content}`;
    this.#isOpen = this.#countIfLost(this.#writer.write(line, MORE_AND_END.length));
  }

  /**
   * Adds a put to the batch.
   *
   * @param place JSON before the name: the fields `store` and `from`, and the prefix of the key
   * @param otherwise returns the content for {@link TapeLines.addToBatch}; called if the name or the value is not plain
   *   ASCII
   */
  putToBatch(place: Uint8Array, name: string, revision: number, value: Bytes, otherwise: () => string): void {
    this.#beginInBatch();
    const size = FIXED_BYTES + place.length + name.length + 2 * (value.to - value.from);
    const block = this.#writer.reserve(size);
    const end = block === undefined ? 0 : this.#put(block, place, name, revision, value);
    if (end < 0) {
      this.addToBatch(otherwise());
      return;
    }
    this.#seq++;
    this.#isOpen = this.#countIfLost(block !== undefined);
    if (block !== undefined) this.#writer.used = end;
  }

  /** Writes a put without its end. Returns the index after the put, or -1 if name or value are not plain ASCII. */
  #put(block: Uint8Array, place: Uint8Array, name: string, revision: number, value: Bytes): number {
    let at = writeBytes(block, this.#writer.used, SEQ);
    at = writeBytes(block, writeNumber(block, at, this.#seq + 1), MS);
    at = writeNumber(block, at, this.#batchMs);
    block[at++] = COMMA;
    at = writePlain(block, writeBytes(block, at, place), name);
    if (at < 0) return at;
    at = writeNumber(block, writeBytes(block, at, REVISION), revision);
    at = writeEscaped(block, writeBytes(block, at, VALUE), value);
    if (at >= 0) block[at++] = QUOTE;
    return at;
  }

  endBatch(): void {
    if (!this.#isInBatch) return;
    this.#endLine(END);
    this.#isInBatch = false;
    for (const content of this.#afterBatch.splice(0)) this.add(content);
  }

  /** Ends the previous line of the batch, or begins a batch. */
  #beginInBatch(): void {
    if (this.#isInBatch) {
      this.#endLine(MORE_AND_END);
      return;
    }
    this.#isInBatch = true;
    this.#batchMs = this.#ms();
  }

  #endLine(bytes: Uint8Array): void {
    if (this.#isOpen) this.#writer.extend(bytes);
    this.#isOpen = false;
  }

  /** Counts a line as lost if it was not written. Returns `isWritten`. */
  #countIfLost(isWritten: boolean): boolean {
    if (!isWritten) this.#refused++;
    return isWritten;
  }
}
