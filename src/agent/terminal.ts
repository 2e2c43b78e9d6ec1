/** Where the agent writes for people: standard output, or a list in a test. */
export interface Output {
  write(text: string): unknown;
  /** Bytes that were written and that the reader has not taken; 0 where it is not known. */
  readonly writableLength?: number | undefined;
  /** Resolves once the reader has taken what was written, or the signal has fired. */
  readonly drained?: ((signal: AbortSignal) => Promise<void>) | undefined;
  /** Whether a person looks at it: decides on colours. */
  readonly isTTY?: boolean | undefined;
  /** How many characters fit into a line of a terminal. */
  readonly columns?: number | undefined;
}

/** How a piece of text stands out. */
export type Tone = 'plain' | 'strong' | 'faint' | 'added' | 'changed' | 'removed';

/** A reader that has not taken so much has stopped reading, or nearly. */
const BACKED_UP_BYTES: number = 1 << 20;

/** Whether the reader of an output is far behind. */
export function isBackedUp({ writableLength = 0 }: Output): boolean {
  return writableLength >= BACKED_UP_BYTES;
}

// SGR codes (ECMA-48): bold, faint, green, yellow, red.
const CODES: Readonly<Record<Exclude<Tone, 'plain'>, number>> = {
  strong: 1,
  faint: 2,
  added: 32,
  changed: 33,
  removed: 31,
};

/** The variables that decide about colours: `NO_COLOR` (no-color.org), not empty, and `TERM=dumb` turn them off. */
export interface ColourEnvironment {
  readonly NO_COLOR?: string | undefined;
  readonly TERM?: string | undefined;
}

/** Lines for people, with colours on terminals that show them. */
export class Terminal {
  readonly #output: Output;
  readonly #colours: boolean;

  constructor(output: Output, environment: ColourEnvironment) {
    this.#output = output;
    this.#colours = output.isTTY === true && !environment.NO_COLOR && environment.TERM !== 'dumb';
  }

  /** The text in its tone; as it is where there are no colours. */
  paint(tone: Tone, text: string): string {
    return !this.#colours || tone === 'plain' ? text : `\u001B[${CODES[tone]}m${text}\u001B[0m`;
  }

  line(text = ''): void {
    this.#output.write(`${text}\n`);
  }

  /** Whether the reader is so far behind that nothing more ought to be written (I11). */
  get isBackedUp(): boolean {
    return isBackedUp(this.#output);
  }
}

// Control characters, C1 and the bidirectional overrides: a stranger's name must not steer the terminal.
const UNSAFE = /[\p{Cc}\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu;

/** Text from outside, with everything that could steer a terminal shown as an escape. */
export function printable(text: string): string {
  return text.replace(UNSAFE, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

/**
 * Writes lines for programs as they are; to a terminal nothing of them that could steer it. What that shows as escapes means
 * the same in JSON.
 */
export function writeLines(output: Output, text: string): void {
  output.write(output.isTTY === true ? text.split('\n').map(printable).join('\n') : text);
}

/** Rows as aligned columns, two spaces between; the last column is not padded. */
export function alignColumns(rows: readonly (readonly string[])[]): readonly string[] {
  const widths: number[] = [];
  for (const row of rows) {
    row.slice(0, -1).forEach((cell, column) => {
      widths[column] = Math.max(widths[column] ?? 0, cell.length);
    });
  }
  return rows.map((row) =>
    row
      .map((cell, column) => (column === row.length - 1 ? cell : cell.padEnd(widths[column] ?? 0)))
      .join('  ')
      .trimEnd(),
  );
}
