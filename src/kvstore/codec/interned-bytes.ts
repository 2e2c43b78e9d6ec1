import { equalFrom, hashOfBytes, isAscii } from './byte-words.ts';

/** Numbers of places: powers of two. A mesh of 255 clusters has 25,000 hosts. */
const FIRST_PLACES = 256;
const MAX_PLACES = 65_536;
/** Longer texts are not kept, so that the memory is bounded. */
const MAX_BYTES = 512;

interface Place<T> {
  readonly bytes: DataView;
  readonly length: number;
  readonly value: T;
}

/**
 * A table that maps the bytes of ASCII texts to one shared value for each text. Texts repeat: a million pods have a thousand
 * hosts and a few sets of ports. Sharing saves the time and the memory of creating the value again. A new text replaces the text
 * that occupies its place in the table.
 */
export class InternedBytes<T> {
  readonly #make: (text: string) => T;
  /** The last text, because most pods have the same ports as the previous pod. */
  #last: Place<T> | undefined;
  #places: (Place<T> | undefined)[] = new Array(FIRST_PLACES).fill(undefined);
  /** Number of texts that were replaced since the number of places grew. */
  #replaced = 0;

  /** @param make returns the value of a text; called again only after the text was replaced */
  constructor(make: (text: string) => T) {
    this.#make = make;
  }

  /** Returns the value of the text in `bytes[from, to)`; undefined if it is not ASCII. */
  get(bytes: DataView, from: number, to: number): T | undefined {
    const last = this.#last;
    if (last !== undefined && isAt(last, bytes, from, to)) return last.value;
    const hash = hashOfBytes(bytes, from, to);
    const place = hash ^ (hash >>> 16);
    const known = this.#places[place & (this.#places.length - 1)];
    if (known !== undefined && isAt(known, bytes, from, to)) {
      this.#last = known;
      return known.value;
    }
    return isAscii(bytes, from, to) ? this.#add(place, bytes, from, to) : undefined;
  }

  #add(place: number, bytes: DataView, from: number, to: number): T {
    const length = to - from;
    const copy = bytes.buffer.slice(bytes.byteOffset + from, bytes.byteOffset + to);
    const value = this.#make(Buffer.from(copy).toString('latin1'));
    if (length <= MAX_BYTES) this.#set(place, { bytes: new DataView(copy), length, value });
    return value;
  }

  #set(place: number, text: Place<T>): void {
    const at = place & (this.#places.length - 1);
    if (this.#places[at] !== undefined) this.#replaced++;
    if (this.#replaced > this.#places.length && this.#places.length < MAX_PLACES) {
      this.#places = new Array(2 * this.#places.length).fill(undefined);
      this.#replaced = 0;
    }
    this.#places[place & (this.#places.length - 1)] = text;
  }
}

function isAt({ bytes: known, length }: Place<unknown>, bytes: DataView, from: number, to: number): boolean {
  return length === to - from && equalFrom(bytes, from, known, length);
}
