/** Maximum number of characters of a shown value. */
const VALUE_LENGTH = 120;

/** Deeper objects are shown as `…`, because an object may contain itself. */
const MAX_DEPTH = 8;

/** Returns the first `length` characters of a text. If the text is longer, the result ends in `…`. */
export function cutText(text: string, length: number): string {
  return text.length > length ? `${text.slice(0, length - 1)}…` : text;
}

/**
 * Writes a value as JSON and stops when the text is long enough, so that a large value costs no more than a small one.
 */
class ValueWriter {
  text = '';

  get full(): boolean {
    return this.text.length > VALUE_LENGTH;
  }

  write(value: unknown, depth: number): void {
    if (typeof value === 'string') this.text += JSON.stringify(value.slice(0, VALUE_LENGTH));
    else if (typeof value === 'bigint' || typeof value === 'function') this.text += `[${typeof value}]`;
    else if (typeof value !== 'object' || value === null) this.text += String(value);
    else if (depth === MAX_DEPTH) this.text += '…';
    else if (Array.isArray(value)) this.#list(value, depth);
    else this.#fields(value, depth);
  }

  #list(items: readonly unknown[], depth: number): void {
    this.text += '[';
    for (let i = 0; i < items.length && !this.full; i++) {
      if (i > 0) this.text += ',';
      this.write(items[i], depth + 1);
    }
    this.text += ']';
  }

  #fields(object: object, depth: number): void {
    this.text += '{';
    let first = true;
    for (const name in object) {
      if (this.full) break;
      if (!Object.hasOwn(object, name)) continue;
      this.text += `${first ? '' : ','}${JSON.stringify(cutText(name, VALUE_LENGTH))}:`;
      first = false;
      this.write(Reflect.get(object, name), depth + 1);
    }
    this.text += '}';
  }
}

/**
 * Returns any value as text of at most 120 characters, as JSON if it is data. Never throws and never calls `toJSON`.
 * The cost is bounded, except for the names of an object, which the runtime may collect first.
 */
export function showValue(value: unknown): string {
  const writer = new ValueWriter();
  try {
    writer.write(value, 0);
  } catch {
    return `[${typeof value}]`; // a hostile proxy or getter: further access may throw again
  }
  return cutText(writer.text, VALUE_LENGTH);
}

/** Returns the noun for a number of things. */
export function nounOf(count: number, noun: string, plural: string = `${noun}s`): string {
  return count === 1 ? noun : plural;
}

/** Returns a number with its noun: `1 prefix`, `2 prefixes`. */
export function counted(count: number, noun: string, plural?: string): string {
  return `${count} ${nounOf(count, noun, plural)}`;
}

/** Returns the first texts, and the number of the others: `a, b and 3 more`. */
export function listText(texts: readonly string[], maxShown: number, separator = ', '): string {
  const more = texts.length - maxShown;
  return `${texts.slice(0, maxShown).join(separator)}${more > 0 ? ` and ${more} more` : ''}`;
}

const UNITS: readonly (readonly [name: string, seconds: number])[] = [
  ['d', 86_400],
  ['h', 3_600],
  ['min', 60],
  ['s', 1],
];

/** Returns a duration with one unit, such as `4 min`. */
export function durationText(ms: number): string {
  const seconds = Math.max(0, ms) / 1_000;
  const [unit, size] = UNITS.find(([, unitSeconds]) => seconds >= unitSeconds) ?? ['ms', 0.001];
  return `${Math.floor(seconds / size)} ${unit}`;
}

/**
 * Returns the number of characters to insert, delete or replace that make the words equal (Levenshtein). If it exceeds
 * `max`, the result is above `max`, but not always exact: columns further than `max` from the diagonal are omitted.
 */
export function distance(from: string, to: string, max: number = Number.POSITIVE_INFINITY): number {
  // A common start or end does not count. Names of one cluster often have long common starts.
  let start = 0;
  while (start < from.length && from[start] === to[start]) start++;
  let [fromEnd, toEnd] = [from.length, to.length];
  for (; Math.min(fromEnd, toEnd) > start && from[fromEnd - 1] === to[toEnd - 1]; fromEnd--) toEnd--;
  const [rows, columns] = [fromEnd - start, toEnd - start];
  // Row `i` has the distances of the first `i` characters of `from` to each prefix of `to`. It replaces row `i` - 1.
  const notComputed = Number.POSITIVE_INFINITY;
  const row = Array.from({ length: columns + 1 }, (_, index) => (index <= max ? index : notComputed));
  for (let i = 1; i <= rows; i++) {
    const first = Math.max(1, i - max);
    let diagonal = row[first - 1] ?? notComputed;
    let left = first === 1 ? i : notComputed;
    let lowest = left;
    row[first - 1] = left;
    for (let j = first; j <= Math.min(columns, i + max); j++) {
      const above = row[j] ?? notComputed;
      const replaced = diagonal + Number(from[start + i - 1] !== to[start + j - 1]);
      left = Math.min(replaced, above + 1, left + 1);
      row[j] = left;
      diagonal = above;
      lowest = Math.min(lowest, left);
    }
    if (lowest > max) return lowest;
  }
  return row[columns] ?? notComputed;
}

/** Longer words are not compared. */
const MAX_WORD = 64;

/** Returns the largest distance of a similar word: a third of its characters, but at least two. */
function maxDistance(word: string): number {
  return Math.max(2, Math.floor(word.length / 3));
}

/** Returns false if `word` is too long to be compared, or if its length differs too much from that of `name`. */
export function hasSimilarLength(word: string, name: string): boolean {
  return word.length <= MAX_WORD && Math.abs(name.length - word.length) <= maxDistance(word);
}

/** Returns the most similar known word if its distance is at most {@link maxDistance}. */
export function nearest(word: string, known: readonly string[]): string | undefined {
  const lower = word.toLowerCase();
  let best: string | undefined;
  let max = maxDistance(word);
  for (const name of known) {
    if (!hasSimilarLength(word, name)) continue;
    const differences = distance(lower, name.toLowerCase(), max);
    if (differences > max) continue;
    best = name;
    max = differences - 1;
    if (differences === 0) break;
  }
  return best;
}
