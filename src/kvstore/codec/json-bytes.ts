import { jsonString } from './go-json.ts';

/** Size of the buffer before it grows. */
const INITIAL_BYTES = 1024;
/** Maximum length of kept views. */
const MAX_VIEW_BYTES = 1024;
const QUOTE = 0x22;
const ZERO = 0x30;
const ASCII_END = 0x80;
/** Maximum number of digits of a safe integer. */
const MAX_DIGITS = 16;

/** 1 for each character that a string literal surely contains as it is; DEL is not among them. */
const PLAIN: Uint8Array = Uint8Array.from({ length: ASCII_END }, (_, code) =>
  code >= 0x20 && code < 0x7f && !'"&<>\\'.includes(String.fromCharCode(code)) ? 1 : 0,
);

/** Writes a safe integer, 0 or more, in decimal at index `at`. Returns the index after its digits. */
export function writeNumber(buffer: Uint8Array, at: number, value: number): number {
  let size = 1;
  for (let rest = value; rest >= 10; rest = Math.floor(rest / 10)) size++;
  let rest = value;
  for (let i = size - 1; i >= 0; i--) {
    const next = Math.floor(rest / 10);
    buffer[at + i] = ZERO + (rest - next * 10); // not `%`, which takes 3 times as long above 31 bits
    rest = next;
  }
  return at + size;
}

/**
 * Writes JSON as bytes into a reused buffer, without garbage. Takes half of the time of a text that is concatenated and
 * then encoded.
 */
export class JsonBytes {
  #buffer = Buffer.alloc(INITIAL_BYTES);
  #end = 0;
  #isPlain = true;
  /** The views returned by {@link view}, by length. All begin at the start of the buffer. */
  #views: Uint8Array[] = [];

  /** Begins a new value. */
  begin(): void {
    this.#end = 0;
    this.#isPlain = true;
  }

  /** True if all strings since {@link begin} have only printable ASCII without escapes. */
  get isPlain(): boolean {
    return this.#isPlain;
  }

  /** Returns the bytes since {@link begin}. They are valid until the next `begin`. */
  view(): Uint8Array {
    const length = this.#end;
    if (length > MAX_VIEW_BYTES) return this.#buffer.subarray(0, length);
    this.#views[length] ??= this.#buffer.subarray(0, length);
    return this.#views[length];
  }

  /** Returns a copy of the bytes since {@link begin}. */
  copy(): Uint8Array {
    const bytes = Buffer.allocUnsafe(this.#end);
    this.#buffer.copy(bytes, 0, 0, this.#end);
    return bytes;
  }

  /** Appends JSON that is given as ASCII bytes, which takes half of the time of a text. */
  ascii(json: Uint8Array): void {
    const { length } = json;
    this.#reserve(length);
    const buffer = this.#buffer;
    const at = this.#end;
    for (let i = 0; i < length; i++) buffer[at + i] = json[i] ?? 0;
    this.#end = at + length;
  }

  json(text: string): void {
    this.#reserve(text.length);
    const buffer = this.#buffer;
    const at = this.#end;
    for (let i = 0; i < text.length; i++) {
      const code = text.charCodeAt(i);
      if (code >= ASCII_END) {
        this.#utf8(text);
        return;
      }
      buffer[at + i] = code;
    }
    this.#end = at + text.length;
  }

  /** Appends a string literal. */
  string(text: string): void {
    this.#reserve(text.length + 2);
    const buffer = this.#buffer;
    let at = this.#end;
    buffer[at++] = QUOTE;
    for (let i = 0; i < text.length; i++) {
      const code = text.charCodeAt(i);
      if (PLAIN[code] !== 1) {
        this.#utf8(jsonString(text));
        return;
      }
      buffer[at++] = code;
    }
    buffer[at++] = QUOTE;
    this.#end = at;
  }

  number(value: number): void {
    const hasOnlyDigits = Number.isSafeInteger(value) && value >= 0;
    if (!hasOnlyDigits) {
      this.json(String(value));
      return;
    }
    this.#reserve(MAX_DIGITS);
    this.#end = writeNumber(this.#buffer, this.#end, value);
  }

  /** Appends JSON which is not plain. */
  #utf8(text: string): void {
    this.#isPlain = false;
    const bytes = Buffer.from(text);
    this.#reserve(bytes.length);
    this.#buffer.set(bytes, this.#end);
    this.#end += bytes.length;
  }

  #reserve(bytes: number): void {
    const size = this.#end + bytes;
    if (size <= this.#buffer.length) return;
    const grown = Buffer.alloc(2 * size);
    grown.set(this.#buffer);
    this.#buffer = grown;
    this.#views = [];
  }
}
