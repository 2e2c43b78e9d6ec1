import { DeliveryQueue } from '../base/delivery-queue.ts';
import type { CallbackGuard } from '../base/guard.ts';
import { ListenerSet } from '../base/listener-set.ts';
import type { Unsubscribe } from '../base/subscription.ts';

import { type ChangeBatch, ChangeReader } from './change-reader.ts';
import { RecentChanges } from './recent-changes.ts';
import type { IPCacheSnapshot } from './snapshot.ts';
import type { IPCacheChange, IPCacheListener, OwnerChange, OwnerListener } from './types.ts';

/** Changes kept for readers that resume by revision: some seconds of a busy mesh, about 3 MB when it is full. */
const RECENT_CHANGES = 16_384;

/** How many prefixes a slow reader may be behind before it has to resync: about 10 MB. */
const PENDING_PREFIXES = 65_536;

/** How a reader of changes begins and ends. */
export interface ReadOptions {
  /** The revision up to which the reader is informed. */
  readonly from?: number | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** Gives changes their revision, and delivers them to listeners and readers. */
export class ChangeHub {
  readonly #deliveries: DeliveryQueue;
  readonly #listeners: ListenerSet<IPCacheListener>;
  readonly #ownerListeners: ListenerSet<OwnerListener>;
  readonly #namedPortsListeners: ListenerSet<() => void>;
  readonly #readers = new Set<ChangeReader>();
  /** Kept from the first reader on. */
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

  /** Listeners and readers of changes. */
  get listeners(): number {
    return this.#listeners.size + this.#readers.size;
  }

  /** Whether changes go to anybody. */
  get isHeard(): boolean {
    return this.listeners > 0 || this.#recent !== undefined;
  }

  /** Gives a change for which there is no listener its revision. */
  passOver(): void {
    this.#revision++;
  }

  /** Call before visible entries change: a replay under way shows those of its beginning. */
  beforeChange(): void {
    this.#listeners.beforeChange();
  }

  /** Delivers what one write or batch has changed. `changes` get the next revision. */
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
    // Held, so that what a listener of the first causes comes after the last.
    this.#deliveries.hold(() => {
      if (changes.length > 0) this.#listeners.notify(deliverChanges, changes);
      if (ownerChanges.length > 0) this.#ownerListeners.notify(deliverOwnerChanges, ownerChanges);
      if (namedPortsChanged) this.#namedPortsListeners.notify(deliverNamedPortsChange, undefined);
    });
  }

  /** The listener receives what `visible` gives when its turn comes, in parts, then `onSynced`, then every change. */
  subscribe(listener: IPCacheListener, visible: () => Iterable<readonly IPCacheChange[]>): Unsubscribe {
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

  /** A reader that goes on where it left off, if what it missed is still there. */
  read(
    { from, signal }: ReadOptions,
    snapshot: () => IPCacheSnapshot,
  ): AsyncIterableIterator<ChangeBatch, undefined> {
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

  /** Readers collect at once, so that what they have is always that of the revision. */
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
