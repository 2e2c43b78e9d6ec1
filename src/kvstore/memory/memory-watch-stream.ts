import type { WatchedKeys } from '../codec/key-range.ts';
import { asKvstoreError } from '../session/errors.ts';
import type { ResponseHeader, TransportEvent, WatchObserver, WatchRequest } from '../session/transport.ts';
import type { MemoryStore, Version } from './memory-store.ts';

// As in a catch-up of etcd 3.4: a thousand revisions at a time.
const REVISIONS_PER_RESPONSE = 1000;
// An event takes 1 to 2 µs with its observer, so this is 4 to 8 ms.
const EVENTS_PER_TURN = 4096;
/** The expansion of a block of values takes as long as this number of events. */
const EVENTS_PER_EXPANSION = 8;

const NO_VERSIONS: Iterator<Version, void, void> = watchedVersions({ prefix: '' }, []);

/**
 * A watch of the memory server. A stream stores a position in the log of the store, and reads one response at a time,
 * so a paused stream needs little memory. If a compaction discards the log at its position, the stream ends with
 * `compacted`.
 */
export class MemoryWatchStream {
  readonly #store: MemoryStore;
  readonly #request: WatchRequest;
  readonly #observer: WatchObserver;
  readonly #sliceEvents: number;
  readonly #onEnded: () => void;
  /** First revision of the next response. */
  #nextRevision: number;
  /** The next version of the current response; undefined if all of it was delivered. */
  #nextVersion: Version | undefined;
  /** The versions of the current response after `#nextVersion`. */
  #laterVersions: Iterator<Version, void, void> = NO_VERSIONS;
  /**
   * Work in this turn of the event loop, in events: delivered events, and {@link EVENTS_PER_EXPANSION} for each
   * expanded block.
   */
  #workInTurn = 0;
  #isCreated = false;
  #isPaused = false;
  /** Number of progress requests without an answer. */
  #progressRequests = 0;
  #isScheduled = false;
  #isRunning = true;
  /** The reason of an end which the observer has not received yet. */
  #endReason: unknown;

  /** @param sliceEvents maximum number of events of one delivery */
  constructor(
    store: MemoryStore,
    request: WatchRequest,
    observer: WatchObserver,
    sliceEvents: number,
    onEnded: () => void,
  ) {
    this.#store = store;
    this.#request = request;
    this.#observer = observer;
    this.#sliceEvents = sliceEvents;
    this.#onEnded = onEnded;
    this.#nextRevision = request.startRevision;
    this.wake();
  }

  /** Returns true until the stream ended or is about to end. */
  get isOpen(): boolean {
    return this.#isRunning && this.#endReason === undefined;
  }

  pause(): void {
    this.#isPaused = true;
  }

  resume(): void {
    this.#isPaused = false;
    this.wake();
  }

  requestProgress(): void {
    this.#progressRequests++;
    this.wake();
  }

  cancel(): void {
    if (!this.#isRunning) return;
    this.#isRunning = false;
    this.#onEnded();
  }

  /** Ends the stream. The observer receives the reason in a microtask, even if the stream is paused. */
  end(reason: unknown): void {
    if (!this.#isRunning || this.#endReason !== undefined) return;
    this.#endReason = reason;
    this.wake();
  }

  /** Schedules a delivery, because there may be events. */
  wake(): void {
    if (this.#isScheduled || !this.#isRunning) return;
    this.#isScheduled = true;
    queueMicrotask(() => {
      this.#isScheduled = false;
      this.#deliver();
    });
  }

  /** Schedules the next delivery of a response: in a microtask, or in the next turn if this one has had many events. */
  #continue(): void {
    if (this.#workInTurn < EVENTS_PER_TURN) {
      this.wake();
      return;
    }
    this.#isScheduled = true;
    setImmediate(() => {
      this.#isScheduled = false;
      this.#workInTurn = 0;
      this.#deliver();
    });
  }

  #finish(reason: unknown): void {
    this.cancel();
    this.#observer.onEnd(reason);
  }

  /** Delivers one item per microtask, so that observers interleave as over a network. */
  #deliver(): void {
    if (!this.#isRunning) return;
    if (this.#endReason !== undefined) {
      this.#finish(this.#endReason);
      return;
    }
    if (this.#isPaused) return;
    try {
      if (this.#isCreated) this.#deliverEvents();
      else this.#deliverCreated();
    } catch (error) {
      this.#finish(asKvstoreError(error));
    }
  }

  #deliverCreated(): void {
    const { header } = this.#store;
    this.#isCreated = true;
    this.#nextRevision ||= header.revision + 1;
    this.#observer.onCreated(header);
    this.wake();
  }

  /**
   * Delivers events. The header has the revision of the store, not the position of the stream, even if more events
   * follow.
   */
  #deliverEvents(): void {
    const header = this.#store.header;
    if (this.#nextVersion === undefined) {
      if (this.#nextRevision > header.revision) {
        if (this.#progressRequests === 0) return;
        this.#progressRequests--;
        this.#observer.onProgress(header, true);
        this.wake();
        return;
      }
      const revisions = this.#store.versionsFrom(this.#nextRevision, REVISIONS_PER_RESPONSE);
      this.#nextRevision += revisions.length;
      this.#laterVersions = watchedVersions(this.#request, revisions);
      this.#advance();
    }
    this.#deliverSlice(header);
    this.#continue();
  }

  #deliverSlice(header: ResponseHeader): void {
    const events: TransportEvent[] = [];
    const { expansions } = this.#store;
    let cost = 0;
    for (; this.#nextVersion !== undefined && cost < this.#sliceEvents; this.#advance()) {
      events.push(this.#store.eventOf(this.#nextVersion));
      cost = events.length + EVENTS_PER_EXPANSION * (this.#store.expansions - expansions);
    }
    if (events.length === 0) return;
    this.#workInTurn += cost;
    this.#observer.onEvents(events, header, this.#nextVersion?.modRevision === events.at(-1)?.modRevision);
  }

  #advance(): void {
    this.#nextVersion = this.#laterVersions.next().value ?? undefined;
  }
}

function* watchedVersions(
  { prefix, exactKey = false }: WatchedKeys,
  revisions: readonly (readonly Version[])[],
): Generator<Version, void, void> {
  for (const versions of revisions) {
    // Most changes of many keys are below one prefix, and most watches are below another one.
    const common = versions[0]?.commonPrefix ?? '';
    if (!common.startsWith(prefix) && !prefix.startsWith(common)) continue;
    for (const version of versions)
      if (exactKey ? version.key === prefix : version.key.startsWith(prefix)) yield version;
  }
}
