import { DeliveryQueue } from '../base/delivery-queue.ts';
import type { CallbackGuard } from '../base/guard.ts';
import { ListenerSet } from '../base/listener-set.ts';
import type { Unsubscribe } from '../base/subscription.ts';
import { type ChangeBatch, ChangeReader } from './change-reader.ts';
import { RecentChanges } from './recent-changes.ts';
import type { IPCacheSnapshot } from './snapshot.ts';
import type { IPCacheChange, IPCacheListener, OwnerChange, OwnerListener } from './types.ts';

/** Number of changes kept for readers that resume by revision: a few seconds of a busy mesh, at most about 3 MB. */
const RECENT_CHANGES = 16_384;

/** Maximum number of pending prefixes of a slow reader before it has to resync: about 10 MB. */
const PENDING_PREFIXES = 65_536;

/** Options of `IPCache.changes`. */
export interface ReadOptions {
  /** The last revision that the reader knows. */
  readonly from?: number | undefined;
  /** Ends the iteration when it aborts. */
  readonly signal?: AbortSignal | undefined;
}

/** Assigns revisions to changes and delivers them to listeners and readers. */
export class ChangeHub {
  readonly #deliveries: DeliveryQueue;
  readonly #listeners: ListenerSet<IPCacheListener>;
  readonly #ownerListeners: ListenerSet<OwnerListener>;
  readonly #namedPortsListeners: ListenerSet<() => void>;
  readonly #readers = new Set<ChangeReader>();
  /** Undefined before the first reader. Kept when all readers have ended, so that they can resume. */
  #recent: RecentChanges | undefined;
  #revision = 0;

  constructor(guard: CallbackGuard) {
    this.#deliveries = new DeliveryQueue(guard);
    this.#listeners = new ListenerSet(this.#deliveries);
    this.#ownerListeners = new ListenerSet(this.#deliveries);
    this.#namedPortsListeners = new ListenerSet(this.#deliveries);
  }

  get revision(): number {
    return this.#revision;
  }

  get listeners(): number {
    return this.#listeners.size + this.#readers.size;
  }

  /** True if changes have a receiver, or are kept for readers that resume. */
  get hasAudience(): boolean {
    return this.listeners > 0 || this.#recent !== undefined;
  }

  /** Increases the revision for a change that has no receivers. */
  skipRevision(): void {
    this.#revision++;
  }

  /** Must be called before visible entries change, so that a running replay delivers the state at its start. */
  beforeChange(): void {
    this.#listeners.beforeChange();
  }

  /** Delivers the changes of one write or batch. If `changes` is not empty, they receive the next revision. */
  publish(
    changes: readonly IPCacheChange[],
    ownerChanges: readonly OwnerChange[],
    namedPortsChanged: boolean,
  ): void {
    if (changes.length > 0) this.#record(changes);
    if (ownerChanges.length === 0 && !namedPortsChanged) {
      if (changes.length > 0) this.#listeners.notify(deliverChanges, changes);
      return;
    }
    // Deferred, so that writes of these listeners are delivered after all three kinds of changes.
    this.#deliveries.deliverAfter(() => {
      if (changes.length > 0) this.#listeners.notify(deliverChanges, changes);
      if (ownerChanges.length > 0) this.#ownerListeners.notify(deliverOwnerChanges, ownerChanges);
      if (namedPortsChanged) this.#namedPortsListeners.notify(deliverNamedPortsChange, undefined);
    });
  }

  /** Subscribes a listener to every change. If `visible` is defined, its chunks and `onSynced` come first. */
  subscribe(listener: IPCacheListener, visible?: () => Iterable<readonly IPCacheChange[]>): Unsubscribe {
    if (visible === undefined) return this.#listeners.subscribe(listener);
    return this.#listeners.subscribe(listener, {
      *steps() {
        for (const changes of visible()) yield (one) => one.onChanges(changes);
        yield (one) => one.onSynced?.();
      },
      ended: (one) => one.onEnded?.(),
    });
  }

  subscribeOwners(listener: OwnerListener): Unsubscribe {
    return this.#ownerListeners.subscribe(listener);
  }

  onNamedPortsChange(listener: () => void): Unsubscribe {
    return this.#namedPortsListeners.subscribe(listener);
  }

  /** Returns a reader that begins after `from` if the changes since then are kept, else with a resync. */
  read({ from, signal }: ReadOptions, snapshot: () => IPCacheSnapshot): AsyncIterableIterator<ChangeBatch> {
    this.#recent ??= new RecentChanges(RECENT_CHANGES, this.#revision);
    const missed = from !== undefined && from <= this.#revision ? this.#recent.since(from) : undefined;
    const reader = new ChangeReader({
      revision: () => this.#revision,
      snapshot,
      limit: PENDING_PREFIXES,
      missed,
      signal,
      onEnd: () => this.#readers.delete(reader),
    });
    if (!reader.batches.closed) this.#readers.add(reader);
    return reader.batches;
  }

  /** Adds changes to all readers immediately, so that their content always matches the revision. */
  #record(changes: readonly IPCacheChange[]): void {
    this.#revision++;
    this.#recent?.add(this.#revision, changes);
    if (this.#readers.size > 0) for (const reader of this.#readers) reader.add(changes);
  }
}

function deliverChanges(listener: IPCacheListener, changes: readonly IPCacheChange[]): unknown {
  return listener.onChanges(changes);
}

function deliverOwnerChanges(listener: OwnerListener, changes: readonly OwnerChange[]): unknown {
  return listener.onOwnerChanges(changes);
}

function deliverNamedPortsChange(listener: () => void): unknown {
  return listener();
}
