import type { Rejection } from '../base/rejection.ts';
import { isoTime } from '../base/system-clock.ts';
import { InputError } from '../process/input-error.ts';
import { type DigestDifference, TapeReplay } from './replay.ts';
import { TapeError, type TapeLine } from './tape-line.ts';
import {
  linesLost,
  type OnProgress,
  openTape,
  type PlacedLine,
  readWithProgress,
  type TapePart,
} from './tape-reader.ts';
import { readTapeSettings } from './tape-settings.ts';

export interface ReplayOptions {
  /** Wall time of the last line in milliseconds since the epoch. Default: the end of the tape. */
  readonly at?: number | undefined;
  /**
   * If set, tapes of other versions of the program are refused, because the state may differ. Default: any version is
   * accepted.
   */
  readonly version?: string | undefined;
  readonly onReject?: ((rejection: Rejection) => void) | undefined;
  /** Called with each new replay before its first line. A new replay begins after each cut. */
  readonly onReplay?: ((replay: TapeReplay) => void) | undefined;
  /** Called with each line before it is applied. */
  readonly onLine?: ((line: TapeLine) => void) | undefined;
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: OnProgress | undefined;
}

/** A missing part of a tape. */
export interface TapeCut {
  /** Position after the cut: file and line. */
  readonly at: string;
  /** Number of missing lines. */
  readonly lost: number;
}

export interface ReplayReport {
  readonly replay: TapeReplay;
  /** Wall time of the last line. */
  readonly to: number;
  readonly events: number;
  /** Number of equal digests. */
  readonly digests: number;
  readonly cuts: readonly TapeCut[];
  /** False if the replay ended within a snapshot. A part of the state is then missing. */
  readonly isComplete: boolean;
  /** True if names and addresses were replaced. The tape has no digests then. */
  readonly isScrubbed: boolean;
  /**
   * The version of the digests in the tape if they were not compared, because this program computes another version;
   * 0 if the tape names no version. Undefined if the digests were compared.
   */
  readonly skippedDigestVersion: number | undefined;
  /** The first digest that differs, and its position, where the replay ended. */
  readonly difference: (DigestDifference & { readonly at: string }) | undefined;
}

/** Lines applied in one turn of the event loop. */
const LINES_PER_TURN = 512;

/**
 * Replays the last life of a tape that began before `at`. `path` is a folder, or one of its files. After a cut, the
 * replay continues at the next snapshot. Throws {@link TapeError} with the line if a line is invalid, if `at` is before
 * the first line, and if another version than `options.version` wrote the tape.
 */
export async function replayTape(path: string, options: ReplayOptions = {}): Promise<ReplayReport> {
  const parts = await openTape(path);
  return new TapeReplayer(parts, options).run();
}

class TapeReplayer {
  readonly #parts: readonly TapePart[];
  readonly #options: ReplayOptions;
  readonly #cuts: TapeCut[] = [];
  #replay: TapeReplay | undefined;
  /** Number of the last applied line. */
  #seq = 0;
  /** Wall time of a line minus its `ms`, the monotonic time. */
  #wall = 0;
  /** Wall time of the last line. */
  #to = 0;
  #events = 0;
  #digests = 0;
  #skippedDigestVersion: number | undefined;
  #difference: ReplayReport['difference'];

  constructor(parts: readonly TapePart[], options: ReplayOptions) {
    this.#parts = parts;
    this.#options = options;
  }

  async run(): Promise<ReplayReport> {
    const { at = Number.POSITIVE_INFINITY, signal } = this.#options;
    const first = this.#parts.findLastIndex((_, index) => index === 0 || isStart(this.#parts, index, at));
    const firstPart = this.#parts[first];
    if (firstPart !== undefined && startOf(firstPart) > at)
      throw new TapeError(firstPart.path, `the tape begins at ${isoTime(startOf(firstPart))}`);
    for (const part of this.#parts.slice(first)) {
      if (startOf(part) > at) break;
      const continues = await this.#applyPart(part, at);
      if (!continues || signal?.aborted === true) break;
    }
    const replay = this.#replay;
    if (replay === undefined) throw new TapeError(this.#parts[0]?.path ?? '', 'contains no line');
    return {
      replay,
      to: this.#to,
      events: this.#events,
      digests: this.#digests,
      cuts: this.#cuts,
      isComplete: replay.isComplete,
      isScrubbed: firstPart?.head.scrubbed === true,
      skippedDigestVersion: this.#skippedDigestVersion,
      difference: this.#difference,
    };
  }

  /** Applies the lines of a part. Returns false at the end of the replay. */
  async #applyPart(part: TapePart, at: number): Promise<boolean> {
    const { signal, onProgress } = this.#options;
    await this.#beginPart(part);
    for await (const lines of readWithProgress('replaying', this.#parts, part, onProgress)) {
      for (const [index, placed] of lines.entries()) {
        if (!this.#takeLine(part, placed, at)) return false;
        try {
          // `apply` returns a promise for few lines. Only these are awaited, because each `await` costs time.
          const result = this.#replay?.apply(placed.line);
          const difference = result instanceof Promise ? await result : result;
          if (!this.#countDigest(part, placed, difference ?? undefined)) return false;
        } catch (error) {
          if (!(error instanceof InputError)) throw error;
          throw new TapeError(`${part.path}:${placed.number}`, error.message, { cause: error });
        }
        if (index % LINES_PER_TURN === 0) await new Promise((resolve) => setImmediate(resolve));
      }
      if (signal?.aborted === true) return false;
    }
    return true;
  }

  /** Counts a line that is to be applied, and checks its number. Returns false if it is after the end of the replay. */
  #takeLine(part: TapePart, { line, number }: PlacedLine, at: number): boolean {
    if (number > 1 && line.seq !== this.#seq + 1)
      throw new TapeError(`${part.path}:${number}`, `seq: must be ${this.#seq + 1}, but is ${line.seq}`);
    if (line.ev === 'clock') this.#wall = line.wall;
    if (this.#wall + line.ms > at) return false;
    this.#seq = line.seq;
    this.#to = this.#wall + line.ms;
    this.#events++;
    this.#options.onLine?.(line);
    return true;
  }

  /** Counts the digest of an applied line, if it has one. Returns false if the digest differs. */
  #countDigest(
    part: TapePart,
    { line, number }: PlacedLine,
    difference: DigestDifference | undefined,
  ): boolean {
    if (difference !== undefined) {
      this.#difference = { ...difference, at: `${part.path}:${number}` };
      return false;
    }
    if (line.ev !== 'digest' || this.#replay?.isComplete !== true) return true;
    const { skippedDigestVersion } = this.#replay;
    if (skippedDigestVersion === undefined) this.#digests++;
    else this.#skippedDigestVersion = skippedDigestVersion;
    return true;
  }

  /** Continues the replay with a part. After a cut, begins a new replay. */
  async #beginPart(part: TapePart): Promise<void> {
    const { head } = part;
    const { version = head.version, onReject, onReplay } = this.#options;
    if (head.version !== version)
      throw new TapeError(
        `${part.path}:1`,
        `version: ${head.version} has written the tape, this is ${version}: use that version, or --ignore-version`,
      );
    this.#wall = head.wall;
    if (this.#replay !== undefined) {
      const lost = linesLost(part, this.#seq);
      if (lost === 0) return;
      this.#cuts.push({ at: `${part.path}:1`, lost });
      await this.#replay.close();
    }
    this.#replay = new TapeReplay(readTapeSettings(head.settings, `${part.path}:1`), onReject);
    this.#replay.isComplete = head.seq <= 1;
    onReplay?.(this.#replay);
  }
}

/**
 * Returns true if a replay to a time begins with this part, because it is the first part of the life that contains the
 * time.
 */
function isStart(parts: readonly TapePart[], index: number, at: number): boolean {
  const [part, previous] = [parts[index], parts[index - 1]];
  if (part === undefined || startOf(part) > at) return false;
  return previous?.head.life !== part.head.life;
}

/** Returns the wall time of the first line. */
function startOf({ head }: TapePart): number {
  return head.wall + head.ms;
}
