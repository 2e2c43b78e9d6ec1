import { isRecentOutage } from '../base/backoff.ts';
import type { Clock, Timer } from '../base/clock.ts';
import { onAbort } from '../base/follow-signal.ts';
import type { RetryTurns } from '../kvstore/session/backend.ts';

/**
 * Milliseconds between two retries in the order of arrival. A retry costs 2 to 5 ms of CPU, so this pace costs at most
 * a hundredth of a core. With 250 unreachable clusters each is retried every two minutes.
 */
const STEP_MS = 500;
/** Milliseconds between two retries of recent outages: at most 5 % of a core, for one minute after they began. */
const RECENT_STEP_MS = 100;
/** Each successful retry releases this many others, because one network fault often affects many clusters. */
const RELEASED_PER_SUCCESS = 4;

/**
 * Paces the retries of unreachable clusters, so that their number does not increase their cost in CPU. There are
 * two independent paces. One serves all clusters in the order of arrival. The other serves only recent outages, every
 * second time the most recent one, so that neither old nor other recent outages delay a cluster with a new failure.
 */
export class RetryPacer implements RetryTurns {
  readonly #clock: Clock;
  /** Start of the outage of each waiting caller, in the order of arrival. At most one entry per cluster. */
  readonly #waiting = new Map<() => void, number>();
  #timer: Timer | undefined;
  #recentTimer: Timer | undefined;
  #isNewestNext = true;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * See `RetryTurns`. Resolves immediately if no retry was released within the last {@link STEP_MS}; for a recent
   * outage, also if none was released within the last {@link RECENT_STEP_MS}.
   */
  turn(downSince: number, signal: AbortSignal): Promise<void> {
    if (signal.aborted) return Promise.resolve();
    return new Promise((resolve) => {
      const release = (): void => {
        this.#waiting.delete(release);
        leaveSignal();
        resolve();
      };
      const leaveSignal = onAbort(signal, release);
      this.#waiting.set(release, downSince);
      if (this.#timer === undefined) this.#step();
      if (this.#recentTimer === undefined) this.#stepRecent();
    });
  }

  succeeded(): void {
    for (let i = 0; i < RELEASED_PER_SUCCESS; i++) this.#releaseFirst();
  }

  #step(): void {
    this.#timer = undefined;
    if (this.#releaseFirst()) this.#timer = this.#clock.after(STEP_MS, () => this.#step());
  }

  #stepRecent(): void {
    this.#recentTimer = undefined;
    if (this.#releaseRecent())
      this.#recentTimer = this.#clock.after(RECENT_STEP_MS, () => this.#stepRecent());
  }

  #releaseFirst(): boolean {
    const [first] = this.#waiting.keys();
    first?.();
    return first !== undefined;
  }

  /** Releases the latest or the longest waiting recent outage, in alternation. Returns false if none is recent. */
  #releaseRecent(): boolean {
    const recent = [...this.#waiting].filter(([, since]) => isRecentOutage(since, this.#clock));
    const [first] = recent;
    if (first === undefined) return false;
    const newest = recent.reduce((best, other) => (other[1] > best[1] ? other : best), first);
    const [release] = this.#isNewestNext ? newest : first;
    this.#isNewestNext = !this.#isNewestNext;
    release();
    return true;
  }
}
