import type { RetryTurns } from '../backend.ts';

/** Failures in a row after which a server counts as out of reach, and attempts wait for their turn. */
const FREE_ATTEMPTS = 3;

/**
 * What the watches of a client share while their server is out of reach: one of them tries, by its own backoff, and the
 * others wait until it has reached the server.
 */
export class Reconnects {
  /** Spreads the attempts of many clients. */
  turns: RetryTurns | undefined;
  /** Watches that wait, first come, first served. */
  readonly #waiting = new Map<object, () => void>();
  #trying: object | undefined;
  #hadTurn = false;

  /**
   * Resolves when `watch` is to try again, or the signal fires and it leaves.
   *
   * @param failures how often it has failed in a row
   */
  async wait(watch: object, failures: number, signal: AbortSignal): Promise<void> {
    if (signal.aborted) return; // it has left already
    this.#trying ??= watch;
    if (this.#trying !== watch) await new Promise<void>((resolve) => this.#waiting.set(watch, resolve));
    if (this.#trying !== watch || this.turns === undefined || failures <= FREE_ATTEMPTS) return;
    await this.turns.turn(signal);
    this.#hadTurn = true;
  }

  /** The server has answered. */
  reached(): void {
    if (this.#hadTurn) this.turns?.succeeded();
    this.#hadTurn = false;
    this.#trying = undefined;
    for (const [watch, go] of [...this.#waiting]) {
      this.#waiting.delete(watch);
      go();
    }
  }

  /** `watch` has ended: another one tries in its place. */
  leave(watch: object): void {
    this.#waiting.get(watch)?.();
    this.#waiting.delete(watch);
    if (this.#trying !== watch) return;
    const [next] = this.#waiting;
    this.#trying = next?.[0];
    if (next === undefined) return;
    this.#waiting.delete(next[0]);
    next[1]();
  }
}
