import type { Clock } from '../base/clock.ts';
import { EitherSignal } from '../base/follow-signal.ts';
import { sleep } from '../base/sleep.ts';
import type { TurnGate } from '../base/turn-gate.ts';
import { WorkQueue, type WorkQueueOptions } from '../base/work-queue.ts';

/** Maximum duration of one call of {@link DueKeys.whenDue}, whose caller then calls it again. */
const MAX_WAIT_MS = 600_000;
/** Minimum time from a write for a key to the next one. */
const WRITE_PAUSE_MS = 1000;

/** The keys of a duty with one worker, which sleeps while no key is due. */
export class DueKeys extends WorkQueue<string> {
  readonly #clock: Pick<Clock, 'now' | 'after'>;
  /** Set while {@link DueKeys.whenDue} waits. */
  #woken: AbortController | undefined;
  /** Time of the last write for each key, for {@link WRITE_PAUSE_MS}. */
  readonly #writtenAt = new Map<string, number>();

  constructor(options: Omit<WorkQueueOptions, 'onDue'>) {
    super({ ...options, onDue: () => this.wake() });
    this.#clock = options.clock;
  }

  /** Makes a key due now and wakes the worker. */
  override add(key: string): void {
    super.add(key);
    this.wake();
  }

  override clear(): void {
    super.clear();
    this.#writtenAt.clear();
  }

  /** Records a write for a key now, for {@link DueKeys.delayAfterWrite}. */
  recordWrite(key: string): void {
    this.#writtenAt.set(key, this.#clock.now());
  }

  /** Returns true if the last write for a key was less than a second ago. The key is then due after that second. */
  delayAfterWrite(key: string): boolean {
    const writtenAt = this.#writtenAt.get(key) ?? Number.NEGATIVE_INFINITY;
    const pauseMs = writtenAt + WRITE_PAUSE_MS - this.#clock.now();
    if (pauseMs > 0) this.addAfter(key, pauseMs);
    else this.#writtenAt.delete(key);
    return pauseMs > 0;
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
