import { isUtf8 } from 'node:buffer';

/*
 * Keys are strings here and bytes on the wire. Every byte sequence has its own string: valid UTF-8 becomes text, and
 * every other byte becomes a lone surrogate U+DC80–U+DCFF (the convention of `surrogateescape` in Python). So two
 * different keys of etcd never collide in a `Map`.
 */

/** A byte that is not UTF-8 becomes this code plus the byte. */
const ESCAPE = 0xdc00;
/** The codes of the bytes 0x80 to 0xff. */
const FIRST_ESCAPED = ESCAPE + 0x80;
const LAST_ESCAPED = ESCAPE + 0xff;
const ASCII_END = 0x80;
const LONE_SURROGATE = /\p{Surrogate}/u;

/** Returns the length that a UTF-8 sequence with this first byte has. Does not check the sequence. */
function sequenceLength(lead: number): number {
  if (lead < 0x80) return 1;
  if (lead < 0xe0) return 2;
  return lead < 0xf0 ? 3 : 4;
}

/** Returns the text of bytes that are partly not UTF-8. Slow, but such keys are rare. */
function escapedText(bytes: Uint8Array): string {
  let text = '';
  for (let i = 0; i < bytes.length; ) {
    const lead = bytes[i] ?? 0;
    const length = sequenceLength(lead);
    const char = textOfBytes(bytes.subarray(i, i + length));
    text += char ?? String.fromCharCode(ESCAPE + lead);
    i += char === undefined ? 1 : length;
  }
  return text;
}

/** Returns the key of `bytes`. {@link bytesOfKey} is its exact inverse. */
export function keyOfBytes(bytes: Uint8Array): string {
  return textOfBytes(bytes) ?? escapedText(bytes);
}

/** Returns {@link keyOfBytes} of `bytes[from, to)`, without creating a view of these bytes. */
export function keyIn(bytes: Uint8Array, from: number, to: number): string {
  const text = utf8Slice.call(bytes, from, to);
  return text.includes('\ufffd') ? keyOfBytes(bytes.subarray(from, to)) : text;
}

/**
 * Returns a function that returns the key of `prefix` and the name `bytes[from, to)`. The function is faster than a
 * concatenation, which V8 copies when the characters of the key are read.
 */
export function keyJoiner(prefix: string): (bytes: Uint8Array, from: number, to: number) => string {
  const start = bytesOfKey(prefix);
  const isAsciiPrefix = start.every((byte) => byte < ASCII_END);
  let key = Buffer.from(start);
  return (bytes, from, to) => {
    const end = start.length + to - from;
    if (end > key.length) key = Buffer.concat([start], 2 * end);
    let all = 0;
    for (let i = from, at = start.length; i < to; i++, at++) {
      const byte = bytes[i] ?? 0;
      all |= byte;
      key[at] = byte;
    }
    return isAsciiPrefix && all < ASCII_END ? charactersIn(key, 0, end) : prefix + keyIn(bytes, from, to);
  };
}

/** The inverse of {@link keyOfBytes}. */
export function bytesOfKey(key: string): Uint8Array {
  if (!LONE_SURROGATE.test(key)) return Buffer.from(key);
  const parts: Uint8Array[] = [];
  for (const char of key) {
    const code = char.charCodeAt(0);
    const isEscaped = code >= FIRST_ESCAPED && code <= LAST_ESCAPED;
    parts.push(isEscaped ? Uint8Array.of(code - ESCAPE) : Buffer.from(char));
  }
  return Buffer.concat(parts);
}

/** Methods of `Buffer` that also accept a `Uint8Array`, and do not check the encoding. */
interface Slices {
  latin1Slice(this: Uint8Array, from: number, to: number): string;
  utf8Slice(this: Uint8Array, from: number, to: number): string;
  base64Slice(this: Uint8Array, from: number, to: number): string;
}

// Called on a `Uint8Array`, because a `Buffer` of the same memory would need `Uint8Array.buffer`, which moves a small
// array out of the heap of V8. Memory outside the heap makes V8 run steps of its collector on the thread.
const { latin1Slice, utf8Slice, base64Slice } = Buffer.prototype as Buffer & Slices;

/** Returns the text of UTF-8 bytes, or `undefined` if they are not UTF-8. About 70 ns for a typical value. */
export function textOfBytes(bytes: Uint8Array): string | undefined {
  const text = utf8Slice.call(bytes, 0, bytes.length);
  // Buffer decodes invalid bytes as U+FFFD, but valid text may also contain that character.
  return text.includes('\ufffd') && !isUtf8(bytes) ? undefined : text;
}

/**
 * Returns a string with one character for each byte. For a value of 142 bytes, the string takes 160 bytes of memory,
 * and a `Uint8Array` over 400. The string is a copy, so it does not keep the received page in memory.
 */
export function charactersOf(bytes: Uint8Array): string {
  return charactersIn(bytes, 0, bytes.length);
}

/** Returns {@link charactersOf} the bytes `bytes[from, to)`. If they are ASCII, this is their text. About 60 ns. */
export function charactersIn(bytes: Uint8Array, from: number, to: number): string {
  return latin1Slice.call(bytes, from, to);
}

/** Returns the Base64 text of bytes. */
export function base64OfBytes(bytes: Uint8Array): string {
  return base64Slice.call(bytes, 0, bytes.length);
}

/** The inverse of {@link charactersOf}. */
export function bytesOfCharacters(characters: string): Uint8Array {
  return Buffer.from(characters, 'latin1');
}

/** Returns the UTF-8 bytes of a text, as in kvstore values. */
export function bytesOfText(text: string): Uint8Array {
  return Buffer.from(text);
}

/** Returns the number of UTF-8 bytes of a text. */
export function byteLengthOf(text: string): number {
  return Buffer.byteLength(text);
}

/** Returns true if two values have the same bytes. */
export function equalBytes(a: Uint8Array, b: Uint8Array): boolean {
  return a === b || (a.length === b.length && Buffer.compare(a, b) === 0);
}
