import { readdir, stat } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { pipeline } from 'node:stream';
import { constants, createGunzip } from 'node:zlib';
import { messageOf } from '../base/failure.ts';
import { openRegularFile } from '../base/files/regular-file.ts';
import { unreadable } from '../process/input-error.ts';
import { MAX_LINE_BYTES, parseTapeLine, TAPE_FORMAT, TapeError, type TapeLine } from './tape-line.ts';
import { tapeFiles } from './tape-writer.ts';

/**
 * Maximum size of one file after decompression. A file has at most 64 MiB, plus a snapshot; its text is about ten times
 * larger.
 */
const MAX_TEXT_BYTES = 16 * 2 ** 30;

const LINE_FEED = 0x0a;

export interface PlacedLine {
  readonly line: TapeLine;
  /** Number of the line in its file, from 1. */
  readonly number: number;
}

/** Receives the position of a reader after each step. */
export type OnProgress = (text: string) => void;

export interface TapePart {
  readonly path: string;
  /** Its first line. */
  readonly head: TapeLine & { readonly ev: 'tape' };
}

/**
 * Yields the lines of a file in lists, as they are decompressed. An incomplete last line is omitted, because the writer
 * may have died. Throws {@link TapeError} with the line if the file is damaged otherwise, and `InputError` if it cannot
 * be read. Memory: a few MiB, whatever the file contains.
 */
async function* readTapePart(path: string): AsyncGenerator<readonly PlacedLine[], void, void> {
  let number = 0;
  const at = (): string => `${path}:${number}`;
  let rest: Buffer[] = [];
  let restBytes = 0;
  let total = 0;
  for await (const chunk of decompressed(path, () => number)) {
    total += chunk.length;
    if (total > MAX_TEXT_BYTES) throw new TapeError(at(), 'the file is too large after decompression');
    const lines: PlacedLine[] = [];
    let from = 0;
    for (let end = chunk.indexOf(LINE_FEED); end >= 0; end = chunk.indexOf(LINE_FEED, from)) {
      const lineEnd = chunk.subarray(from, end);
      const bytes = restBytes === 0 ? lineEnd : Buffer.concat([...rest, lineEnd]);
      rest = [];
      restBytes = 0;
      from = end + 1;
      number++;
      lines.push({ line: parseTapeLine(bytes.toString('utf8'), at), number });
    }
    if (from < chunk.length) {
      rest.push(chunk.subarray(from));
      restBytes += chunk.length - from;
    }
    if (restBytes > MAX_LINE_BYTES)
      throw new TapeError(`${path}:${number + 1}`, `the line has more than ${MAX_LINE_BYTES >> 20} MiB`);
    if (lines.length > 0) yield lines;
  }
}

/**
 * Yields the text of a file. For a truncated file, yields the text up to its end without an error. `lineCount` returns
 * the number of lines read so far, for errors.
 */
async function* decompressed(path: string, lineCount: () => number): AsyncGenerator<Buffer, void, void> {
  const handle = await openRegularFile(path).catch((cause: unknown) => {
    throw unreadable('tape', path, cause);
  });
  const stream = createGunzip({ chunkSize: 256 << 10, finishFlush: constants.Z_SYNC_FLUSH });
  pipeline(handle.createReadStream({ highWaterMark: 256 << 10 }), stream, () => {});
  try {
    for await (const chunk of stream) yield chunk;
  } catch (cause) {
    const [at, problem] =
      lineCount() === 0
        ? [path, 'not a file of a tape, or damaged at its beginning']
        : [`${path}:${lineCount()}`, 'damaged after this line'];
    throw new TapeError(at, `${problem}: ${messageOf(cause)}`, { cause });
  } finally {
    stream.destroy();
  }
}

/** Yields the lines of `part`, one of `parts`, in lists. Reports the progress in texts that begin with `verb`. */
export async function* readWithProgress(
  verb: string,
  parts: readonly TapePart[],
  part: TapePart,
  onProgress: OnProgress = () => {},
): AsyncGenerator<readonly PlacedLine[], void, void> {
  const place = `${verb} ${basename(part.path)}, file ${parts.indexOf(part) + 1} of ${parts.length}`;
  for await (const lines of readTapePart(part.path)) {
    onProgress(`${place}, line ${lines.at(-1)?.number ?? 0}`);
    yield lines;
  }
}

/**
 * Returns the files of a folder with a tape, oldest first, or the single file at a path. Throws `InputError` if there
 * is none, or if one is not a tape.
 */
export async function openTape(path: string): Promise<readonly TapePart[]> {
  const paths = await tapePaths(path).catch((cause: unknown) => {
    throw unreadable('tape', path, cause);
  });
  const parts: TapePart[] = [];
  for (const file of paths) {
    const head = await firstLine(file);
    // The newest file may be empty during its first second.
    if (head !== undefined) parts.push({ path: file, head });
  }
  if (parts.length === 0) throw new TapeError(path, 'contains no tape: name the folder of --tape');
  return parts;
}

async function tapePaths(path: string): Promise<readonly string[]> {
  if (!(await stat(path)).isDirectory()) return [path];
  return tapeFiles(await readdir(path)).map(([, name]) => join(path, name));
}

/**
 * Returns the number of lines that are missing between line `seq` and the first line of the next file of the same life.
 * Throws {@link TapeError} if the file is not later.
 */
export function linesLost({ path, head }: TapePart, seq: number): number {
  if (head.seq > seq) return head.seq - seq - 1;
  throw new TapeError(
    `${path}:1`,
    `seq: ${head.seq} is not after ${seq}: remove the file, or rename it in the order of the tape`,
  );
}

async function firstLine(path: string): Promise<TapePart['head'] | undefined> {
  for await (const [first] of readTapePart(path)) {
    if (first === undefined) continue;
    const { line } = first;
    if (line.ev !== 'tape')
      throw new TapeError(`${path}:1`, `ev: a tape begins with "tape", not "${line.ev}"`);
    if (line.format !== TAPE_FORMAT)
      throw new TapeError(
        `${path}:1`,
        `format: ${line.format} is not ${TAPE_FORMAT}: use a version of dpcache that writes format ${line.format}`,
      );
    return line;
  }
  return undefined;
}
