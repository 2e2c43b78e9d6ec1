import { CoalescingReader } from '../base/coalescing-reader.ts';
import { mergeChanges, sameEntry } from './change.ts';
import type { IPCacheSnapshot } from './snapshot.ts';
import type { IPCacheChange } from './types.ts';

/** A batch of `IPCache.changes`. Both kinds end at `revision`; resume from there. */
export type ChangeBatch =
  | {
      /** One change for each prefix that differs from the last state that the reader received. */
      readonly kind: 'changes';
      readonly revision: number;
      readonly changes: readonly IPCacheChange[];
    }
  | {
      /**
       * A snapshot that replaces all state of the reader: its first batch, or the batch after it fell too far behind.
       */
      readonly kind: 'resync';
      readonly revision: number;
      readonly snapshot: IPCacheSnapshot;
    };

/** Options of {@link ChangeReader}, and its access to the cache. */
export interface ChangeReaderOptions {
  revision(): number;
  snapshot(): IPCacheSnapshot;
  /** Maximum number of pending prefixes. */
  readonly limit: number;
  /** The changes that the reader missed; if undefined, it starts with a resync. */
  readonly missed: readonly IPCacheChange[] | undefined;
  /** Ends the reader. */
  readonly signal: AbortSignal | undefined;
  /** Called when the reader has ended. */
  readonly onEnd: () => void;
}

/**
 * Collects changes for one consumer. Each prefix has one pending net change, which is dropped if it returns to the
 * state that the consumer knows (I3). If more than `limit` prefixes are pending, the consumer receives a resync instead
 * (I11).
 */
export class ChangeReader {
  /** The iterator that the consumer reads. */
  readonly batches: CoalescingReader<IPCacheChange, ChangeBatch>;
  readonly #options: ChangeReaderOptions;
  #resync: boolean;

  constructor(options: ChangeReaderOptions) {
    const { missed, signal, onEnd } = options;
    this.#options = options;
    this.#resync = missed === undefined;
    this.batches = new CoalescingReader({ shift: () => this.#shift(), signal, onEnd });
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

  #shift(): ChangeBatch | undefined {
    if (this.#resync) {
      const snapshot = this.#options.snapshot(); // throws in a batch; the next call then returns the resync
      this.#resync = false;
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
