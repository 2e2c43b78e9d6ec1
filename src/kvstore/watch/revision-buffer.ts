import type { TransportEvent } from '../session/transport.ts';
import { entrySize } from '../session/wire-key-value.ts';
import { CannotResumeError } from './sync.ts';
import type { WatchLimits } from './watch-limits.ts';

/** Events that may be delivered. */
export interface ReadyEvents {
  readonly events: readonly TransportEvent[];
  /**
   * True if more events of the last revision may follow: a revision larger than a batch is delivered in parts, as it
   * arrives.
   */
  readonly isPartial: boolean;
}

// Memory of an event in addition to key and value, as in the queue.
const EVENT_BYTES = 80;

/**
 * Buffers the events of the last revision of a stream until the revision is complete, so that its writes are delivered
 * together. A revision of more than `batchEvents` events is delivered as it arrives, because the queue splits it
 * anyway.
 *
 * Example: each delivery of the stream ends within a revision.
 *
 *     added      7 7 8 8    8 9      9 9
 *     returned   7 7        8 8 8
 *     buffered   8 8        9        9 9 9
 */
export class RevisionBuffer {
  readonly #limits: Pick<WatchLimits, 'batchEvents' | 'revisionBytes'>;
  #events: TransportEvent[] = [];
  #bytes = 0;
  /** The incomplete revision that was delivered in part; 0 if there is none. */
  #splitRevision = 0;

  constructor(limits: Pick<WatchLimits, 'batchEvents' | 'revisionBytes'>) {
    this.#limits = limits;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** True if the last received revision is incomplete. */
  get isOpen(): boolean {
    return this.#events.length > 0 || this.#splitRevision > 0;
  }

  /**
   * Adds events of the stream and returns those that may be delivered.
   *
   * @param isPartial true if more events of the last revision may follow
   * @throws CannotResumeError if the buffered revision exceeds `revisionBytes`
   */
  add(events: readonly TransportEvent[], isPartial: boolean): ReadyEvents {
    if (!isPartial) return { events: this.#release(events), isPartial: false };
    const last = events.at(-1)?.modRevision;
    const hasOnlySplitRevision = last === undefined || last === this.#splitRevision;
    if (hasOnlySplitRevision) return { events, isPartial: this.#splitRevision > 0 };
    const lastStart = events.findIndex(({ modRevision }) => modRevision === last);
    const continuesBufferedRevision = this.#events[0]?.modRevision === last;
    const complete = continuesBufferedRevision ? [] : this.#release(events.slice(0, lastStart));
    for (const event of events.slice(lastStart)) this.#buffer(event);
    if (this.#events.length <= this.#limits.batchEvents) return { events: complete, isPartial: false };
    const ready = [...complete, ...this.#release([])];
    this.#splitRevision = last;
    return { events: ready, isPartial: true };
  }

  #buffer(event: TransportEvent): void {
    this.#events.push(event);
    this.#bytes += EVENT_BYTES + entrySize(event);
    if (this.#bytes > this.#limits.revisionBytes)
      throw new CannotResumeError(
        `revision ${event.modRevision} of the watch exceeds ${this.#limits.revisionBytes} bytes`,
      );
  }

  /**
   * Returns the buffered events, which are now complete, followed by `events`. Then no revision is buffered or split.
   */
  #release(events: readonly TransportEvent[]): readonly TransportEvent[] {
    const buffered = this.#events;
    this.#splitRevision = 0;
    if (buffered.length === 0) return events;
    this.#events = [];
    this.#bytes = 0;
    return [...buffered, ...events];
  }
}
