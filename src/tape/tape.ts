import type { Clock, Timer } from '../base/clock.ts';
import { type Failure, failureOf } from '../base/failure.ts';
import type { StateFolder } from '../base/files/state-folder.ts';
import { CallbackGuard } from '../base/guard.ts';
import { isoTime } from '../base/system-clock.ts';
import type { TurnGate } from '../base/turn-gate.ts';
import { ClaimDigest } from '../compare/claim-digest.ts';
import { DIGEST_VERSION } from '../compare/digest-sums.ts';
import type { IPCache } from '../ipcache/ipcache.ts';
import { KubernetesTape } from './kubernetes-tape.ts';
import { contentOf, MeshTape } from './mesh-tape.ts';
import { TAPE_FORMAT, type TapeEntry } from './tape-line.ts';
import { TapeLines } from './tape-lines.ts';
import type { TapeSettings } from './tape-settings.ts';
import { TapeWriter } from './tape-writer.ts';

/** Interval of the flushes. A crash loses the lines after the last one. */
const FLUSH_MS = 1_000;
/** Number of flushes between two digests: 5 s. */
const FLUSHES_PER_DIGEST = 5;
/** Default of `partMs`. */
const PART_MS = 10 * 60_000;
/** Size, without the snapshot, after which a new file begins. */
const PART_BYTES = 64 << 20;
/** Time after a failure of the disk or of a snapshot until a new file is tried. */
const RETRY_MS = 10_000;
/** Larger steps of the wall clock are recorded. */
const CLOCK_STEP_MS = 1_000;

export interface TapeOptions {
  readonly folder: StateFolder;
  /** Maximum size of all files. */
  readonly maxBytes: number;
  readonly settings: TapeSettings;
  readonly version: string;
  readonly ipcache: IPCache;
  /** See `ClaimDigestOptions`. */
  readonly labelsOf?: ((identity: number) => string) | undefined;
  readonly clock: Clock;
  readonly gate: TurnGate;
  /** Time after which a new file begins with a snapshot, so that earlier files may be removed. Default 10 min. */
  readonly partMs?: number | undefined;
  /**
   * Called with the first failure of the disk, of a snapshot or of a digest, and with undefined when all of them
   * succeed again.
   */
  readonly onFailure: (failure: Failure | undefined) => void;
}

export interface TapeStatus {
  readonly bytes: number;
  /** Number of lines since the start, lost ones included. */
  readonly lines: number;
  readonly lost: number;
  readonly failure: Failure | undefined;
}

/** Work of a tape that takes several turns of the event loop. */
type TapeWork = 'digest' | 'snapshot';

/**
 * Records the input of an agent in files. Lines are added synchronously, in the order in which the engines receive the
 * input. A failure of the disk cuts the tape. No failure reaches the caller.
 */
export class Tape {
  readonly #options: TapeOptions;
  readonly #writer: TapeWriter;
  readonly #lines: TapeLines;
  readonly #digest: ClaimDigest;
  /** Receives the input from kvstores. */
  readonly mesh: MeshTape;
  readonly kubernetes: KubernetesTape;
  readonly #begunAt: number;
  readonly #life: string;
  /** The present wall time minus the time since the start of the tape. Changes only if the wall clock is set. */
  #wall: number;
  /** When the current file began, by the clock. */
  #partAt = 0;
  /** When a new file may be tried after a failure of the disk or of a snapshot. */
  #retryAt = 0;
  #flushes = 0;
  readonly #running = new Set<TapeWork>();
  /** The failure of the last run of each work, if it failed. */
  readonly #failures = new Map<TapeWork, Failure>();
  readonly #guard = new CallbackGuard();
  readonly #stopped = new AbortController();
  #timer: Timer | undefined;
  #isFailureReported = false;

  constructor(options: TapeOptions) {
    const { folder, maxBytes, clock, ipcache, labelsOf, settings } = options;
    this.#options = options;
    this.#writer = new TapeWriter({ folder, maxBytes, clock });
    this.#digest = new ClaimDigest({ ipcache, labelsOf });
    this.#begunAt = clock.now();
    this.#lines = new TapeLines(this.#writer, () => this.#elapsedMs);
    this.mesh = new MeshTape(this.#lines, ipcache, settings.clusterName);
    this.kubernetes = new KubernetesTape(this.#lines);
    this.#wall = clock.wallTime();
    this.#life = isoTime(this.#wall);
  }

  /** Begins the tape. Call it before the engines have any state. */
  start(): void {
    this.#beginPart();
    this.#writer.markReplayable();
    this.#scheduleFlush();
  }

  /** Notes an event of the process, such as a signal. */
  note(text: string): void {
    this.#add({ ev: 'note', text });
  }

  /** Notes the end of the initial sync. */
  markSynced(): void {
    this.#add({ ev: 'complete' });
  }

  status(): TapeStatus {
    const { bytes } = this.#writer;
    return { bytes, lines: this.#lines.count, lost: this.#lines.lost, failure: this.#failure };
  }

  get #failure(): Failure | undefined {
    return this.#writer.failure ?? this.#failures.get('snapshot') ?? this.#failures.get('digest');
  }

  /** Writes the last lines and closes the files. */
  async stop(): Promise<void> {
    this.#timer?.cancel();
    this.#stopped.abort();
    try {
      // In one turn, so that the digest does not contain withdrawals that the tape lacks.
      for (const _ of this.#addDigest());
    } catch (error) {
      this.#recordFailure('digest', error);
    }
    await this.#writer.close();
    this.#digest.stop();
  }

  /** Writes the lines so far. */
  flush(): Promise<void> {
    return this.#writer.flush();
  }

  /** Milliseconds since the start of the tape. */
  get #elapsedMs(): number {
    return Math.round(this.#options.clock.now() - this.#begunAt);
  }

  #add(entry: TapeEntry): void {
    this.#lines.add(contentOf(entry));
  }

  /** Begins a file with the line that describes the tape. */
  #beginPart(): void {
    const { settings, version } = this.#options;
    this.#partAt = this.#options.clock.now();
    this.#writer.begin();
    const life = this.#life;
    this.#add({
      ev: 'tape',
      format: TAPE_FORMAT,
      version,
      digests: DIGEST_VERSION,
      life,
      wall: this.#wall,
      settings: { ...settings },
    });
    const lost = this.#lines.takeLost();
    if (lost > 0) this.#add({ ev: 'cut', lost });
  }

  #scheduleFlush(): void {
    const { clock } = this.#options;
    this.#timer = clock.after(FLUSH_MS, () => {
      this.#scheduleFlush();
      this.#checkClock();
      this.#flushes++;
      if (this.#flushes % FLUSHES_PER_DIGEST === 0) void this.#run('digest', this.#addDigest());
      this.#checkPart();
      void this.#writer.flush().then(() => this.#report());
    });
  }

  #checkClock(): void {
    const { clock } = this.#options;
    const wall = clock.wallTime() - this.#elapsedMs;
    if (Math.abs(wall - this.#wall) <= CLOCK_STEP_MS) return;
    this.#wall = wall;
    this.#add({ ev: 'clock', wall });
  }

  /**
   * Runs work in steps, unless an earlier run of it has not ended. A failure is in the status until the next run
   * succeeds.
   */
  async #run(work: TapeWork, steps: Iterable<unknown>): Promise<void> {
    if (this.#running.has(work)) return;
    this.#running.add(work);
    try {
      await this.#options.gate.runSteps(steps, this.#stopped.signal);
      // Until the disk has the snapshot, the writer does not know its size.
      if (work === 'snapshot') await this.#writer.flush();
      this.#failures.delete(work);
    } catch (error) {
      this.#recordFailure(work, error);
    } finally {
      this.#running.delete(work);
    }
  }

  #recordFailure(work: TapeWork, error: unknown): void {
    const { message, ...failure } = failureOf(error, this.#options.clock);
    this.#failures.set(work, { ...failure, message: `cannot write a ${work}: ${message}` });
    if (work === 'digest') this.#digest.stop(); // the next one reads all claims
  }

  /** Adds the digest of the lines so far. No line is added between the last read of claims and the digest. */
  *#addDigest(): Generator<void, void, void> {
    yield* this.#digest.read();
    const sums = Object.fromEntries(this.#digest.groups().map(({ writer, sum }) => [writer, sum]));
    this.#add({ ev: 'digest', sums });
  }

  /** Begins the next file, with a snapshot, if it is time. */
  #checkPart(): void {
    if (this.#running.has('snapshot')) return;
    const { clock, maxBytes, partMs = PART_MS } = this.#options;
    const now = clock.now();
    const { partBytes, snapshotBytes } = this.#writer;
    const isFull = partBytes - snapshotBytes >= Math.min(PART_BYTES, (maxBytes - snapshotBytes) / 4);
    const isDue = now - this.#partAt >= partMs || isFull;
    const isFailed = this.#writer.isBroken || this.#failures.has('snapshot');
    const mustBegin = isFailed ? now >= this.#retryAt : isDue;
    if (!mustBegin) return;
    this.#retryAt = now + RETRY_MS;
    void this.#run('snapshot', this.#addSnapshot());
  }

  *#addSnapshot(): Generator<void, void, void> {
    this.#beginPart();
    this.#add({ ev: 'snapshot' });
    const { lost } = this.status();
    yield* this.mesh.snapshot();
    yield* this.kubernetes.snapshot();
    this.#add({ ev: 'whole' });
    if (this.#lines.lost === lost) this.#writer.markReplayable();
  }

  /** Reports the first failure, and the end of all failures. */
  #report(): void {
    const failure = this.#failure;
    if ((failure !== undefined) === this.#isFailureReported) return;
    this.#isFailureReported = failure !== undefined;
    this.#guard.call(this.#options.onFailure, failure);
  }
}
