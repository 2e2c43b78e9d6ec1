import type { Clock } from '../base/clock.ts';
import { messageOf } from '../base/failure.ts';
import { CallbackGuard } from '../base/guard.ts';
import { sleep } from '../base/sleep.ts';
import type { KvstoreBackend } from '../kvstore/session/backend.ts';
import { asKvstoreError, UNREACHABLE } from '../kvstore/session/errors.ts';

export interface KvstoreReachOptions {
  readonly backend: Pick<KvstoreBackend, 'get'>;
  readonly clock: Clock;
  /** The key to read. It need not exist. */
  readonly key: string;
  /** Called with the reason when the kvstore stops answering, and with `undefined` when it answers again. */
  readonly onChange?: ((problem: string | undefined) => void) | undefined;
}

/** Returns a text for the problem of a kvstore; if it is undefined, a text for the end of the problem. */
export function reachText(problem: string | undefined): string {
  return problem === undefined ? 'the kvstore answers again' : `the kvstore does not answer: ${problem}`;
}

/** Time between two reads, and the precision of {@link KvstoreReach.outageOf}. */
const POLL_MS = 2_000;

/**
 * Reads a key every 2 seconds to find out if the kvstore answers. An error from a server, such as a missing permission,
 * is an answer.
 */
export class KvstoreReach {
  readonly #options: KvstoreReachOptions;
  readonly #guard = new CallbackGuard();
  #isAnswering = false;
  /** Send time of the first read without an answer, by {@link Clock.now}; `undefined` while the kvstore answers. */
  #downSince: number | undefined;
  #problem: string | undefined;

  constructor(options: KvstoreReachOptions) {
    this.#options = options;
  }

  /** True if the last read had an answer; false before the first read has ended. */
  get isAnswering(): boolean {
    return this.#isAnswering;
  }

  /** Why the last read had no answer; `undefined` while the kvstore answers, or before the first read has ended. */
  get problem(): string | undefined {
    return this.#problem;
  }

  /** Reads until the signal fires. Must not be called again before it resolves. */
  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await this.#poll(signal);
      await sleep(this.#options.clock, POLL_MS, signal);
    }
  }

  /** Resolves to true when the kvstore has not answered for `ms`, and to false when the signal fires. */
  async outageOf(ms: number, signal: AbortSignal): Promise<boolean> {
    const { clock } = this.#options;
    while (!signal.aborted) {
      const leftMs = (this.#downSince ?? clock.now()) + ms - clock.now();
      if (leftMs <= 0) return true;
      await sleep(clock, Math.min(leftMs, POLL_MS), signal);
    }
    return false;
  }

  async #poll(signal: AbortSignal): Promise<void> {
    const { backend, clock, key } = this.#options;
    const sentAt = clock.now();
    try {
      await backend.get(key, { signal });
      this.#recordAnswer();
    } catch (error) {
      if (signal.aborted) return;
      if (!UNREACHABLE.has(asKvstoreError(error).code)) return this.#recordAnswer();
      const isNew = this.#downSince === undefined;
      this.#isAnswering = false;
      this.#downSince ??= sentAt;
      this.#problem = messageOf(error);
      if (isNew) this.#guard.call(this.#options.onChange, this.#problem);
    }
  }

  #recordAnswer(): void {
    const wasDown = this.#downSince !== undefined;
    this.#isAnswering = true;
    this.#downSince = undefined;
    this.#problem = undefined;
    if (wasDown) this.#guard.call(this.#options.onChange, undefined);
  }
}
