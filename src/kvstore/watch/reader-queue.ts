import type { WatchEvent } from '../session/backend.ts';
import { EventQueue, type QueueLimits } from './event-queue.ts';

/** The queue between a watch and its one reader. Each side waits for the other, so that neither runs far ahead (I11). */
export class ReaderQueue {
  readonly events: EventQueue;
  readonly #limits: QueueLimits;
  #isEnded = false;
  #wakeReader: (() => void) | undefined;
  #wakeSource: (() => void) | undefined;

  constructor(limits: QueueLimits) {
    this.events = new EventQueue(limits);
    this.#limits = limits;
  }

  /** True if the source must pause. */
  get isFull(): boolean {
    return this.events.bytes > this.#limits.highWaterBytes;
  }

  /** Wakes a waiting reader after the source has pushed events. */
  flush(): void {
    this.#wakeReader?.();
    this.#wakeReader = undefined;
  }

  /** Returns the next batch; an empty one if the queue has ended. */
  async next(): Promise<readonly WatchEvent[]> {
    while (this.events.isEmpty && !this.#isEnded) {
      await new Promise<void>((resolve) => {
        this.#wakeReader = resolve;
      });
    }
    const batch = this.events.drain();
    if (this.events.bytes < this.#limits.lowWaterBytes) this.#openGate();
    return batch;
  }

  /** Resolves when the source may continue. */
  async room(): Promise<void> {
    if (!this.isFull || this.#isEnded) return;
    await new Promise<void>((resolve) => {
      this.#wakeSource = resolve;
    });
  }

  /** Discards queued events and releases both sides. */
  end(): void {
    this.#isEnded = true;
    this.events.clear();
    this.flush();
    this.#openGate();
  }

  #openGate(): void {
    this.#wakeSource?.();
    this.#wakeSource = undefined;
  }
}
