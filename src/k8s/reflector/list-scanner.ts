import { Buffer } from 'node:buffer';
import { ApiError } from '../client/api-error.ts';
import { ByteRuns } from './byte-runs.ts';

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;

/** Where the items of a list are: in the list that is a member of the outermost object. */
const ITEMS_DEPTH = 2;
const ITEMS = /[{,]\s*"items"\s*:\s*$/;

/** What is left of a list without its items: a few hundred bytes. */
const LONGEST_SHELL = 64 * 1024;

/**
 * Cuts a list into its items while it arrives, so that it is never in memory as a whole:
 *
 *     {"kind":"PodList","metadata":{"resourceVersion":"7"},"items":[{ item },{ item }]}
 *     └───────────────────────── shell ──────────────────────────┘ └─ item ─┘        └┘ shell
 *
 * The bytes are only looked at for quotes and brackets. Cost: one step a byte.
 */
export class ListScanner {
  readonly #item: ByteRuns;
  #shell = '';
  #depth = 0;
  #inString = false;
  /** Bytes to come that are escaped: one, or none. */
  #skip = 0;
  #inItems = false;

  /** @param largestItem bytes; a larger item is left out, and counted. */
  constructor(largestItem: number) {
    this.#item = new ByteRuns(largestItem);
  }

  /** Items that were too large. */
  get tooLarge(): number {
    return this.#item.tooLarge;
  }

  /** What is around the items, as JSON with an empty list for them; once everything has arrived. */
  get shell(): string {
    return this.#shell;
  }

  /** The texts of the items that end in these bytes. */
  feed(bytes: Uint8Array): readonly string[] {
    const items: string[] = [];
    const { length } = bytes;
    let from = 0; // of what has not been kept
    let inString = this.#inString;
    let i = this.#skip;
    for (; i < length; i++) {
      const byte = bytes[i] ?? 0;
      if (inString) {
        if (byte === QUOTE) inString = false;
        else if (byte === BACKSLASH) i++; // the next one means nothing
      } else if (byte === QUOTE) inString = true;
      else if (byte === COMMA) {
        if (this.#depth !== ITEMS_DEPTH || !this.#inItems) continue;
        this.#keepShell(bytes, from, i);
        from = i + 1;
      } else if ((byte | 0x20) === 0x7b) {
        // [ and { are 5B and 7B, ] and } are 5D and 7D.
        if (this.#opens(byte, bytes, from, i)) from = i;
      } else if ((byte | 0x20) === 0x7d) {
        if (!this.#closes()) continue;
        const text = this.#item.end(bytes, from, i + 1);
        if (text !== undefined) items.push(text);
        from = i + 1;
      }
    }
    this.#inString = inString;
    this.#skip = i - length;
    if (this.#inItems && this.#depth > ITEMS_DEPTH) this.#item.keep(bytes, from, length);
    else this.#keepShell(bytes, from, length);
    return items;
  }

  /** Whether the items, or one of them, begins with this bracket. */
  #opens(bracket: number, bytes: Uint8Array, from: number, at: number): boolean {
    const depth = ++this.#depth;
    const isItem = this.#inItems && depth === ITEMS_DEPTH + 1;
    const isList = depth === ITEMS_DEPTH && bracket === 0x5b;
    if (!isItem && !isList) return false;
    this.#keepShell(bytes, from, at);
    if (isList) this.#inItems = ITEMS.test(this.#shell);
    return true;
  }

  /** Whether an item ends with this bracket. */
  #closes(): boolean {
    const depth = --this.#depth;
    if (this.#inItems && depth < ITEMS_DEPTH) this.#inItems = false;
    return this.#inItems && depth === ITEMS_DEPTH;
  }

  #keepShell(bytes: Uint8Array, from: number, to: number): void {
    if (from >= to) return;
    if (this.#shell.length + to - from > LONGEST_SHELL)
      throw new ApiError('garbled', 'the answer is no list');
    // Names and versions: a character that is cut in two is in none that matters.
    this.#shell += Buffer.from(bytes.buffer, bytes.byteOffset + from, to - from).toString('utf8');
  }
}
