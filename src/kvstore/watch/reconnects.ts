import type { RetryTurns } from '../session/backend.ts';

/** Number of failures in a row after which a server counts as unreachable and attempts wait for their turn. */
const FREE_ATTEMPTS = 3;

/** An outage of the server as one watch sees it. */
export interface Outage {
  /** Failed attempts of this watch in a row. */
  readonly failures: number;
  /** Monotonic time of the first failure. */
  readonly since: number;
}

/**
 * Coordinates the retries of the watches of one client. While the server is unreachable, one watch retries with a
 * backoff. The other watches wait until this watch has reached the server.
 */
export class Reconnects {
  /** Spreads the attempts of many clients. */
  turns: RetryTurns | undefined;
  /** Waiting watches in FIFO order. */
  readonly #waiting = new Map<object, () => void>();
  /** The only watch that retries while the server is unreachable. */
  #retrying: object | undefined;
  /** True if the retrying watch has had its turn in `turns` since the server last answered. */
  #hasTakenTurn = false;

  /** Resolves when `watch` must retry, or when the signal fires. */
  async wait(watch: object, { failures, since }: Outage, signal: AbortSignal): Promise<void> {
    if (signal.aborted) return; // the watch has already left
    this.#retrying ??= watch;
    if (this.#retrying !== watch) await new Promise<void>((resolve) => this.#waiting.set(watch, resolve));
    if (this.#retrying !== watch || this.turns === undefined || failures <= FREE_ATTEMPTS) return;
    await this.turns.turn(since, signal);
    this.#hasTakenTurn = true;
  }

  /** Wakes all watches, because the server has answered. */
  wakeAll(): void {
    if (this.#hasTakenTurn) this.turns?.succeeded();
    this.#hasTakenTurn = false;
    this.#retrying = undefined;
    for (const [watch, wake] of [...this.#waiting]) {
      this.#waiting.delete(watch);
      wake();
    }
  }

  /** Removes an ended watch. If it was the watch that retries, the next waiting watch retries instead. */
  leave(watch: object): void {
    this.#waiting.get(watch)?.();
    this.#waiting.delete(watch);
    if (this.#retrying !== watch) return;
    const [next] = this.#waiting;
    this.#retrying = next?.[0];
    if (next === undefined) return;
    this.#waiting.delete(next[0]);
    next[1]();
  }
}
