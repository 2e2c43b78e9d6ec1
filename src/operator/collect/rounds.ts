import { sleep } from '../../base/sleep.ts';
import type { Action, Duty, DutyRounds, DutyStatus } from '../duty.ts';
import { type DutyOptions, DutyReport } from '../duty-report.ts';
import type { ObservedObjects } from './observed-kind.ts';

/** Receives the results of a round. */
export interface RoundReport {
  /** Number of the round, from 1. */
  readonly round: number;
  /** Sets the number of marked objects after this round. */
  setMarked(count: number): void;
  countDelete(): void;
  countConflict(): void;
  /** Reports a write, also one that failed, or that a dry run only prints. */
  addAction(action: Omit<Action, 'duty'>): void;
  /** Reports the error of one object, after which the round continues with the others. */
  addError(error: Error): void;
}

/** The counters and times of the rounds of a duty, writable. */
type RoundCounts = { -readonly [Name in keyof DutyRounds]: DutyRounds[Name] };

/** Returns the counters of a duty before its first round. */
export function newCounts(): RoundCounts {
  const times = { lastRoundAt: undefined, nextRoundAt: undefined };
  return { rounds: 0, marked: 0, deleted: 0, conflicts: 0, ...times };
}

/** Returns the report of the next round, which changes `counts`. */
export function roundReport(counts: RoundCounts, report: DutyReport): RoundReport {
  return {
    round: counts.rounds + 1,
    setMarked: (count) => {
      counts.marked = count;
    },
    countDelete: () => {
      counts.deleted++;
    },
    countConflict: () => {
      counts.conflicts++;
    },
    addAction: (action) => report.addAction(action),
    addError: (error) => report.addError(error),
  };
}

/** The work of a collector, done in rounds. */
export interface Collector {
  readonly name: string;
  /** The kinds required to be complete before a round. */
  readonly needs: readonly Pick<ObservedObjects, 'notReadyReason' | 'follow'>[];
  /** Runs one round. Rejects if the round cannot be finished. Must not be called while a round runs. */
  round(report: RoundReport, signal: AbortSignal): Promise<void>;
}

export interface RoundsOptions extends DutyOptions {
  /** Time between the starts of two rounds. */
  readonly intervalMs: number;
}

/** Time between two checks of an incomplete kind. */
const POLL_MS = 5000;

/**
 * Runs the rounds of a collector one after the other. A failed round is counted, and the next round starts as planned.
 * If a kind in `needs` is incomplete, the round does not start.
 */
export class RoundsDuty implements Duty {
  readonly name: string;
  readonly #collector: Collector;
  readonly #options: RoundsOptions;
  readonly #report: DutyReport;
  readonly #counts = newCounts();

  constructor(collector: Collector, options: RoundsOptions) {
    this.name = collector.name;
    this.#collector = collector;
    this.#options = options;
    this.#report = new DutyReport(this.name, options);
  }

  async run(signal: AbortSignal): Promise<void> {
    const { clock, intervalMs } = this.#options;
    for (const kind of this.#collector.needs) kind.follow(signal);
    this.#report.state = 'waiting';
    while (!signal.aborted) {
      const startedAt = clock.now();
      const wasStarted = await this.#round(signal);
      const waitMs = wasStarted
        ? Math.max(0, startedAt + intervalMs - clock.now())
        : Math.min(POLL_MS, intervalMs);
      this.#counts.nextRoundAt = clock.wallTime() + waitMs;
      await sleep(clock, waitMs, signal);
    }
    this.#report.state = 'ended';
    this.#counts.nextRoundAt = undefined;
  }

  status(): DutyStatus {
    return { ...this.#report.status(), rounds: { ...this.#counts } };
  }

  /** Runs a round. Returns false if it was not started because a kind is incomplete. */
  async #round(signal: AbortSignal): Promise<boolean> {
    const { clock } = this.#options;
    const [reason] = this.#collector.needs.flatMap((kind) => kind.notReadyReason() ?? []);
    if (reason !== undefined) {
      this.#report.state = 'waiting';
      this.#report.addNotReady(reason);
      return false;
    }
    this.#report.state = 'running';
    this.#report.clearNotReady();
    this.#counts.lastRoundAt = clock.wallTime();
    try {
      await this.#collector.round(roundReport(this.#counts, this.#report), signal);
      this.#counts.rounds++;
    } catch (error) {
      if (!signal.aborted) this.#report.addError(error);
    }
    return true;
  }
}
