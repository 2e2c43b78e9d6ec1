import { hashOfBytes, isAscii } from './byte-words.ts';

/** Minimum and maximum number of slots, powers of two. A mesh of 255 clusters has 25,000 hosts. */
const FIRST_SLOTS = 256;
const MAX_SLOTS = 65_536;
/** Longer texts are not kept, so that the memory is bounded. */
const MAX_BYTES = 512;

const decoder = new TextDecoder();

interface InternedEntry<T> {
  /**
   * The bytes of the text, four in each word. V8 stores a small typed array without an `ArrayBuffer`, which takes
   * longer to create than most values.
   */
  readonly words: Int32Array;
  readonly length: number;
  readonly value: T;
}

/**
 * Maps the bytes of ASCII texts to one shared value for each text. Texts repeat: a million pods have a
 * thousand hosts and a few sets of ports. Sharing saves the time and the memory of creating the value again. The hash
 * of a text selects its slot; a new text replaces the one in the slot.
 */
export class InternedBytes<T> {
  readonly #make: (text: string) => T;
  readonly #maxSlots: number;
  /** The last text, because most pods have the same ports as the previous pod. */
  #last: InternedEntry<T> | undefined;
  #slots: (InternedEntry<T> | undefined)[] = new Array(FIRST_SLOTS).fill(undefined);
  /** Number of texts replaced since the number of slots grew. */
  #replaced = 0;

  /**
   * @param make returns the value of a text; called again if the text is not kept, was replaced, or the table has grown
   * @param maxSlots a power of two
   */
  constructor(make: (text: string) => T, maxSlots: number = MAX_SLOTS) {
    this.#make = make;
    this.#maxSlots = maxSlots;
  }

  /** Returns the value of the text in `bytes[from, to)`; undefined if it is not ASCII. */
  get(bytes: DataView, from: number, to: number): T | undefined {
    const last = this.#last;
    if (last !== undefined && isAt(last, bytes, from, to)) return last.value;
    const hash = hashOfBytes(bytes, from, to);
    const slotHash = hash ^ (hash >>> 16); // the low bits select a slot
    const known = this.#slots[slotHash & (this.#slots.length - 1)];
    if (known !== undefined && isAt(known, bytes, from, to)) {
      this.#last = known;
      return known.value;
    }
    return isAscii(bytes, from, to) ? this.#add(slotHash, bytes, from, to) : undefined;
  }

  #add(slotHash: number, bytes: DataView, from: number, to: number): T {
    const length = to - from;
    const value = this.#make(decoder.decode(new Uint8Array(bytes.buffer, bytes.byteOffset + from, length)));
    if (length > MAX_BYTES) return value;
    const words = new Int32Array(Math.ceil(length / 4));
    for (let i = 0; i < words.length; i++) words[i] = wordAt(bytes, from + 4 * i, to);
    this.#set(slotHash, { words, length, value });
    return value;
  }

  #set(slotHash: number, entry: InternedEntry<T>): void {
    if (this.#slots[slotHash & (this.#slots.length - 1)] !== undefined) this.#replaced++;
    if (this.#replaced > this.#slots.length && this.#slots.length < this.#maxSlots) {
      this.#slots = new Array(2 * this.#slots.length).fill(undefined);
      this.#replaced = 0;
    }
    this.#slots[slotHash & (this.#slots.length - 1)] = entry;
  }
}

/** Returns the next four bytes of a text, or its last bytes if they are fewer. */
function wordAt(bytes: DataView, from: number, to: number): number {
  if (from + 4 <= to) return bytes.getInt32(from, true);
  let word = 0;
  for (let at = from; at < to; at++) word = (word << 8) | bytes.getUint8(at);
  return word;
}

function isAt({ words, length }: InternedEntry<unknown>, bytes: DataView, from: number, to: number): boolean {
  if (length !== to - from) return false;
  // Backwards, because repeated texts of one field often begin alike.
  for (let i = words.length - 1; i >= 0; i--) if (words[i] !== wordAt(bytes, from + 4 * i, to)) return false;
  return true;
}
