/** Number of places; a power of two. A place takes a reference until it is used. */
const PLACES = 4096;
/** 2^32 divided by the golden ratio, as in `Int32Map`. */
const GOLDEN = 0x9e37_79b1;
/** Longer texts are not kept, so that the memory is bounded: at most 2 MB of text. */
const MOST_BYTES = 512;

interface Place<T> {
  readonly text: string;
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

  /** Returns the value of the text in `bytes[from, to)`, which must be ASCII. */
  get(bytes: Buffer, from: number, to: number): T {
    let hash = 0;
    for (let at = from; at < to; at++) hash = Math.imul(hash ^ (bytes[at] ?? 0), GOLDEN);
    const place = (hash ^ (hash >>> 15)) & (PLACES - 1);
    const known = this.#places[place];
    if (known !== undefined && isText(known.text, bytes, from, to)) return known.value;
    const text = bytes.toString('latin1', from, to);
    const value = this.#make(text);
    if (to - from <= MOST_BYTES) this.#places[place] = { text, value };
    return value;
  }
}

/** Returns true if `bytes[from, to)` are the characters of an ASCII text. */
export function isText(text: string, bytes: Uint8Array, from: number, to: number): boolean {
  if (text.length !== to - from) return false;
  for (let i = 0; i < text.length; i++) if (text.charCodeAt(i) !== bytes[from + i]) return false;
  return true;
}
