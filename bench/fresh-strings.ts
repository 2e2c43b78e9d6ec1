/** Tuples in a chunk: as many as a batch of kvstore events has, so that what is timed finds them as warm as a watch would. */
export const CHUNK = 256;

/**
 * Tuples of strings that can be had any number of times, new strings each time: they are kept as JSON and parsed
 * when asked for, as a watch does with what comes from a kvstore. So they have no hash yet, are slices of nothing, and
 * are equal to nothing by reference. (V8 makes one string of equal ones up to 10 characters; few of ours are so short.)
 */
export class FreshStrings {
  readonly size: number;
  readonly #width: number;
  readonly #chunks: readonly string[];

  /** `tuple` writes tuple `index` at the end of `out`: always `width` strings. */
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
   * The strings of all tuples, or of every `every`th chunk, in chunks of whole tuples: `width` strings each, one tuple after
   * the other.
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
