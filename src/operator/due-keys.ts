import type { Clock } from '../base/clock.ts';
import { EitherSignal } from '../base/follow-signal.ts';
import { sleep } from '../base/sleep.ts';
import type { TurnGate } from '../base/turn-gate.ts';
import { WorkQueue, type WorkQueueOptions } from '../base/work-queue.ts';

/** Maximum duration of one call of {@link DueKeys.whenDue}, whose caller then calls it again. */
const MAX_WAIT_MS = 600_000;

/** The keys of a duty with one worker, which sleeps while no key is due. */
export class DueKeys extends WorkQueue<string> {
  readonly #clock: Pick<Clock, 'now' | 'after'>;
  /** Set while {@link DueKeys.whenDue} waits. */
  #woken: AbortController | undefined;

  constructor(options: Omit<WorkQueueOptions, 'onDue'>) {
    super({ ...options, onDue: () => this.wake() });
    this.#clock = options.clock;
  }

  /** Makes a key due now and wakes the worker. */
  override add(key: string): void {
    super.add(key);
    this.wake();
  }

  /** Ends {@link DueKeys.whenDue} also if no key is due. */
  wake(): void {
    this.#woken?.abort();
  }

  /**
   * Calls `work` with each due key, one after the other, until no key is due or the signal fires. Passes `weight` to
   * the gate for each key.
   */
  async processDue(
    gate: TurnGate,
    weight: number,
    work: (key: string) => Promise<void>,
    signal: AbortSignal,
  ): Promise<void> {
    while (this.next !== undefined && (await gate.pass(weight, signal))) {
      const key = this.get();
      if (key === undefined) return;
      await work(key);
      this.done(key);
    }
  }

  /** Resolves when a key is due, after `wake`, when the signal fires, or after 10 minutes. */
  async whenDue(signal: AbortSignal): Promise<void> {
    if (this.next !== undefined) return;
    this.#woken = new AbortController();
    using either = new EitherSignal(signal, this.#woken.signal);
    await sleep(this.#clock, MAX_WAIT_MS, either.signal);
    this.#woken = undefined;
  }
}
