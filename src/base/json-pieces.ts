/** Characters parsed or scanned per step: 1 to 7 ms for any content. */
const PIECE_LENGTH = 32 * 1024;

/** Maximum nesting of containers larger than a piece. Each level costs one more scan. */
const MAX_DEPTH = 16;

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const COLON = 0x3a;

const CLOSERS: ReadonlyMap<string, string> = new Map([
  ['{', '}'],
  ['[', ']'],
]);

/**
 * Returns the index after the string literal which begins at `from`. If the literal does not end, returns the length of
 * the text.
 */
export function skipString(text: string, from: number): number {
  for (let end = text.indexOf('"', from + 1); end >= 0; end = text.indexOf('"', end + 1)) {
    let backslashes = 0;
    while (text.charCodeAt(end - 1 - backslashes) === BACKSLASH) backslashes++;
    if (backslashes % 2 === 0) return end + 1;
  }
  return text.length;
}

function isSpace(code: number): boolean {
  return code === 0x20 || code === 0x0a || code === 0x0d || code === 0x09;
}

/** Returns the text without leading and trailing white space of JSON. */
function trimSpace(text: string): string {
  let from = 0;
  let to = text.length;
  while (from < to && isSpace(text.charCodeAt(from))) from++;
  while (to > from && isSpace(text.charCodeAt(to - 1))) to--;
  return text.slice(from, to);
}

/** A container which is too large for one call of `JSON.parse`. */
class LargeContainer {
  readonly #text: string;
  readonly #pieceLength: number;
  /** Number of large containers around this one. */
  readonly #depth: number;
  readonly #close: string;
  /** Index of the first scanned member which is not parsed. */
  #pending: number;
  /** Index of the current member. */
  #member: number;
  /** Index of the colon after the name of the current member; less than `#member` if none was found yet. */
  #colon = -1;
  /** The members parsed so far. An object has no prototype, so that no name is special and fields are cheap to add. */
  readonly #parsed: unknown[] | Record<string, unknown>;

  constructor(text: string, pieceLength: number, depth: number) {
    const close = CLOSERS.get(text[0] ?? '');
    if (close === undefined || !text.endsWith(close)) throw new SyntaxError('brackets do not match');
    if (depth > MAX_DEPTH) throw new SyntaxError('nested too deeply');
    this.#text = text;
    this.#pieceLength = pieceLength;
    this.#depth = depth;
    this.#close = close;
    this.#parsed = close === ']' ? [] : Object.create(null);
    this.#pending = 1;
    this.#member = 1;
  }

  *parse(): Generator<undefined, unknown> {
    const text = this.#text;
    const last = text.length - 1;
    let nesting = 0;
    let scanned = 0;
    for (let i = 1; i < last; i++) {
      const char = text.charCodeAt(i);
      if (char === QUOTE) i = skipString(text, i) - 1;
      // [ and { are 5B and 7B, ] and } are 5D and 7D.
      else if ((char | 0x20) === 0x7b) nesting++;
      else if ((char | 0x20) === 0x7d) {
        if (--nesting < 0) throw new SyntaxError('brackets do not match');
      } else if (nesting === 0 && char === COLON && this.#colon < this.#member) this.#colon = i;
      else if (nesting === 0 && char === COMMA) yield* this.#endMember(i, false);
      if (i - scanned > this.#pieceLength) {
        scanned = i;
        yield;
      }
    }
    yield* this.#endMember(last, true);
    return this.#parsed;
  }

  /**
   * Ends the current member. A large member is parsed alone, after the pending ones. Another member is pending until
   * the pending members together are longer than a piece.
   */
  *#endMember(end: number, isLast: boolean): Generator<undefined, void> {
    const isLarge = end - this.#member > this.#pieceLength;
    if (isLarge && trimSpace(this.#text.slice(this.#member, end)) !== '') {
      if (this.#pending < this.#member) this.#addPending(this.#member - 1);
      yield;
      yield* this.#addLarge(end);
      this.#pending = end + 1;
    } else if (isLast || end - this.#pending > this.#pieceLength) {
      this.#addPending(end);
      yield;
    }
    this.#member = end + 1;
  }

  /** Parses the pending members in one call. */
  #addPending(end: number): void {
    const members = this.#text.slice(this.#pending, end);
    const isWhole = this.#pending === 1 && end === this.#text.length - 1;
    // Only an empty container has no member.
    if (!isWhole && trimSpace(members) === '') throw new SyntaxError('a member is missing');
    const piece: object = JSON.parse(`${this.#text[0]}${members}${this.#close}`);
    if (!Array.isArray(this.#parsed))
      for (const [name, value] of Object.entries(piece)) this.#parsed[name] = value;
    else if (Array.isArray(piece)) for (const item of piece) this.#parsed.push(item);
    this.#pending = end + 1;
  }

  /** Parses one member, larger than a piece. */
  *#addLarge(end: number): Generator<undefined, void> {
    if (Array.isArray(this.#parsed)) {
      const item = this.#text.slice(this.#member, end);
      this.#parsed.push(yield* parsePieces(item, this.#pieceLength, this.#depth + 1));
      return;
    }
    if (this.#colon < this.#member) throw new SyntaxError('a name is missing');
    const name: unknown = JSON.parse(this.#text.slice(this.#member, this.#colon));
    if (typeof name !== 'string') throw new SyntaxError('a name must be a string');
    const value = this.#text.slice(this.#colon + 1, end);
    this.#parsed[name] = yield* parsePieces(value, this.#pieceLength, this.#depth + 1);
  }
}

function* parsePieces(text: string, pieceLength: number, depth: number): Generator<undefined, unknown> {
  if (text.length <= pieceLength) return JSON.parse(text);
  const trimmed = trimSpace(text);
  // A string or a number cannot be split.
  if (!CLOSERS.has(trimmed[0] ?? '')) return JSON.parse(text);
  return yield* new LargeContainer(trimmed, pieceLength, depth).parse();
}

/**
 * Parses JSON in steps of a few milliseconds, for texts that would block the event loop. Returns the same value as
 * `JSON.parse`, except that large objects have no prototype. Throws a SyntaxError if `JSON.parse` would throw one, or
 * if containers of more than `pieceLength` characters are nested deeper than 16. Costs one more pass over the text for
 * each level of such containers.
 */
export function parseJsonInPieces(
  text: string,
  pieceLength: number = PIECE_LENGTH,
): Generator<undefined, unknown> {
  return parsePieces(text, pieceLength, 1);
}
