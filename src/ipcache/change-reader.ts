import { CoalescingReader } from '../base/coalescing-reader.ts';
import { mergeChanges, sameEntry } from './change.ts';
import type { IPCacheSnapshot } from './snapshot.ts';
import type { IPCacheChange } from './types.ts';

/** What a reader of `IPCache.changes` gets. Both end at `revision`: resume from there. */
export type ChangeBatch =
  | {
      /** One change for each prefix that differs from what the reader was last given. */
      readonly kind: 'changes';
      readonly revision: number;
      readonly changes: readonly IPCacheChange[];
    }
  | {
      /** Begin anew with this state: it is the reader's first, or it fell too far behind. */
      readonly kind: 'resync';
      readonly revision: number;
      readonly snapshot: IPCacheSnapshot;
    };

/** What a reader needs of the cache, and how it is made. */
export interface ChangeReaderOptions {
  revision(): number;
  snapshot(): IPCacheSnapshot;
  /** How many prefixes may wait to be read. */
  readonly limit: number;
  /** What the reader has not been given yet; undefined begins with a resync. */
  readonly missed: readonly IPCacheChange[] | undefined;
  /** Ends the reader. */
  readonly signal: AbortSignal | undefined;
  /** The reader has ended. */
  readonly onEnd: () => void;
}

/**
 * Collects changes for one consumer: of each prefix only the net change waits, and one that is back to what the
 * consumer knows is dropped (I3). When more than `limit` prefixes wait, the consumer gets a resync instead (I11).
 */
export class ChangeReader {
  /** What the consumer reads. */
  readonly batches: CoalescingReader<IPCacheChange, ChangeBatch>;
  readonly #options: ChangeReaderOptions;
  #resync: boolean;

  constructor(options: ChangeReaderOptions) {
    const { missed, signal, onEnd } = options;
    this.#options = options;
    this.#resync = missed === undefined;
    this.batches = new CoalescingReader({ take: () => this.#take(), signal, onEnd });
    if (missed !== undefined) this.add(missed);
  }

  add(changes: readonly IPCacheChange[]): void {
    if (!this.#resync) {
      for (const change of changes) this.#merge(change);
      if (this.batches.waiting.size > this.#options.limit) {
        this.batches.waiting.clear();
        this.#resync = true;
      }
    }
    this.batches.wake();
  }

  #take(): ChangeBatch | undefined {
    if (this.#resync) {
      this.#resync = false;
      const snapshot = this.#options.snapshot();
      return { kind: 'resync', revision: snapshot.revision, snapshot };
    }
    const { waiting } = this.batches;
    if (waiting.size === 0) return undefined;
    const changes = [...waiting.values()];
    waiting.clear();
    return { kind: 'changes', revision: this.#options.revision(), changes };
  }

  #merge(change: IPCacheChange): void {
    const { waiting } = this.batches;
    const { prefix } = change;
    const earlier = waiting.get(prefix);
    const merged = earlier === undefined ? change : mergeChanges(earlier, change);
    if (sameEntry(merged.old, merged.new)) waiting.delete(prefix);
    else waiting.set(prefix, merged);
  }
}
