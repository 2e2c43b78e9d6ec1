import type { Buffer } from 'node:buffer';
import { ByteRuns } from './byte-runs.ts';
import type { FieldTree } from './field-tree.ts';
import { ListScanner } from './list-scanner.ts';

const NEWLINE = 0x0a;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;

/** Larger lines are not scanned but returned as texts: a scan is one step, and the decoder splits a text into steps. */
const MAX_SCANNED_BYTES = 256 * 1024;

/** Splits a stream into lines while it arrives, and returns each line as a text or, if it was scanned, as a value. */
export class LineScanner<T = never> {
  readonly #line: ByteRuns;
  readonly #largestLine: number;
  readonly #fields: FieldTree | undefined;
  readonly #scan: ((line: Buffer) => T | undefined) | undefined;
  /** Removes the unrequested fields of a line. Undefined before the first line, and after an invalid one. */
  #filter: ListScanner | undefined;

  /**
   * @param largestLine maximum number of bytes of a line; larger lines are dropped and counted
   * @param fields the fields of an object to keep; others may remain. Default: all
   * @param scan returns the value of a line; undefined if its text must be parsed. Default: all are parsed
   */
  constructor(largestLine: number, fields?: FieldTree, scan?: (line: Buffer) => T | undefined) {
    this.#line = new ByteRuns(largestLine);
    this.#largestLine = largestLine;
    this.#fields = fields;
    this.#scan = scan;
  }

  /** Returns the number of dropped lines. */
  get tooLarge(): number {
    return this.#line.tooLarge;
  }

  /** Returns true if the last line is incomplete. */
  get isCut(): boolean {
    return !this.#line.isEmpty;
  }

  /** Returns the non-empty lines that end in these bytes, as texts if they are not scanned. */
  feed(bytes: Uint8Array): readonly (string | T)[] {
    const lines: (string | T)[] = [];
    let from = 0;
    for (let end = bytes.indexOf(NEWLINE); end >= 0; end = bytes.indexOf(NEWLINE, from)) {
      const line = this.#line.join(bytes, from, end);
      if (line !== undefined) {
        const isSmall = line.length <= MAX_SCANNED_BYTES;
        const value = isSmall ? (this.#scan?.(line) ?? this.#filtered(line)) : undefined;
        const found = value ?? line.toString('utf8');
        if (typeof found !== 'string' || found.trim() !== '') lines.push(found);
      }
      from = end + 1;
    }
    if (from < bytes.length) this.#line.keep(bytes, from, bytes.length);
    return lines;
  }

  /** Returns the text of a line without its unrequested fields; undefined if the line is not one object. */
  #filtered(line: Buffer): string | undefined {
    if (this.#fields === undefined || line[0] !== OPEN_OBJECT || line.at(-1) !== CLOSE_OBJECT)
      return undefined;
    this.#filter ??= new ListScanner(this.#largestLine, this.#fields, 'lines');
    const texts = this.#filter.feed(line);
    if (texts.length === 1 && !this.#filter.isCut) return texts[0];
    this.#filter = undefined;
    return undefined;
  }
}
