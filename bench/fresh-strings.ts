/** Number of tuples in a chunk: that of events in a kvstore batch, so that they are in the CPU caches as in a watch. */
export const CHUNK = 256;

/**
 * Tuples of strings that can be created any number of times, with new strings each time: they are stored as JSON and
 * parsed on request, as a watch parses values of a kvstore. So they have no hash yet, are not slices of other strings,
 * and are not equal to others by reference. (V8 shares equal strings up to 10 characters; few of these are so short.)
 */
export class FreshStrings {
  readonly size: number;
  readonly #width: number;
  readonly #chunks: readonly string[];

  /** `tuple` appends tuple `index` to `out`: always `width` strings. */
  constructor(size: number, width: number, tuple: (index: number, out: string[]) => void) {
    this.size = size;
    this.#width = width;
    const chunks: string[] = [];
    for (let from = 0; from < size; from += CHUNK) {
      const texts: string[] = [];
      for (let index = from; index < Math.min(size, from + CHUNK); index++) tuple(index, texts);
      chunks.push(JSON.stringify(texts));
    }
    this.#chunks = chunks;
  }

  /**
   * Yields the strings of all tuples, or of every `every`th chunk, in chunks of whole tuples: `width` strings each, one
   * tuple after the other.
   */
  *chunks(
    every = 1,
  ): Generator<{ readonly from: number; readonly count: number; readonly texts: readonly string[] }> {
    for (let at = 0; at < this.#chunks.length; at += every) {
      const texts: readonly string[] = JSON.parse(this.#chunks[at] ?? '[]');
      yield { from: at * CHUNK, count: texts.length / this.#width, texts };
    }
  }
}
