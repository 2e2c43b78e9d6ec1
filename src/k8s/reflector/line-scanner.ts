import { ByteRuns } from './byte-runs.ts';

const NEWLINE = 0x0a;

/** Cuts a stream into its lines while it arrives. */
export class LineScanner {
  readonly #line: ByteRuns;

  /** @param largestLine bytes; a larger line is left out, and counted. */
  constructor(largestLine: number) {
    this.#line = new ByteRuns(largestLine);
  }

  /** Lines that were too large. */
  get tooLarge(): number {
    return this.#line.tooLarge;
  }

  /** Whether the last line has not ended. */
  get isCut(): boolean {
    return !this.#line.isEmpty;
  }

  /** The lines that end in these bytes; empty ones are left out. */
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
