import { Buffer } from 'node:buffer';
import { ApiError } from '../rest/api-error.ts';
import { ByteRuns } from './byte-runs.ts';
import { type FieldTree, OMITTED } from './field-tree.ts';

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const OPEN_OBJECT = 0x7b;

/** Number of brackets around an item of a list, and around an item which is a line. */
const DEPTH_IN_LIST = 2;
const DEPTH_IN_LINE = 0;
/** Matches the end of a shell (see {@link ListScanner}) whose next bracket opens the list of items. */
const ITEMS_FOLLOW = /[{,]\s*"items"\s*:\s*$/;
/** Number of characters before a bracket in which {@link ITEMS_FOLLOW} is searched. */
const MAX_ITEMS_NAME = 256;

/** Maximum size of a list without its items; usually a few hundred bytes. */
const MAX_SHELL_BYTES = 64 * 1024;

/** The index of a byte outside the current bytes. */
const NOT_HERE = -1;

/** Maximum size of an incomplete item stored to be scanned again with the next bytes. */
const MAX_CUT_BYTES = 64 * 1024;
/** Number of the next bytes that are first added to a cut item; if it is still incomplete, all are added. */
const REST_BYTES = 4096;

/** Reads items from bytes. */
interface ItemScanner<T> {
  /** Returns the item that begins at `bytes[from]`; undefined if it is incomplete, or if its text must be parsed. */
  scan(bytes: Uint8Array, from: number): T | undefined;
  /** Index behind the item. If no item was returned because it is incomplete, at least the length of the bytes. */
  readonly end: number;
}

/**
 * Splits a list into its items while it arrives, so that the whole list is never in memory:
 *
 *     {"kind":"PodList","metadata":{"resourceVersion":"7"},"items":[{ item },{ item }]}
 *     └───────────────────────── shell ──────────────────────────┘ └─ item ─┘        └┘ shell
 *
 * Also reads lines of one object each. Scans the bytes only for quotes, commas and brackets. Cost: one step per byte.
 *
 * Removes unrequested fields of an item before it is decoded, together with the preceding or the following comma:
 *
 *     {"metadata":{"name":"a","managedFields":[ … ],"uid":"7"},"status":{ … }}
 *                            └───── removed ─────┘
 *
 * If the name of a field is split between two calls of `feed`, the field is kept.
 */
export class ListScanner<T = never> {
  readonly #item: ByteRuns;
  readonly #fields: FieldTree | undefined;
  /** Number of brackets around an item. */
  readonly #itemsDepth: number;
  readonly #scanner: ItemScanner<T> | undefined;
  /** The first bytes of an incomplete item, which is scanned again with the next bytes; undefined if there is none. */
  #cut: Uint8Array | undefined;
  #shell = '';
  /** The last characters of the shell. Not read from the shell, because it may contain thousands of lists. */
  #shellEnd = '';
  /** Number of open brackets. */
  #depth = 0;
  #inString = false;
  /** Number of escaped bytes at the start of the next bytes: 0 or 1. */
  #escaped = 0;
  /** True within the list of items; always true for lines. */
  #inItems: boolean;
  /** Index in the current bytes of the first byte that is neither kept nor removed. */
  #from = 0;

  /** Depth of the outermost object or list that is kept completely; 0 if there is none. */
  #wholeDepth = 0;
  /** Depth of the object whose field is being removed; 0 if none is. */
  #removalDepth = 0;
  /** The enclosing objects and lists that are kept partly, by depth. */
  readonly #enclosing: { readonly tree: FieldTree; readonly isObject: boolean }[] = [];
  /** True if the next string is the name of a field. */
  #isName = false;
  /** Indices in the current bytes: of the name of the current field, and of the comma or bracket before the name. */
  #nameStart = NOT_HERE;
  #separatorAt = NOT_HERE;
  /** True if no field of the current object has been kept yet. */
  #isFirst = false;
  /** The part to keep of the field whose name was read last; undefined if the whole field is kept. */
  #fieldTree: FieldTree | undefined;

  /**
   * @param largestItem maximum number of bytes of an item without removed fields; larger items are dropped and counted
   * @param fields the fields of an item to keep; default: all
   * @param scanner reads items; default: none
   */
  constructor(
    largestItem: number,
    fields?: FieldTree,
    shape: 'list' | 'lines' = 'list',
    scanner?: ItemScanner<T>,
  ) {
    this.#item = new ByteRuns(largestItem);
    this.#fields = fields;
    this.#scanner = scanner;
    this.#inItems = shape === 'lines';
    this.#itemsDepth = this.#inItems ? DEPTH_IN_LINE : DEPTH_IN_LIST;
  }

  /** Returns the number of dropped items. */
  get tooLarge(): number {
    return this.#item.tooLarge;
  }

  /** Returns true if the last line is not complete. */
  get isCut(): boolean {
    return this.#depth !== DEPTH_IN_LINE || this.#inString;
  }

  /** Returns the list as JSON without its items. Complete after the last byte. */
  get shell(): string {
    return this.#shell;
  }

  /**
   * Returns the items that end in these bytes, as texts if there is no scanner or if it does not read them.
   */
  feed(bytes: Uint8Array): readonly (string | T)[] {
    const items: (string | T)[] = [];
    const cut = this.#cut;
    if (cut === undefined) this.#split(bytes, 0, items);
    else this.#splitAfter(cut, bytes, items);
    return items;
  }

  /**
   * Splits bytes which begin with the rest of the item in `cut`. Scans the item with the first bytes, and, if it is
   * still incomplete, with all bytes.
   */
  #splitAfter(cut: Uint8Array, bytes: Uint8Array, items: (string | T)[]): void {
    for (let size = Math.min(REST_BYTES, bytes.length); ; size = bytes.length) {
      const joined = new Uint8Array(cut.length + size);
      joined.set(cut);
      joined.set(bytes.subarray(0, size), cut.length);
      const item = this.#scanner?.scan(joined, 0);
      const end = this.#scanner?.end ?? 0;
      if (item !== undefined) {
        this.#cut = undefined;
        items.push(item);
        this.#split(bytes, end - cut.length, items);
        return;
      }
      if (end >= joined.length && size < bytes.length) continue;
      // If the bytes have not doubled, they are not stored, because each of many small parts would cause another scan.
      if (end < joined.length || joined.length > MAX_CUT_BYTES || size < cut.length) break;
      this.#cut = joined;
      return;
    }
    this.#split(cut, 0, items);
    this.#cut = undefined;
    this.#split(bytes, 0, items);
  }

  /** Splits the bytes from an index. If `#cut` is set, the scanner has refused the item at the start of the bytes. */
  #split(bytes: Uint8Array, start: number, items: (string | T)[]): void {
    const { length } = bytes;
    let inString = this.#inString;
    let i = start + this.#escaped;
    this.#from = start;
    this.#nameStart = NOT_HERE;
    this.#separatorAt = NOT_HERE;
    for (; i < length; i++) {
      let byte = bytes[i] ?? 0;
      if (inString) {
        while (byte !== QUOTE && byte !== BACKSLASH && ++i < length) byte = bytes[i] ?? 0;
        if (i === length) break;
        if (byte === BACKSLASH) {
          this.#nameStart = NOT_HERE; // names with escapes are not compared
          i++; // skip the escaped byte
        } else {
          inString = false;
          if (this.#isName) this.#endName(bytes, i);
        }
      } else if (byte === QUOTE) {
        inString = true;
        this.#nameStart = i + 1;
      } else if (byte === COMMA) {
        if (this.#wholeDepth === 0) this.#comma(bytes, i);
      } else if ((byte | 0x20) === 0x7b) {
        // [ and { are 5B and 7B, ] and } are 5D and 7D.
        if (this.#scanner !== undefined && this.#inItems && this.#depth === this.#itemsDepth && !this.#cut) {
          const end = this.#scanItem(this.#scanner, bytes, i, items);
          if (end > i) {
            i = end - 1;
            continue;
          }
        }
        this.#depth++;
        if (this.#wholeDepth === 0 && this.#removalDepth === 0) this.#open(byte, bytes, i);
      } else if ((byte | 0x20) === 0x7d) {
        const text = this.#close(bytes, i);
        if (text !== undefined) items.push(text);
      }
    }
    this.#inString = inString;
    this.#escaped = Math.max(0, i - length);
    if (this.#inItems && this.#depth > this.#itemsDepth) {
      if (this.#removalDepth === 0) this.#item.keep(bytes, this.#from, length);
    } else if (i >= length) this.#keepShell(bytes, length);
  }

  /**
   * Scans the item at an index; if it is incomplete, stores its bytes in `#cut`. Returns the index behind the item or
   * the stored bytes. If the scanner has refused the item, returns its index.
   */
  #scanItem(scanner: ItemScanner<T>, bytes: Uint8Array, at: number, items: (string | T)[]): number {
    const item = scanner.scan(bytes, at);
    let { end } = scanner;
    if (item !== undefined) items.push(item);
    else if (end >= bytes.length && bytes.length - at <= MAX_CUT_BYTES) {
      this.#cut = new Uint8Array(bytes.subarray(at)); // a copy, also of a Buffer
      end = bytes.length;
    } else return at;
    this.#keepShell(bytes, at);
    this.#from = end;
    return end;
  }

  /** Handles the bracket at an index, which opens an object or list. */
  #open(bracket: number, bytes: Uint8Array, at: number): void {
    const depth = this.#depth;
    const isObject = bracket === OPEN_OBJECT;
    if (!this.#inItems) {
      if (depth !== this.#itemsDepth || isObject) return;
      this.#keepShell(bytes, at);
      this.#inItems = ITEMS_FOLLOW.test(this.#shellEnd);
      return;
    }
    if (depth === this.#itemsDepth + 1) this.#keepShell(bytes, at);
    const tree = this.#treeOf(depth, isObject);
    if (tree === undefined) {
      this.#wholeDepth = depth;
      return;
    }
    this.#enclosing[depth] = { tree, isObject };
    if (isObject) this.#expectName(at, true);
  }

  /** Returns the fields to keep of the object or list that begins; undefined if it is kept completely. */
  #treeOf(depth: number, isObject: boolean): FieldTree | undefined {
    if (depth === this.#itemsDepth + 1) return this.#fields;
    const parent = this.#enclosing[depth - 1];
    if (parent?.isObject === true) return this.#fieldTree;
    return isObject ? parent?.tree : undefined;
  }

  #expectName(separator: number, isFirst: boolean): void {
    this.#isName = true;
    this.#separatorAt = separator;
    this.#isFirst = isFirst;
  }

  /** Starts to remove the field if it is not requested. If the name began in earlier bytes, the whole field is kept. */
  #endName(bytes: Uint8Array, at: number): void {
    this.#isName = false;
    this.#fieldTree = undefined;
    if (this.#nameStart === NOT_HERE) return;
    const found = this.#enclosing[this.#depth]?.tree.find(bytes, this.#nameStart, at);
    if (found !== OMITTED) this.#fieldTree = found;
    else if (this.#separatorAt !== NOT_HERE) {
      this.#removalDepth = this.#depth;
      this.#item.keep(bytes, this.#from, this.#isFirst ? this.#separatorAt + 1 : this.#separatorAt);
    }
  }

  /** Handles the comma at an index. */
  #comma(bytes: Uint8Array, at: number): void {
    const depth = this.#depth;
    if (this.#removalDepth > 0) {
      if (this.#removalDepth !== depth) return;
      this.#removalDepth = 0;
      this.#from = this.#isFirst ? at + 1 : at;
      this.#expectName(at, this.#isFirst);
    } else if (depth === this.#itemsDepth) {
      if (!this.#inItems) return;
      this.#keepShell(bytes, at);
      this.#from = at + 1;
    } else if (this.#inItems && this.#enclosing[depth]?.isObject === true) this.#expectName(at, false);
  }

  /** Handles the closing bracket at an index. Returns the text of the item if it ends the item. */
  #close(bytes: Uint8Array, at: number): string | undefined {
    const depth = this.#depth--;
    if (this.#wholeDepth === depth) this.#wholeDepth = 0;
    if (this.#removalDepth === depth) {
      this.#removalDepth = 0;
      this.#from = at;
    }
    this.#isName = false;
    if (!this.#inItems || depth > this.#itemsDepth + 1) return undefined;
    if (depth === this.#itemsDepth) this.#inItems = false;
    if (depth !== this.#itemsDepth + 1) return undefined;
    const text = this.#item.end(bytes, this.#from, at + 1);
    this.#from = at + 1;
    return text;
  }

  /** Appends the bytes before `to` that are not kept yet to the shell. */
  #keepShell(bytes: Uint8Array, to: number): void {
    const from = this.#from;
    this.#from = to;
    if (from >= to || this.#itemsDepth === DEPTH_IN_LINE) return;
    // A character that is split between two chunks is decoded wrongly. Only names and versions of the shell are read,
    // which are ASCII.
    const text = Buffer.from(bytes.buffer, bytes.byteOffset + from, to - from).toString('utf8');
    // White space between items is dropped, because it grows with the number of items.
    const part = this.#inItems ? text.trim() : text;
    this.#shell += part;
    this.#shellEnd = (this.#shellEnd + part).slice(-MAX_ITEMS_NAME);
    if (this.#shell.length > MAX_SHELL_BYTES) throw new ApiError('garbled', 'the response is not a list');
  }
}
