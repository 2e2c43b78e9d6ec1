import { KvstoreError } from '../errors.ts';
import { inRange, type KeyRange, prefixRange } from '../key-range.ts';
import type { KeyValue, ResponseHeader, TransportEvent } from '../transport.ts';
import type { EventQueue } from './event-queue.ts';
import { KnownKeys } from './known-keys.ts';

/** The store is another one, or was restored from a backup: another past of the same. */
export class DivergedError extends KvstoreError {
  constructor(why: string) {
    super('future-revision', why);
  }
}

/**
 * What a watch knows, and as of when. Pure.
 *
 *     prefix ├──────── covered ────────┼──── not listed yet ────┤ end
 *              confirmed, as of          unconfirmed, as of
 *              revision `next` − 1       `unconfirmedNext` − 1
 */
export class Cursor {
  readonly range: KeyRange;
  readonly known: KnownKeys;
  #covered: string;
  #next = 0;
  #unconfirmedNext = 0;
  #header: ResponseHeader | undefined;

  constructor(prefix: string, queue: EventQueue) {
    this.range = prefixRange(prefix);
    this.known = new KnownKeys(queue);
    this.#covered = this.range.start;
  }

  /** Everything that was written in the covered range before this revision is known. */
  get next(): number {
    return this.#next;
  }

  /** The part of the prefix that has been listed. */
  get covered(): KeyRange {
    return { start: this.range.start, end: this.#covered };
  }

  /** What is still to be listed. */
  get rest(): KeyRange {
    return { start: this.#covered, end: this.range.end };
  }

  get isComplete(): boolean {
    return this.#covered === this.range.end;
  }

  get isEmpty(): boolean {
    return this.#covered === this.range.start;
  }

  /**
   * Whether a stream may go on from `next`: only where the revision before is that of an event, which the server can be
   * asked to show. After a listing nothing in this prefix need have been written at its revision.
   */
  get canResume(): boolean {
    const { anchors, lastDeletes } = this.known;
    const last = this.#next - 1;
    return this.isComplete && (anchors.newest === last || lastDeletes.newest === last);
  }

  /** Throws {@link DivergedError} unless a quorum read with this header may be of the store that was followed. */
  check(header: ResponseHeader): void {
    const { clusterID, raftTerm, revision } = header;
    const followed = this.#header;
    if (followed !== undefined && clusterID !== followed.clusterID) {
      throw new DivergedError(`the cluster is ${clusterID} and was ${followed.clusterID}`);
    }
    if (revision < Math.max(this.#next, this.#unconfirmedNext) - 1 || raftTerm < (followed?.raftTerm ?? 0)) {
      throw new DivergedError(`the store has gone back to revision ${revision}`);
    }
    this.#header = header;
  }

  /** Throws {@link DivergedError} if a key was last written before the cursor, and not as it was seen then. */
  checkKey({ key, modRevision }: Pick<KeyValue, 'key' | 'modRevision'>): void {
    const known = this.known.revisionOf(key);
    if (known === modRevision || modRevision >= this.knownBefore(key)) return;
    throw new DivergedError(
      `${key} is of revision ${modRevision}, and was known to be of ${known ?? 'none'}`,
    );
  }

  /** The revision before which all writes of a key are known. */
  knownBefore(key: string): number {
    return this.#next === this.#unconfirmedNext || inRange(key, this.covered)
      ? this.#next
      : this.#unconfirmedNext;
  }

  /** Events of whole revisions, from a stream. */
  receive(events: readonly TransportEvent[]): void {
    for (const event of events) {
      // A stream that was opened before a listing repeats what the listing has shown.
      if (event.modRevision >= this.#next) this.known.apply(event);
    }
    this.#next = Math.max(this.#next, (events.at(-1)?.modRevision ?? 0) + 1);
  }

  /** What is covered is now known as of `revision`, up to the key `upTo`. */
  cover(upTo: string, revision: number): void {
    this.#covered = upTo;
    this.#next = revision + 1;
  }

  /** The whole prefix is to be listed again; yields after each step of what that costs. */
  *beginListing(): Generator<void> {
    if (this.isComplete) this.#unconfirmedNext = this.#next;
    this.#covered = this.range.start;
    yield* this.known.unconfirm();
  }

  /** The store is another one: nothing that is known says anything of it. */
  *diverge(): Generator<void> {
    this.known.anchors.clear(); // what was put last in the old history says nothing of the new
    this.#header = undefined;
    yield* this.beginListing();
    this.#next = 0;
    this.#unconfirmedNext = 0;
  }
}
