import type { Clock } from '../../base/clock.ts';
import { equalBytes } from '../bytes.ts';
import { KvstoreError } from '../errors.ts';
import { type KeyRange, keyRange, prefixRange } from '../key-range.ts';
import type { KeyValue, RangeRequest, RangeResponse } from '../transport.ts';
import type { Anchor } from './anchors.ts';
import { type Cursor, DivergedError } from './cursor.ts';
import type { KnownKeys } from './known-keys.ts';
import type { PageSize } from './page-size.ts';
import { listPages, type Page, type Read } from './paged-list.ts';
import type { WatchLimits } from './watch-limits.ts';

/** What bringing a watch up to date takes. */
export interface SyncOptions {
  readonly cursor: Cursor;
  readonly prefix: string;
  /** A read from the server of an open stream: everything that is read through it is of one history. */
  readonly read: Read;
  readonly size: PageSize;
  readonly limits: WatchLimits;
  readonly clock: Pick<Clock, 'now'>;
  /** Lets the reader take what there is, and others run. Throws when the watch has ended. */
  turn(): Promise<void>;
  /** A listing of the whole prefix begins. */
  onListing(): void;
}

/**
 * What is compared of the keys that are known: how many they are, as far as that proves enough; their revisions; or their
 * values too, which is to deliver each of them again.
 */
export type Comparison = 'count' | 'revisions' | 'values';

/** The stream cannot go on from the cursor: what was written since has to be read. */
export class CannotResumeError extends KvstoreError {
  constructor(why: string) {
    super('compacted', why);
  }
}

/** Many small steps, a slice in a turn. */
export async function inSlices(
  steps: Iterable<void>,
  { limits, turn }: Pick<SyncOptions, 'limits' | 'turn'>,
): Promise<void> {
  let taken = 0;
  for (const _step of steps) if (++taken % limits.sliceKeys === 0) await turn();
}

/**
 * Proves, by quorum reads **as of the cursor**, that the server has the history that was followed up to the last event:
 * after a restore from a backup nothing but its history tells a store from the one before, and once it has grown past
 * the cursor not even its revisions do. Throws {@link DivergedError} if it has another one, and
 * {@link CannotResumeError} if that cannot be proven any more or the stream would be too far behind.
 */
export async function proveHistory({ cursor, prefix, read, limits }: SyncOptions): Promise<void> {
  const last = cursor.next - 1;
  const { anchors } = cursor.known;
  const at = async (range: KeyRange, minModRevision = 0): Promise<RangeResponse> => {
    const answer = await read({ ...range, minModRevision, limit: 1, revision: last });
    cursor.check(answer.header);
    if (answer.header.revision - cursor.next > limits.backlogRevisions)
      throw new CannotResumeError('too far behind');
    return answer;
  };
  const prove = async (anchor: Anchor): Promise<void> => {
    const { kvs } = await at(keyRange(anchor.key));
    if (!isSame(kvs[0], anchor)) throw new DivergedError(`${anchor.key} is not as it was put`);
  };
  const proofs = anchors.latest.map(prove);
  if (anchors.newest < last) proofs.push(proveDeletes(cursor.known, prefixRange(prefix), at));
  await Promise.all(proofs);
}

/**
 * A put is recognised by its value. Deletes look alike in every history, so what they leave is compared: since the latest
 * put that still stands the server has put nothing, it has as many keys, and none of those that were deleted.
 */
async function proveDeletes(
  known: KnownKeys,
  range: KeyRange,
  at: (range: KeyRange, minModRevision?: number) => Promise<RangeResponse>,
): Promise<void> {
  const { newest } = known.anchors;
  const deleted = known.lastDeletes.after(newest);
  if (deleted === undefined) throw new CannotResumeError('too much was deleted');
  const gone = deleted.filter((key) => known.revisionOf(key) === undefined);
  const [later, ...shown] = await Promise.all([
    at(range, newest + 1),
    ...gone.map((key) => at(keyRange(key))),
  ]);
  if (later.kvs.length > 0 || later.count !== known.size || shown.some(({ kvs }) => kvs.length > 0))
    throw new CannotResumeError('the keys have to be compared');
}

function isSame(kv: KeyValue | undefined, { modRevision, value }: Anchor): boolean {
  return kv?.modRevision === modRevision && equalBytes(kv.value, value);
}

/**
 * Brings what is known up to date with the store as it is now. Resolves to the revision as of which everything is known.
 *
 * What is shown as it was put proves the history up to there (`trusted`); up to there equal mod revisions stand for equal
 * values. Then only what was written later is read, and the keys are compared, unless there are provably as many as
 * before. What cannot be proven equal is listed anew, with values.
 */
export function sync(options: SyncOptions, comparison: Comparison): Promise<number> {
  return new Sync(options).run(comparison);
}

class Sync {
  readonly #options: SyncOptions;
  readonly #cursor: Cursor;
  /** Everything is read as of the revision of the first answer. */
  #revision = 0;
  /** Whether each of the puts that are compared before a stream goes on is shown: the last one alone proves less. */
  #showsLatest = false;

  constructor(options: SyncOptions) {
    this.#options = options;
    this.#cursor = options.cursor;
  }

  async run(comparison: Comparison): Promise<number> {
    const cursor = this.#cursor;
    const trusted = await this.#trusted();
    const isUpToDate = !cursor.isEmpty && trusted > 0 && (await this.#update(trusted, comparison));
    if (isUpToDate) cursor.cover(cursor.covered.end, this.#revision);
    else if (!cursor.isEmpty) await inSlices(cursor.beginListing(), this.#options);
    if (!cursor.isComplete) await this.#list(comparison === 'values' ? 0 : trusted);
    cursor.known.lastDeletes.restart(this.#revision); // what was deleted unseen before is not known
    return this.#revision;
  }

  async #read(request: RangeRequest): Promise<RangeResponse> {
    const answer = await this.#options.read({ ...request, revision: this.#revision });
    this.#cursor.check(answer.header);
    this.#revision ||= answer.header.revision;
    return answer;
  }

  /** The revision up to which the server provably has the history that was followed; 0 when nothing is proven. */
  async #trusted(): Promise<number> {
    const { anchors } = this.#cursor.known;
    const [newest, ...others] = anchors.newestFirst;
    if (newest === undefined) return 0;
    const first = await this.#shown(newest); // as of whose revision the others are read
    const shown = [first, ...(await Promise.all(others.map((anchor) => this.#shown(anchor))))];
    this.#showsLatest = shown.slice(0, anchors.latest.length).every((revision) => revision > 0);
    return Math.max(...shown);
  }

  /** The revision of a key that is as it was put; 0 for one that was written since. */
  async #shown(anchor: Anchor): Promise<number> {
    const { kvs } = await this.#read(keyRange(anchor.key));
    const [kv] = kvs;
    if (isSame(kv, anchor)) return anchor.modRevision;
    if (kv === undefined || kv.modRevision >= this.#cursor.knownBefore(anchor.key)) return 0;
    throw new DivergedError(`${anchor.key} is not as it was put`);
  }

  /** Reads what was written later than `trusted` in the covered range. False if that is too much, or not enough. */
  async #update(trusted: number, comparison: Comparison): Promise<boolean> {
    const cursor = this.#cursor;
    const { known, covered } = cursor;
    // Then nothing in the prefix can have been written in between that was not seen: the keys are those that were known.
    const isExact = trusted === cursor.next - 1 && this.#showsLatest && comparison === 'count';
    const delta = await this.#delta(trusted);
    if (delta === undefined) return false;
    await this.#takeIn(delta.kvs, trusted);
    if (isExact && delta.count === known.confirmed) return true;
    const seen = new Set<string>();
    const keysOnly = comparison !== 'values';
    for await (const { kvs } of this.#pages(covered, { keysOnly })) {
      for (const kv of kvs) {
        if (known.revisionOf(kv.key) !== kv.modRevision)
          throw new DivergedError(`${kv.key} is not as it was seen`);
        seen.add(kv.key);
      }
      if (keysOnly) await this.#options.turn();
      else await this.#takeIn(kvs, 0);
    }
    await this.#drop(known.confirmedKeys(), seen);
    return true;
  }

  async #delta(trusted: number): Promise<RangeResponse | undefined> {
    const { size, limits } = this.#options;
    const limit = size.keys * limits.deltaPages;
    try {
      const delta = await this.#read({ ...this.#cursor.covered, minModRevision: trusted + 1, limit });
      return delta.more ? undefined : delta;
    } catch (error) {
      if (error instanceof KvstoreError && error.code === 'too-large') return undefined;
      throw error;
    }
  }

  /** Lists what is not covered, and drops what it does not show. */
  async #list(trusted: number): Promise<void> {
    const cursor = this.#cursor;
    if (cursor.isEmpty) this.#options.onListing();
    for await (const { kvs, upTo } of this.#pages(cursor.rest)) {
      await this.#takeIn(kvs, trusted);
      cursor.cover(upTo, this.#revision);
    }
    await this.#drop(cursor.known.unconfirmedKeys());
  }

  #pages(range: Cursor['rest'], { keysOnly = false } = {}): AsyncGenerator<Page> {
    const { prefix, size, clock } = this.#options;
    const read: Read = (request) => this.#read(request);
    return listPages({ range, prefix, revision: this.#revision, keysOnly, read, size, clock });
  }

  /** Keys that were read, a slice in a turn and never far ahead of the reader. */
  async #takeIn(kvs: readonly KeyValue[], trusted: number): Promise<void> {
    const { limits, turn } = this.#options;
    for (let at = 0; at < kvs.length; at += limits.sliceKeys) {
      for (const kv of kvs.slice(at, at + limits.sliceKeys)) {
        this.#cursor.checkKey(kv);
        // What is known of it may be of another history than the one that is trusted: that of before a divergence.
        this.#cursor.known.list(kv, Math.min(trusted, this.#cursor.knownBefore(kv.key) - 1));
      }
      await turn();
    }
  }

  /** What was not seen is gone. */
  async #drop(keys: Iterable<string>, seen?: ReadonlySet<string>): Promise<void> {
    const { known } = this.#cursor;
    const revision = this.#revision;
    function* drops(): Generator<void> {
      for (const key of keys) {
        if (seen?.has(key) !== true) known.drop(key, revision);
        yield;
      }
    }
    await inSlices(drops(), this.#options);
  }
}
