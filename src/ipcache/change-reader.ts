import { mergeChanges, sameEntry } from './change.ts';
import type { IPCacheSnapshot } from './snapshot.ts';
import type { IPCacheChange, IPCacheListener } from './types.ts';

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

/** What a reader needs of the cache. */
export interface ChangeOrigin {
  revision(): number;
  snapshot(): IPCacheSnapshot;
}

/** How a reader is made. */
export interface ChangeReaderOptions {
  /** How many prefixes may wait to be read. */
  readonly limit: number;
  /** What the reader has not been given yet; undefined begins with a resync. */
  readonly missed: readonly IPCacheChange[] | undefined;
  /** Ends the reader. */
  readonly signal: AbortSignal | undefined;
}

/**
 * Collects changes for a reader that takes them when it likes: the latest state of a prefix wins, and one that is
 * back to what the reader knows is not told at all (I3). When more than `limit` prefixes wait, they are dropped and
 * the reader gets a resync instead (I11). `return` and the signal end it, also while `next` waits.
 */
export class ChangeReader implements IPCacheListener, AsyncIterableIterator<ChangeBatch, undefined> {
  readonly #origin: ChangeOrigin;
  readonly #limit: number;
  readonly #signal: AbortSignal | undefined;
  readonly #pending = new Map<string, IPCacheChange>();
  readonly #end = (): void => this.#close();
  #waiters: (() => void)[] = [];
  #release: (() => void) | undefined;
  #resync: boolean;
  #done = false;

  constructor(origin: ChangeOrigin, { limit, missed, signal }: ChangeReaderOptions) {
    this.#origin = origin;
    this.#limit = limit;
    this.#signal = signal;
    this.#resync = missed === undefined;
    if (missed !== undefined) this.onChanges(missed);
    signal?.addEventListener('abort', this.#end);
    if (signal?.aborted === true) this.#close();
  }

  /** What to do when the reader ends; done at once if it has ended already. */
  onEnd(release: () => void): void {
    this.#release = release;
    if (this.#done) release();
  }

  onChanges(changes: readonly IPCacheChange[]): void {
    if (!this.#resync) {
      for (const change of changes) this.#merge(change);
      if (this.#pending.size > this.#limit) {
        this.#pending.clear();
        this.#resync = true;
      }
    }
    this.#wake();
  }

  async next(): Promise<IteratorResult<ChangeBatch, undefined>> {
    while (!this.#done) {
      const value = this.#take();
      if (value !== undefined) return { done: false, value };
      await new Promise<void>((resolve) => this.#waiters.push(resolve));
    }
    return { done: true, value: undefined };
  }

  return(): Promise<IteratorResult<ChangeBatch, undefined>> {
    this.#close();
    return Promise.resolve({ done: true, value: undefined });
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  #take(): ChangeBatch | undefined {
    if (this.#resync) {
      this.#resync = false;
      const snapshot = this.#origin.snapshot();
      return { kind: 'resync', revision: snapshot.revision, snapshot };
    }
    if (this.#pending.size === 0) return undefined;
    const changes = [...this.#pending.values()];
    this.#pending.clear();
    return { kind: 'changes', revision: this.#origin.revision(), changes };
  }

  #merge(change: IPCacheChange): void {
    const { prefix } = change;
    const earlier = this.#pending.get(prefix);
    const merged = earlier === undefined ? change : mergeChanges(earlier, change);
    if (sameEntry(merged.old, merged.new)) this.#pending.delete(prefix);
    else this.#pending.set(prefix, merged);
  }

  #close(): void {
    if (this.#done) return;
    this.#done = true;
    this.#signal?.removeEventListener('abort', this.#end);
    this.#pending.clear();
    this.#release?.();
    this.#wake();
  }

  #wake(): void {
    const waiters = this.#waiters;
    this.#waiters = [];
    for (const wake of waiters) wake();
  }
}
