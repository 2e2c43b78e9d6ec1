import type { WatchEvent } from '../backend.ts';
import { EventQueue, type QueueLimits } from './event-queue.ts';

/** The queue between a watch and its one reader, with a gate on either side: neither runs far ahead (I11). */
export class ReaderQueue {
  readonly events: EventQueue;
  readonly #limits: QueueLimits;
  #ended = false;
  #wakeReader: (() => void) | undefined;
  #giveRoom: (() => void) | undefined;

  constructor(limits: QueueLimits) {
    this.events = new EventQueue(limits);
    this.#limits = limits;
  }

  /** Whether the source is to pause. */
  get isFull(): boolean {
    return this.events.bytes > this.#limits.highWaterBytes;
  }

  /** The source has pushed what it has for now: a reader that waits goes on. */
  flush(): void {
    this.#wakeReader?.();
    this.#wakeReader = undefined;
  }

  /** The next batch; empty once the queue has ended. */
  async take(): Promise<readonly WatchEvent[]> {
    while (this.events.isEmpty && !this.#ended) {
      await new Promise<void>((resolve) => {
        this.#wakeReader = resolve;
      });
    }
    const batch = this.events.take();
    if (this.events.bytes < this.#limits.lowWaterBytes) this.#openGate();
    return batch;
  }

  /** Resolves once the source may go on. */
  async room(): Promise<void> {
    if (!this.isFull || this.#ended) return;
    await new Promise<void>((resolve) => {
      this.#giveRoom = resolve;
    });
  }

  /** Throws away what is queued, and lets both sides go. */
  end(): void {
    this.#ended = true;
    this.events.clear();
    this.flush();
    this.#openGate();
  }

  #openGate(): void {
    this.#giveRoom?.();
    this.#giveRoom = undefined;
  }
}
