import { ByteRuns } from './byte-runs.ts';

const NEWLINE = 0x0a;

/** Splits a stream into lines while it arrives. */
export class LineScanner {
  readonly #line: ByteRuns;

  /** @param largestLine maximum number of bytes of a line; larger lines are dropped and counted */
  constructor(largestLine: number) {
    this.#line = new ByteRuns(largestLine);
  }

  /** Returns the number of dropped lines. */
  get tooLarge(): number {
    return this.#line.tooLarge;
  }

  /** Returns true if the last line is incomplete. */
  get isCut(): boolean {
    return !this.#line.isEmpty;
  }

  /** Returns the non-empty lines that end in these bytes. */
  feed(bytes: Uint8Array): readonly string[] {
    const lines: string[] = [];
    let from = 0;
    for (let end = bytes.indexOf(NEWLINE); end >= 0; end = bytes.indexOf(NEWLINE, from)) {
      const line = this.#line.end(bytes, from, end);
      if (line !== undefined && line.trim() !== '') lines.push(line);
      from = end + 1;
    }
    if (from < bytes.length) this.#line.keep(bytes, from, bytes.length);
    return lines;
  }
}
