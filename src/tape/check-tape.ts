import type { TapeCut } from './replay-tape.ts';
import { TapeError } from './tape-line.ts';
import { linesLost, type OnProgress, openTape, readWithProgress } from './tape-reader.ts';
import { readTapeSettings } from './tape-settings.ts';

/** A summary of the contents of a tape. Times are wall times in milliseconds since the epoch. */
export interface TapeSummary {
  readonly from: number;
  readonly to: number;
  readonly events: number;
  readonly files: number;
  readonly cuts: readonly TapeCut[];
  readonly clusters: readonly string[];
  /** True if names and addresses were replaced (`dpcache tape scrub`). */
  readonly scrubbed: boolean;
}

/** Reads a whole tape and checks every line. Throws {@link TapeError} with the first invalid line. Replays nothing. */
export async function checkTape(
  path: string,
  signal: AbortSignal,
  onProgress?: OnProgress,
): Promise<TapeSummary> {
  const parts = await openTape(path);
  const cuts: TapeCut[] = [];
  const clusters = new Set<string>();
  let [to, events, seq] = [0, 0, 0];
  for (const [index, part] of parts.entries()) {
    const { path: file, head } = part;
    readTapeSettings(head.settings, `${file}:1`);
    const previous = parts[index - 1]?.head;
    const isSameLife = head.life === previous?.life;
    const lost = isSameLife ? linesLost(part, seq) : 0;
    if (previous !== undefined && (!isSameLife || lost > 0)) cuts.push({ at: `${file}:1`, lost });
    seq = head.seq - 1;
    let { wall } = head;
    for await (const lines of readWithProgress('checking', parts, part, onProgress)) {
      signal.throwIfAborted();
      for (const { line, number } of lines) {
        if (line.seq !== seq + 1)
          throw new TapeError(`${file}:${number}`, `seq: must be ${seq + 1}, but is ${line.seq}`);
        seq = line.seq;
        events++;
        if (line.ev === 'clock') wall = line.wall;
        if ('store' in line) clusters.add(line.store);
        to = wall + line.ms;
      }
    }
  }
  const [first] = parts;
  const scrubbed = parts.every(({ head }) => head.scrubbed === true);
  return {
    from: first === undefined ? 0 : first.head.wall + first.head.ms,
    to,
    events,
    files: parts.length,
    cuts,
    clusters: [...clusters].sort(),
    scrubbed,
  };
}
