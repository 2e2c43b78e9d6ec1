import { inRange, type KeyRange, prefixRange } from '../codec/key-range.ts';
import { KvstoreError } from '../session/errors.ts';
import type { KeyTable } from '../session/key-table.ts';
import type { KeyValue, ResponseHeader, TransportEvent } from '../session/transport.ts';
import type { EventQueue } from './event-queue.ts';
import { KnownKeys, type ListedRows } from './known-keys.ts';

/** Thrown if the store was replaced, or restored from a backup. */
export class DivergedError extends KvstoreError {
  constructor(reason: string) {
    super('future-revision', reason);
  }
}

/**
 * The position of a watch: the keys that it knows, and the revisions up to which it knows all writes. Pure.
 *
 *     prefix ├──────── covered ────────┼──── not listed yet ────┤ end
 *            confirmed, as of            unconfirmed, as of
 *            `nextRevision` − 1          `unconfirmedNext` − 1
 */
export class Cursor {
  readonly range: KeyRange;
  readonly knownKeys: KnownKeys;
  #coveredEnd: string;
  #nextRevision = 0;
  /** True if some events of revision `nextRevision` are known. */
  #isPartial = false;
  /** All writes in the rest of the prefix before this revision are known; 0 if none are. */
  #unconfirmedNext = 0;
  /** The header of the last checked read. */
  #header: ResponseHeader | undefined;

  /**
   * @param keys the table of the reader, if it has one
   * @param range the watched keys, which begin with `prefix`
   */
  constructor(prefix: string, queue: EventQueue, keys?: KeyTable, range: KeyRange = prefixRange(prefix)) {
    this.range = range;
    this.knownKeys = new KnownKeys(prefix, queue, keys);
    this.#coveredEnd = this.range.start;
  }

  /** All writes in the covered range before this revision are known. */
  get nextRevision(): number {
    return this.#nextRevision;
  }

  /** The part of the prefix that was listed. */
  get covered(): KeyRange {
    return { start: this.range.start, end: this.#coveredEnd };
  }

  /** The part of the prefix that is not listed yet. */
  get unlisted(): KeyRange {
    return { start: this.#coveredEnd, end: this.range.end };
  }

  get isComplete(): boolean {
    return this.#coveredEnd === this.range.end;
  }

  get isEmpty(): boolean {
    return this.#coveredEnd === this.range.start;
  }

  /**
   * True if a stream may resume at `nextRevision`. This requires a known event at revision `nextRevision` − 1, which
   * can be compared with the server. Two states have no such event: after a listing, whose revision may belong to
   * another prefix; and within a revision, whose known events cannot be distinguished from its missing events.
   */
  get canResume(): boolean {
    const { anchors, lastDeletes } = this.knownKeys;
    const last = this.#nextRevision - 1;
    return this.isComplete && !this.#isPartial && (anchors.newest === last || lastDeletes.newest === last);
  }

  /**
   * Throws {@link DivergedError} if the header of a quorum read shows another store than the followed one. The raft
   * term of a store never decreases, because a header has the term of the last applied entry.
   */
  check(header: ResponseHeader): void {
    const { clusterID, raftTerm, revision } = header;
    const followed = this.#header;
    if (followed !== undefined && clusterID !== followed.clusterID) {
      throw new DivergedError(
        `the id of the etcd cluster changed from ${followed.clusterID} to ${clusterID}`,
      );
    }
    const followedRevision = Math.max(this.#nextRevision, this.#unconfirmedNext) - 1;
    if (revision < followedRevision)
      throw new DivergedError(`the revision of the store decreased from ${followedRevision} to ${revision}`);
    if (followed !== undefined && raftTerm < followed.raftTerm)
      throw new DivergedError(`the raft term decreased from ${followed.raftTerm} to ${raftTerm}`);
    this.#header = header;
  }

  /**
   * Confirms a listed key. If the key is new or differs from the known version, queues it. Throws {@link DivergedError}
   * if all writes up to the key's revision are known, but not this one.
   *
   * @param part the part of the range with the key
   * @param listed receives the row of a key that is confirmed
   */
  applyListed(kv: KeyValue, part: 'covered' | 'unlisted', listed?: ListedRows): void {
    const row = this.knownKeys.find(kv);
    if (this.knownKeys.confirm(row, kv)) {
      listed?.add(row);
      return;
    }
    const { modRevision } = kv;
    if (modRevision >= (part === 'covered' ? this.#nextRevision : this.#unconfirmedNext)) {
      this.knownKeys.put(row, kv);
      return;
    }
    const known = this.knownKeys.revisionOf(kv.key);
    throw new DivergedError(
      `${kv.key} has revision ${modRevision}, but was read ${knownText(known, modRevision)}`,
    );
  }

  /** Returns the revision before which all writes of a key are known. */
  knownBefore(key: string): number {
    return inRange(key, this.covered) ? this.#nextRevision : this.#unconfirmedNext;
  }

  /**
   * Applies events of a stream.
   *
   * @param isPartial true if more events of the last revision may follow
   */
  receive(events: readonly TransportEvent[], isPartial: boolean = false): void {
    for (const event of events) {
      // If a stream was opened before a listing, it repeats events of the listing.
      if (event.modRevision >= this.#nextRevision) this.knownKeys.apply(event);
    }
    const last = events.at(-1)?.modRevision ?? 0;
    this.#isPartial = isPartial;
    this.#nextRevision = Math.max(this.#nextRevision, isPartial ? last : last + 1);
  }

  /** Records that all keys before `upTo` are known as of `revision`. */
  cover(upTo: string, revision: number): void {
    this.#coveredEnd = upTo;
    this.#isPartial = false;
    this.#nextRevision = revision + 1;
  }

  /** Starts a new listing of the whole prefix. */
  beginListing(): void {
    // After an interrupted listing, the keys are only known as of the listing before it.
    if (this.isComplete) this.#unconfirmedNext = this.#nextRevision;
    this.#coveredEnd = this.range.start;
    this.knownKeys.unconfirm();
  }

  /** Resets the cursor for another store, because nothing known applies to it. */
  diverge(): void {
    this.knownKeys.anchors.clear(); // the new history does not contain the puts of the old history
    this.#header = undefined;
    this.beginListing();
    this.#nextRevision = 0;
    this.#unconfirmedNext = 0;
  }
}

/** Returns what was read earlier of a key which the store now has at `modRevision`. */
function knownText(known: number | undefined, modRevision: number): string {
  if (known === modRevision) return 'with another value';
  return known === undefined ? 'as absent' : `at revision ${known}`;
}
