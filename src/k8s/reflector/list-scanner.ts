import { Buffer } from 'node:buffer';
import { ApiError } from '../client/api-error.ts';
import { ByteRuns } from './byte-runs.ts';
import { type FieldTree, LEFT_OUT } from './field-tree.ts';

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const OPEN_OBJECT = 0x7b;

/** Where the items of a list are: in the list that is a member of the outermost object. Lines are in nothing. */
const IN_LIST = 2;
const IN_NOTHING = 0;
const ITEMS = /[{,]\s*"items"\s*:\s*$/;

/** What is left of a list without its items: a few hundred bytes. */
const LONGEST_SHELL = 64 * 1024;

const NOT_HERE = -1;

/**
 * Cuts a list into its items while it arrives, so that it is never in memory as a whole:
 *
 *     {"kind":"PodList","metadata":{"resourceVersion":"7"},"items":[{ item },{ item }]}
 *     └───────────────────────── shell ──────────────────────────┘ └─ item ─┘        └┘ shell
 *
 * Or a stream of lines, each an object. The bytes are only looked at for quotes, commas and brackets. Cost: one step a byte.
 *
 * Of an item, fields that are not asked for are left out, with the comma that is before or behind them, before anybody
 * decodes them:
 *
 *     {"metadata":{"name":"a","managedFields":[ … ],"uid":"7"},"status":{ … }}
 *                            └─── left out ──────┘
 *
 * A field whose name is not in one piece of the bytes stays.
 */
export class ListScanner {
  readonly #item: ByteRuns;
  readonly #fields: FieldTree | undefined;
  readonly #itemsDepth: number;
  #shell = '';
  #depth = 0;
  #inString = false;
  /** Bytes to come that are escaped: one, or none. */
  #skip = 0;
  #inItems: boolean;
  /** In the present bytes, where that begins which has not been kept or left out. */
  #from = 0;

  /** Depth of the object or list of which all is kept; 0: the present one is in none. */
  #whole = 0;
  /** Depth of the object of which a field is being left out; 0: none is. */
  #leaving = 0;
  /** By depth, the objects and lists around of which not all is kept. */
  readonly #around: { readonly tree: FieldTree; readonly isObject: boolean }[] = [];
  /** The next string is the name of a field. */
  #isName = false;
  /** In the present bytes, where that name begins, and the comma or bracket before it is. */
  #name = NOT_HERE;
  #separator = NOT_HERE;
  /** Nothing of the object has been kept yet. */
  #isFirst = false;
  /** What is kept of the field that comes; `undefined`: all. */
  #next: FieldTree | undefined;

  /**
   * @param largestItem bytes; a larger item is left out, and counted. What is left out of it does not count.
   * @param fields what is kept of an item; default: all
   */
  constructor(largestItem: number, fields?: FieldTree, shape: 'list' | 'lines' = 'list') {
    this.#item = new ByteRuns(largestItem);
    this.#fields = fields;
    this.#inItems = shape === 'lines';
    this.#itemsDepth = this.#inItems ? IN_NOTHING : IN_LIST;
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
    let inString = this.#inString;
    let i = this.#skip;
    this.#from = 0;
    this.#name = NOT_HERE;
    this.#separator = NOT_HERE;
    for (; i < length; i++) {
      let byte = bytes[i] ?? 0;
      if (inString) {
        while (byte !== QUOTE && byte !== BACKSLASH && ++i < length) byte = bytes[i] ?? 0;
        if (i === length) break;
        if (byte === BACKSLASH) {
          this.#name = NOT_HERE; // a name that is written in another way is not compared
          i++; // the next one means nothing
        } else {
          inString = false;
          if (this.#isName) this.#endName(bytes, i);
        }
      } else if (byte === QUOTE) {
        inString = true;
        this.#name = i + 1;
      } else if (byte === COMMA) {
        if (this.#whole === 0) this.#comma(bytes, i);
      } else if ((byte | 0x20) === 0x7b) {
        // [ and { are 5B and 7B, ] and } are 5D and 7D.
        this.#depth++;
        if (this.#whole === 0 && this.#leaving === 0) this.#open(byte, bytes, i);
      } else if ((byte | 0x20) === 0x7d) {
        const text = this.#close(bytes, i);
        if (text !== undefined) items.push(text);
      }
    }
    this.#inString = inString;
    this.#skip = i - length;
    if (this.#inItems && this.#depth > this.#itemsDepth) {
      if (this.#leaving === 0) this.#item.keep(bytes, this.#from, length);
    } else this.#keepShell(bytes, length);
    return items;
  }

  #open(bracket: number, bytes: Uint8Array, at: number): void {
    const depth = this.#depth;
    const isObject = bracket === OPEN_OBJECT;
    if (!this.#inItems) {
      if (depth !== this.#itemsDepth || isObject) return;
      this.#keepShell(bytes, at);
      this.#inItems = ITEMS.test(this.#shell);
      return;
    }
    if (depth === this.#itemsDepth + 1) this.#keepShell(bytes, at);
    if (depth === 1) this.#shell = ''; // what is between lines
    const tree = this.#treeOf(depth, isObject);
    if (tree === undefined) {
      this.#whole = depth;
      return;
    }
    this.#around[depth] = { tree, isObject };
    if (isObject) this.#expectName(at, true);
  }

  /** What is kept of the object or list that begins. */
  #treeOf(depth: number, isObject: boolean): FieldTree | undefined {
    if (depth === this.#itemsDepth + 1) return this.#fields;
    const parent = this.#around[depth - 1];
    if (parent?.isObject === true) return this.#next;
    return isObject ? parent?.tree : undefined;
  }

  #expectName(separator: number, isFirst: boolean): void {
    this.#isName = true;
    this.#separator = separator;
    this.#isFirst = isFirst;
  }

  /** Leaves the field out if it is not asked for. One whose name begins in earlier bytes is kept as a whole. */
  #endName(bytes: Uint8Array, at: number): void {
    this.#isName = false;
    this.#next = undefined;
    if (this.#name === NOT_HERE) return;
    const found = this.#around[this.#depth]?.tree.find(bytes, this.#name, at);
    if (found !== LEFT_OUT) this.#next = found;
    else if (this.#separator !== NOT_HERE) {
      this.#leaving = this.#depth;
      this.#item.keep(bytes, this.#from, this.#isFirst ? this.#separator + 1 : this.#separator);
    }
  }

  #comma(bytes: Uint8Array, at: number): void {
    const depth = this.#depth;
    if (this.#leaving > 0) {
      if (this.#leaving !== depth) return;
      this.#leaving = 0;
      this.#from = this.#isFirst ? at + 1 : at;
      this.#expectName(at, this.#isFirst);
    } else if (depth === this.#itemsDepth) {
      if (!this.#inItems) return;
      this.#keepShell(bytes, at);
      this.#from = at + 1;
    } else if (this.#inItems && this.#around[depth]?.isObject === true) this.#expectName(at, false);
  }

  /** The text of the item that ends with this bracket. */
  #close(bytes: Uint8Array, at: number): string | undefined {
    const depth = this.#depth--;
    if (this.#whole === depth) this.#whole = 0;
    if (this.#leaving === depth) {
      this.#leaving = 0;
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

  /** What comes before `to` and has not been kept is a part of the shell. */
  #keepShell(bytes: Uint8Array, to: number): void {
    const from = this.#from;
    this.#from = to;
    if (from >= to) return;
    // Names and versions: a character that is cut in two is in none that matters.
    const text = Buffer.from(bytes.buffer, bytes.byteOffset + from, to - from).toString('utf8');
    // White space between items is as much as there are items.
    this.#shell += this.#inItems ? text.trim() : text;
    if (this.#shell.length > LONGEST_SHELL) throw new ApiError('garbled', 'the answer is no list');
  }
}
