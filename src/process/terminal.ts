import { parseTime } from '../base/system-clock.ts';

/** Receives text for people: standard output, or a list in a test. */
export interface Output {
  write(text: string): unknown;
  /** Number of written bytes not consumed by the reader; 0 if unknown. */
  readonly writableLength?: number | undefined;
  /** Resolves when the reader has consumed all written bytes, or the signal has fired. */
  readonly drained?: ((signal: AbortSignal) => Promise<void>) | undefined;
  /** True if the output is a terminal. Enables colours. */
  readonly isTTY?: boolean | undefined;
  /** Width of the terminal in characters. */
  readonly columns?: number | undefined;
}

/** Emphasis of a text. */
export type Tone = 'plain' | 'strong' | 'faint' | 'added' | 'changed' | 'removed';

/** A reader with this number of unread bytes is considered stopped. */
const BACKED_UP_BYTES: number = 1 << 20;

/** Returns true if the reader of an output is far behind. */
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

/** The environment variables which turn colours off: `NO_COLOR` (no-color.org) if not empty, and `TERM=dumb`. */
export interface ColourEnvironment {
  readonly NO_COLOR?: string | undefined;
  readonly TERM?: string | undefined;
}

/** Writes lines for people, with colours if the terminal supports them. */
export class Terminal {
  readonly #output: Output;
  readonly #colours: boolean;

  constructor(output: Output, environment: ColourEnvironment) {
    this.#output = output;
    this.#colours = output.isTTY === true && !environment.NO_COLOR && environment.TERM !== 'dumb';
  }

  /** Returns the text in a tone; unchanged without colours. */
  paint(tone: Tone, text: string): string {
    return !this.#colours || tone === 'plain' ? text : `\u001B[${CODES[tone]}m${text}\u001B[0m`;
  }

  line(text = ''): void {
    this.#output.write(`${text}\n`);
  }

  /** True if the reader is so far behind that callers should write nothing more (I11). */
  get isBackedUp(): boolean {
    return isBackedUp(this.#output);
  }
}

// Control characters (C0 and C1); invisible ones such as bidirectional overrides, zero-width spaces and fillers; blanks
// other than the space (Zs and the Braille blank); and separators of lines. An untrusted name must not control the
// terminal, look like another name, or end a line of the log.
const UNSAFE = /[\p{Cc}\p{Cf}\p{DI}\p{Zl}\p{Zp}\u00a0\u1680\u2000-\u200a\u202f\u205f\u2800\u3000]/gu;
const UNSAFE_TEXT = new RegExp(UNSAFE.source, 'u');

/** Returns untrusted text with all invisible characters, except spaces, as escapes of JSON. */
export function printable(text: string): string {
  return text.replace(UNSAFE, (character) => character.split('').map(escaped).join(''));
}

function escaped(codeUnit: string): string {
  return `\\u${codeUnit.charCodeAt(0).toString(16).padStart(4, '0')}`;
}

export function printableLines(text: string): string {
  return UNSAFE_TEXT.test(text) ? text.split('\n').map(printable).join('\n') : text;
}

/**
 * Writes lines, unchanged to a file or pipe. On a terminal, escapes the characters that could control it; in JSON, the
 * escapes mean the same characters.
 */
export function writeLines(output: Output, text: string): void {
  output.write(output.isTTY === true ? printableLines(text) : text);
}

/**
 * Maximum width of a padded cell. The longest name of a node in Kubernetes fits. Without a limit, one name of a remote
 * cluster, which may have 1.5 MB, makes every line as long.
 */
const MAX_COLUMN_WIDTH = 300;

/**
 * Returns rows as {@link printable} lines with aligned columns, separated by two spaces. The last column is not padded,
 * and cells wider than {@link MAX_COLUMN_WIDTH} do not widen their column.
 * `widths` has the minimum widths of the columns, and receives their widths. If the parts of a table are aligned with
 * one array, no part has narrower columns than an earlier part.
 */
export function alignColumns(rows: readonly (readonly string[])[], widths: number[] = []): readonly string[] {
  const cells = rows.map((row) => row.map(printable));
  for (const row of cells) {
    row.slice(0, -1).forEach((cell, column) => {
      widths[column] = Math.max(widths[column] ?? 0, Math.min(cell.length, MAX_COLUMN_WIDTH));
    });
  }
  return cells.map((row) =>
    row
      .map((cell, column) => (column === row.length - 1 ? cell : cell.padEnd(widths[column] ?? 0)))
      .join('  ')
      .trimEnd(),
  );
}

// As `isoTime` writes it. Kubernetes and Go write no fraction, or another number of digits.
const ISO_TIME = /\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z/g;

/**
 * Returns a text with its ISO 8601 times as {@link localTimeText}. Agents write ISO 8601 in sentences, because they do
 * not know the time zone of the reader.
 */
export function withLocalTimes(text: string): string {
  return text.replace(ISO_TIME, (iso) => {
    const at = parseTime(iso);
    return at === undefined ? iso : localTimeText(at);
  });
}

/** Returns a time of today as `14:03:05.123`, any other with its date, in the local time zone. */
export function localTimeText(time: string | number, now: Date = new Date()): string {
  const at = new Date(time);
  const digits = (value: number, length = 2): string => String(value).padStart(length, '0');
  const clockTime = [at.getHours(), at.getMinutes(), at.getSeconds()].map((part) => digits(part)).join(':');
  const timeOfDay = `${clockTime}.${digits(at.getMilliseconds(), 3)}`;
  if (at.toDateString() === now.toDateString()) return timeOfDay;
  return `${at.getFullYear()}-${digits(at.getMonth() + 1)}-${digits(at.getDate())} ${timeOfDay}`;
}
