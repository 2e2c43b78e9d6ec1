import { equalFrom, hashOfBytes, isAscii } from './byte-words.ts';

/** Number of places; a power of two. A place takes a reference until it is used. */
const PLACES = 4096;
/** Longer texts are not kept, so that the memory is bounded: at most 2 MB of text. */
const MOST_BYTES = 512;

interface Place<T> {
  readonly bytes: DataView;
  readonly value: T;
}

/**
 * Values of ASCII texts that repeat, by the bytes of the text: a million pods have a thousand hosts and a few sets of ports. One
 * object for each saves the work of creating it again, and its memory. A text is replaced by the next one with the same place.
 */
export class InternedBytes<T> {
  readonly #make: (text: string) => T;
  readonly #places: (Place<T> | undefined)[] = new Array(PLACES).fill(undefined);

  /** @param make returns the value of a text; called once for a text until it is replaced */
  constructor(make: (text: string) => T) {
    this.#make = make;
  }

  /** Returns the value of the text in `bytes[from, to)`; undefined if it is not ASCII. */
  get(bytes: DataView, from: number, to: number): T | undefined {
    const hash = hashOfBytes(bytes, from, to);
    const place = (hash ^ (hash >>> 16)) & (PLACES - 1);
    const known = this.#places[place];
    if (known !== undefined && known.bytes.byteLength === to - from && equalFrom(bytes, from, known.bytes))
      return known.value;
    return isAscii(bytes, from, to) ? this.#add(place, bytes, from, to) : undefined;
  }

  #add(place: number, bytes: DataView, from: number, to: number): T {
    const copy = Uint8Array.prototype.slice.call(
      new Uint8Array(bytes.buffer, bytes.byteOffset + from, to - from),
    );
    const value = this.#make(String.fromCharCode(...copy));
    if (copy.length <= MOST_BYTES) this.#places[place] = { bytes: new DataView(copy.buffer), value };
    return value;
  }
}
