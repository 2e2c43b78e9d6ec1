import { mix } from '../columns/mix.ts';
import { type ByteBuffer, DamagedError } from '../net/byte-buffer.ts';
import { indexAtMost } from './positions.ts';

/** Maximum number of numbered names of a segment. Limits the memory of its writer and readers. */
const MAX_NAMES = 32_768;

/** Number that precedes a text without a number of its own. */
const UNNUMBERED = 0;
/** Number that precedes a text that gets the next number. */
const NEXT_NUMBER = 1;
const FIRST_NUMBER = 2;

/** Maximum number of slots searched for a name. Without a free one, the name is written without a number. */
const MAX_PROBES = 16;

/** A segment has at most one numbered name for this many bytes. Limits the table of the writer, which is not stored. */
const BYTES_PER_NAME = 64;

/** Size of an empty table. Each slot takes two elements, so the table has room for 64 names. */
const INITIAL_SLOT_ELEMENTS = 128;

/** Length of the longest namespace of {@link Names.writePod}. Those of Kubernetes have at most 63. */
export const MAX_NAMESPACE = 127;

/** The character that ends the repeating part of a pod name. */
const DASH = 45; // '-'

/** Returns a hash of the first `length` bytes. */
function hashOf(bytes: Uint8Array, length: number): number {
  let hash = length;
  let at = 0;
  for (; at + 2 <= length; at += 2) hash = mix(hash, (bytes[at] ?? 0) | ((bytes[at + 1] ?? 0) << 8));
  return at < length ? mix(hash, bytes[at] ?? 0) : hash;
}

/**
 * The repeating texts (*names*) of a segment: writers, hosts, and namespaces with the first parts of pod names. The
 * first use of a name is written in full, each later use as a number. Readers keep the positions of the texts instead
 * of the texts.
 *
 *     writer: text ─► hash ─► slot: hash │ number ─► position of the text in the records
 */
export class Names {
  readonly #bytes: ByteBuffer;
  readonly #maxNames: number;
  /** Pairs of a hash and a number; number 0: free. */
  #slots: Int32Array = new Int32Array(0);
  /** Position of each numbered text. */
  #positions: Int32Array = new Int32Array(64);
  #count = 0;

  /** `positions` are those of the numbered texts in `bytes`. `maxBytes`, the size of the records, limits the names. */
  constructor(bytes: ByteBuffer, maxBytes: number, positions?: Int32Array) {
    this.#bytes = bytes;
    this.#maxNames = Math.min(MAX_NAMES, maxBytes / BYTES_PER_NAME);
    if (positions === undefined) return;
    this.#positions = positions;
    this.#count = positions.length;
  }

  get positions(): Int32Array {
    return this.#positions.subarray(0, this.#count);
  }

  /** Bytes of the positions. */
  get used(): number {
    return 4 * this.#count;
  }

  /** Memory in bytes, without the texts: the positions and the table of the writer. */
  get memory(): number {
    return this.#positions.byteLength + this.#slots.byteLength;
  }

  /** Writes a name: its number if it has one, else its text. Returns its number; 0 if it gets none. */
  write(name: string): number {
    const length = this.#bytes.load(name);
    return this.#write(length);
  }

  writeNumber(number: number): void {
    this.#bytes.writeNumber(number);
  }

  /**
   * Writes a pod: its namespace and its name up to the last `-` as one name, the rest as a text. The namespace has at
   * most {@link MAX_NAMESPACE} characters.
   */
  writePod(namespace: string, podName: string): void {
    const bytes = this.#bytes;
    const start = bytes.load(namespace, 1);
    const end = bytes.load(podName, start);
    const { loaded } = bytes;
    loaded[0] = namespace.length;
    let split = end;
    while (split > start && loaded[split - 1] !== DASH) split--;
    this.#write(split);
    bytes.writeLoaded(split, end);
  }

  readPod(): { readonly namespace: string; readonly podName: string } {
    const name = this.read();
    const start = 1 + name.charCodeAt(0);
    return { namespace: name.slice(1, start), podName: name.slice(start) + this.#bytes.readText() };
  }

  /** Like {@link Names.write}, for the first `length` bytes of `ByteBuffer.loaded`. */
  #write(length: number): number {
    const isHalfFull = this.#slots.length <= 4 * this.#count; // two elements for each name
    if (isHalfFull && this.#count < this.#maxNames) this.#grow();
    const bytes = this.#bytes;
    const hash = hashOf(bytes.loaded, length);
    const at = this.#slotOf(length, hash);
    const number = at < 0 ? 0 : (this.#slots[at + 1] ?? 0);
    if (number === 0) return this.#writeNew(length, hash, at);
    bytes.writeNumber(number);
    return number;
  }

  /** Returns the slot of the name in the first `length` loaded bytes, or a free slot; -1 if none is near. */
  #slotOf(length: number, hash: number): number {
    const slots = this.#slots;
    for (let probe = 0; probe < MAX_PROBES; probe++) {
      const at = (2 * (hash + probe)) & (slots.length - 1);
      const number = slots[at + 1] ?? 0;
      if (number === 0) return at;
      const position = this.#positions[number - FIRST_NUMBER] ?? 0;
      if (slots[at] === hash && this.#bytes.equalsLoaded(position, length)) return at;
    }
    return -1;
  }

  /** Writes the loaded name in full, with a number if there is a free slot and the maximum is not reached. */
  #writeNew(length: number, hash: number, slot: number): number {
    const bytes = this.#bytes;
    const isNumbered = slot >= 0 && this.#count < this.#maxNames;
    bytes.writeNumber(isNumbered ? NEXT_NUMBER : UNNUMBERED);
    const position = bytes.length;
    bytes.writeLoaded(0, length);
    if (!isNumbered) return 0;
    const number = FIRST_NUMBER + this.#count;
    this.#slots[slot] = hash;
    this.#slots[slot + 1] = number;
    this.#add(position);
    return number;
  }

  /** Doubles the table of the writer. Drops names without a free slot, which are later written again. */
  #grow(): void {
    const old = this.#slots;
    const slots = new Int32Array(Math.max(INITIAL_SLOT_ELEMENTS, 2 * old.length));
    const mask = slots.length - 1;
    for (let from = 0; from < old.length; from += 2) {
      const [hash = 0, number = 0] = [old[from], old[from + 1]];
      if (number === 0) continue;
      let at = (2 * hash) & mask;
      for (let probes = MAX_PROBES; probes > 0 && slots[at + 1] !== 0; probes--) at = (at + 2) & mask;
      if (slots[at + 1] !== 0) continue;
      slots[at] = hash;
      slots[at + 1] = number;
    }
    this.#slots = slots;
  }

  /** Adds `count` to the positions after `position`, because that number of bytes was inserted there. */
  shift(position: number, count: number): void {
    const positions = this.#positions;
    for (let at = this.#count - 1; at >= 0 && (positions[at] ?? 0) > position; at--)
      positions[at] = (positions[at] ?? 0) + count;
  }

  /** Returns the number of a name; 0 if the name was not written yet, or has no number. */
  numberOf(name: string): number {
    if (this.#slots.length === 0) return 0;
    const length = this.#bytes.load(name);
    const at = this.#slotOf(length, hashOf(this.#bytes.loaded, length));
    return at < 0 ? 0 : (this.#slots[at + 1] ?? 0);
  }

  /** Reads a name at the position of the buffer. */
  read(): string {
    const number = this.#bytes.readNumber();
    if (number < FIRST_NUMBER) return this.#bytes.readText();
    if (number - FIRST_NUMBER >= this.#count) throw new DamagedError(`unknown name ${number}`);
    const { at } = this.#bytes;
    this.#bytes.at = this.#positions[number - FIRST_NUMBER] ?? 0;
    const name = this.#bytes.readText();
    this.#bytes.at = at;
    return name;
  }

  /** Returns the number of the name at the position of the buffer, even if it is written there in full. */
  readNumber(): number {
    const number = this.#bytes.readNumber();
    if (number >= FIRST_NUMBER) return number;
    const position = this.#bytes.at;
    this.#bytes.skipText();
    return number === UNNUMBERED ? 0 : FIRST_NUMBER + indexAtMost(this.#positions, this.#count, position);
  }

  skip(): void {
    if (this.#bytes.readNumber() < FIRST_NUMBER) this.#bytes.skipText();
  }

  /** Advances over a name of a stored record, and numbers it as its writer did. Call it for each name in order. */
  skipAndNumber(): void {
    const number = this.#bytes.readNumber();
    if (number >= FIRST_NUMBER + this.#count) throw new DamagedError(`unknown name ${number}`);
    if (number >= FIRST_NUMBER) return;
    if (number === NEXT_NUMBER) {
      if (this.#count >= MAX_NAMES) throw new DamagedError('too many names');
      this.#add(this.#bytes.at);
    }
    this.#bytes.skipText();
  }

  /** Frees the table of the writer. */
  seal(): void {
    this.#slots = new Int32Array(0);
    this.#positions = this.#positions.slice(0, this.#count);
  }

  #add(position: number): void {
    if (this.#count === this.#positions.length) {
      const larger = new Int32Array(2 * this.#count);
      larger.set(this.#positions);
      this.#positions = larger;
    }
    this.#positions[this.#count++] = position;
  }
}
