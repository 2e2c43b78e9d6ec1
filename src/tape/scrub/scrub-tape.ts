import { randomBytes } from 'node:crypto';
import type { StateFolder } from '../../base/files/state-folder.ts';
import { systemClock } from '../../base/system-clock.ts';
import { InputError } from '../../process/input-error.ts';
import type { TapeLine } from '../tape-line.ts';
import { type OnProgress, openTape, readWithProgress } from '../tape-reader.ts';
import { TapeWriter } from '../tape-writer.ts';
import { LineScrub } from './scrub-lines.ts';

/** The result of {@link scrubTape}. */
export interface ScrubReport {
  readonly files: number;
  readonly events: number;
  /** The replacements, which must not be published. */
  readonly scrub: LineScrub;
}

/** Returns a line of a tape as text. A put has no `ev`. */
function textOf({ seq, ms, ev, ...content }: TapeLine): string {
  return JSON.stringify({ seq, ms, ...(ev !== 'put' && { ev }), ...content });
}

/**
 * Writes a copy of a tape with other names and addresses to a folder, which must be empty. Each line keeps its number;
 * digests and notes become empty notes. Reads the tape twice; lines that are added between the two reads are not
 * copied. Throws `TapeError` with the first invalid line, and `InputError` if a file cannot be written.
 */
export async function scrubTape(
  path: string,
  folder: StateFolder,
  signal: AbortSignal,
  onProgress?: OnProgress,
): Promise<ScrubReport> {
  const parts = await openTape(path);
  const [present] = await folder.names();
  if (present !== undefined) throw new InputError(`--out: the folder is not empty: ${present}`);
  // The secret is used once and not stored, because it reveals the addresses.
  const scrub = new LineScrub(randomBytes(32));
  const lengths: number[] = [];
  for (const part of parts) {
    let length = 0;
    for await (const lines of readWithProgress('reading', parts, part, onProgress)) {
      signal.throwIfAborted();
      for (const { line } of lines) scrub.learn(line);
      length += lines.length;
    }
    lengths.push(length);
  }
  scrub.finish();
  const writer = new TapeWriter({ folder, clock: systemClock, maxBytes: Number.POSITIVE_INFINITY });
  const checkWritten = (): void => {
    if (writer.failure !== undefined) throw new InputError(`--out: ${writer.failure.message}`);
  };
  try {
    for (const [index, part] of parts.entries()) {
      writer.begin();
      const length = lengths[index] ?? 0;
      for await (const lines of readWithProgress('copying', parts, part, onProgress)) {
        signal.throwIfAborted();
        for (const { line, number } of lines)
          if (number <= length) writer.add(textOf(scrub.replaceLine(line)));
        await writer.flush();
        checkWritten();
      }
    }
  } finally {
    await writer.close();
  }
  checkWritten();
  const events = lengths.reduce((sum, length) => sum + length, 0);
  return { files: parts.length, events, scrub };
}
