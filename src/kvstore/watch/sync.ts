import type { Clock } from '../../base/clock.ts';
import { type KeyRange, keyRange } from '../codec/key-range.ts';
import { KvstoreError } from '../session/errors.ts';
import type { KeyValue, RangeRequest, RangeResponse } from '../session/transport.ts';
import { type Anchor, isUnchanged } from './anchors.ts';
import { type Cursor, DivergedError } from './cursor.ts';
import { type KnownKeys, ListedRows } from './known-keys.ts';
import { PageSize } from './page-size.ts';
import { type KeyPage, listPages, type Read } from './paged-list.ts';
import type { WatchLimits } from './watch-limits.ts';

export interface SyncOptions {
  readonly cursor: Cursor;
  readonly prefix: string;
  /** Reads from the server of an open stream, so that all reads are of one history. */
  readonly read: Read;
  readonly pageSize: PageSize;
  readonly limits: WatchLimits;
  readonly clock: Pick<Clock, 'now'>;
  /** Waits for a turn of the event loop that has room for a slice. Throws if the watch has ended. */
  admit(): Promise<void>;
  /** Lets the reader receive queued events, and other work run. Throws if the watch has ended. */
  yieldTurn(): Promise<void>;
  /** Called when a listing of the whole prefix begins. */
  onListing(): void;
}

/**
 * How the known keys are compared. `count`: by their number, or by revisions if the number is no proof; `revisions`: by
 * their revisions; `values`: by revisions and values.
 */
export type Comparison = 'count' | 'revisions' | 'values';

/** The stream cannot resume at the cursor, so the writes after the cursor must be read. */
export class CannotResumeError extends KvstoreError {
  constructor(reason: string) {
    super('compacted', reason);
  }
}

/** Runs many small steps in slices. */
async function inSlices(
  steps: Iterable<void>,
  { limits, admit, yieldTurn }: Pick<SyncOptions, 'limits' | 'admit' | 'yieldTurn'>,
): Promise<void> {
  let done = 0;
  for (const _step of steps) {
    if (++done % limits.sliceKeys !== 0) continue;
    await yieldTurn();
    await admit();
  }
}

/**
 * Proves, by quorum reads **as of the cursor**, that the server has the followed history up to the last event. The
 * revision of the store is no proof, because a restored store may be beyond the cursor again. Throws
 * {@link DivergedError} if the history differs. Throws {@link CannotResumeError} if the proof is not possible, or if
 * the stream would be too far behind.
 */
export async function proveHistory({ cursor, read, limits }: SyncOptions): Promise<void> {
  const last = cursor.nextRevision - 1;
  const { anchors } = cursor.knownKeys;
  const readAtCursor = async (range: KeyRange, minModRevision = 0): Promise<RangeResponse> => {
    const answer = await read({ ...range, minModRevision, limit: 1, revision: last });
    cursor.check(answer.header);
    if (answer.header.revision - cursor.nextRevision > limits.backlogRevisions)
      throw new CannotResumeError('too far behind');
    return answer;
  };
  const prove = async (anchor: Anchor): Promise<void> => {
    const { kvs } = await readAtCursor(keyRange(anchor.key));
    if (!isUnchanged(anchor, kvs[0]))
      throw new DivergedError(`${anchor.key} has another value than the one that was put`);
  };
  const proofs = anchors.latest.map(prove);
  if (anchors.newest < last) proofs.push(proveDeletes(cursor.knownKeys, cursor.range, readAtCursor));
  await Promise.all(proofs);
}

/**
 * Proves the deletes after the last put. A put is recognised by its value, but a delete has no value. The result of the
 * deletes is therefore compared: the server must have no put after the newest anchor, the same number of keys, and none
 * of the deleted keys.
 */
async function proveDeletes(
  known: KnownKeys,
  range: KeyRange,
  readAtCursor: (range: KeyRange, minModRevision?: number) => Promise<RangeResponse>,
): Promise<void> {
  const { newest } = known.anchors;
  const deleted = known.lastDeletes.since(newest);
  if (deleted === undefined) throw new CannotResumeError('too many deletes');
  const deletedKeys = deleted.filter((key) => known.revisionOf(key) === undefined);
  const [later, ...answers] = await Promise.all([
    readAtCursor(range, newest + 1),
    ...deletedKeys.map((key) => readAtCursor(keyRange(key))),
  ]);
  if (later.kvs.length > 0 || later.count !== known.size || answers.some(({ kvs }) => kvs.length > 0))
    throw new CannotResumeError('the keys must be compared');
}

/**
 * Brings the known keys up to date with the store, and delivers only differences. Returns the revision up to which all
 * keys are known.
 *
 * If an anchor is unchanged on the server, the history up to its revision is proven: only later writes are read, and
 * the keys are compared as `comparison` requires. If no history is proven, all keys are listed with values.
 */
export function sync(options: SyncOptions, comparison: Comparison): Promise<number> {
  return new Sync(options).run(comparison);
}

class Sync {
  readonly #options: SyncOptions;
  readonly #cursor: Cursor;
  /** The revision of the first answer and of all later reads; 0 before the first answer. */
  #revision = 0;
  /** True if all latest anchors are unchanged, which is a stronger proof than one unchanged anchor. */
  #areLatestProven = false;

  constructor(options: SyncOptions) {
    this.#options = options;
    this.#cursor = options.cursor;
  }

  async run(comparison: Comparison): Promise<number> {
    const cursor = this.#cursor;
    const proven = await this.#provenRevision();
    const isUpToDate = !cursor.isEmpty && proven > 0 && (await this.#update(proven, comparison));
    if (isUpToDate) cursor.cover(cursor.covered.end, this.#revision);
    else if (!cursor.isEmpty) cursor.beginListing();
    if (!cursor.isComplete) await this.#list();
    cursor.knownKeys.lastDeletes.restart(this.#revision); // earlier deletes may have been missed
    return this.#revision;
  }

  async #read(request: RangeRequest): Promise<RangeResponse> {
    const answer = await this.#options.read({ ...request, revision: this.#revision });
    this.#cursor.check(answer.header);
    this.#revision ||= answer.header.revision;
    return answer;
  }

  /** Returns the revision up to which the server has proven the followed history; 0 if nothing is proven. */
  async #provenRevision(): Promise<number> {
    const { anchors } = this.#cursor.knownKeys;
    const [newest, ...others] = anchors.newestFirst;
    if (newest === undefined) return 0;
    const first = await this.#unchangedRevision(newest); // its revision is used for the other reads
    const revisions = [
      first,
      ...(await Promise.all(others.map((anchor) => this.#unchangedRevision(anchor)))),
    ];
    this.#areLatestProven = revisions.slice(0, anchors.latest.length).every((revision) => revision > 0);
    // Before the cursor: an anchor may be of `nextRevision`, of which only a part of the events was received.
    return Math.max(0, Math.min(Math.max(...revisions), this.#cursor.nextRevision - 1));
  }

  /** Returns the revision of an anchor that is unchanged; 0 if its key was written or deleted since. */
  async #unchangedRevision(anchor: Anchor): Promise<number> {
    const { kvs } = await this.#read(keyRange(anchor.key));
    const [kv] = kvs;
    if (isUnchanged(anchor, kv)) return anchor.modRevision;
    if (kv === undefined || kv.modRevision >= this.#cursor.knownBefore(anchor.key)) return 0;
    throw new DivergedError(`${anchor.key} has another value than the one that was put`);
  }

  /**
   * Reads the writes after the proven revision in the covered range, and compares the keys unless their number is a
   * proof. Returns false if there are too many writes to read.
   */
  async #update(proven: number, comparison: Comparison): Promise<boolean> {
    const cursor = this.#cursor;
    const { knownKeys, covered } = cursor;
    // If the proof includes the last write that the watch saw, it saw every write, so an equal number of keys proves
    // equal keys.
    const isCountEnough =
      proven === cursor.nextRevision - 1 && this.#areLatestProven && comparison === 'count';
    const delta = await this.#readDelta(proven);
    if (delta === undefined) return false;
    await this.#compare(delta.kvs, 'covered');
    if (isCountEnough && delta.count === knownKeys.confirmed) return true;
    const listed = new ListedRows();
    const keysOnly = comparison !== 'values';
    for await (const { kvs } of this.#pages(covered, { keysOnly })) {
      if (keysOnly) await this.#compareRevisions(kvs, listed);
      else await this.#compare(kvs, 'covered', listed);
    }
    await inSlices(knownKeys.dropMissing(listed, this.#revision), this.#options);
    return true;
  }

  /** Returns the writes after the proven revision; undefined if they are too many for `deltaPages`. */
  async #readDelta(proven: number): Promise<RangeResponse | undefined> {
    const { pageSize, limits } = this.#options;
    const limit = pageSize.keys * limits.deltaPages;
    try {
      const delta = await this.#read({ ...this.#cursor.covered, minModRevision: proven + 1, limit });
      return delta.more ? undefined : delta;
    } catch (error) {
      if (error instanceof KvstoreError && error.code === 'too-large') return undefined;
      throw error;
    }
  }

  /** Lists the remaining range, and deletes the known keys that are missing in it. */
  async #list(): Promise<void> {
    const cursor = this.#cursor;
    if (cursor.isEmpty) this.#options.onListing();
    for await (const { kvs, end } of this.#pages(cursor.unlisted)) {
      await this.#compare(kvs, 'unlisted');
      cursor.cover(end, this.#revision);
    }
    await inSlices(cursor.knownKeys.dropUnconfirmed(this.#revision), this.#options);
  }

  #pages(range: Cursor['unlisted'], { keysOnly = false } = {}): AsyncGenerator<KeyPage> {
    const { prefix, limits, clock } = this.#options;
    const read: Read = (request) => this.#read(request);
    // Keys fit into larger pages than values.
    const pageSize = keysOnly ? new PageSize(limits) : this.#options.pageSize;
    return listPages({ range, prefix, revision: this.#revision, keysOnly, read, pageSize, clock });
  }

  /** Compares the revisions of keys that must all be known. */
  async #compareRevisions(kvs: readonly KeyValue[], listed: ListedRows): Promise<void> {
    for await (const slice of this.#slices(kvs))
      for (const kv of slice)
        if (this.#cursor.knownKeys.markListed(kv, listed) !== kv.modRevision)
          throw new DivergedError(`${kv.key} has another revision than the one that was read`);
  }

  /** Compares read keys with the known ones, never far ahead of the reader. Adds confirmed keys to `listed`. */
  async #compare(kvs: readonly KeyValue[], part: 'covered' | 'unlisted', listed?: ListedRows): Promise<void> {
    for await (const slice of this.#slices(kvs))
      for (const kv of slice) this.#cursor.applyListed(kv, part, listed);
  }

  /** Admits the keys of a page in slices, and yields after each. */
  async *#slices(kvs: readonly KeyValue[]): AsyncGenerator<readonly KeyValue[], void, void> {
    const { limits, admit, yieldTurn } = this.#options;
    for (let at = 0; at < kvs.length; at += limits.sliceKeys) {
      await admit();
      yield kvs.slice(at, at + limits.sliceKeys);
      await yieldTurn();
    }
  }
}
