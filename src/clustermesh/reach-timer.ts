import type { Clock, Timer } from '../base/clock.ts';

/** What a {@link ReachTimer} is made of. */
export interface ReachTimerOptions {
  readonly clock: Clock;
  readonly ttlMs: number;
  readonly isReached: () => boolean;
  /** Told at every look, for as long as it is not reached again. */
  readonly onExpired: () => void;
}

/** Looks a twentieth of the time apart, which is how exact the expiry is; at most 15 s. */
const LOOKS = 20;
const LOOK_MS = 15_000;

/** Tells when something has not been reached for `ttlMs`. It begins as if it had just been reached. */
export class ReachTimer {
  readonly #options: ReachTimerOptions;
  #reachedAt: number;
  #timer: Timer | undefined;

  constructor(options: ReachTimerOptions) {
    this.#options = options;
    this.#reachedAt = options.clock.now();
    this.#wait();
  }

  stop(): void {
    this.#timer?.cancel();
  }

  #wait(): void {
    const { clock, ttlMs } = this.#options;
    this.#timer = clock.after(Math.min(LOOK_MS, ttlMs / LOOKS), () => this.#look());
  }

  #look(): void {
    const { clock, ttlMs, isReached, onExpired } = this.#options;
    const now = clock.now();
    if (isReached()) this.#reachedAt = now;
    this.#wait();
    if (now - this.#reachedAt >= ttlMs) onExpired();
  }
}
