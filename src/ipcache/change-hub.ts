import { assert } from '../base/assert.ts';
import { DeliveryQueue } from '../base/delivery-queue.ts';
import { ListenerSet } from '../base/listener-set.ts';
import type { Unsubscribe } from '../base/subscription.ts';
import { ChangeReader } from './change-reader.ts';
import { RecentChanges } from './recent-changes.ts';
import type { IPCacheSnapshot } from './snapshot.ts';
import type { IPCacheChange, IPCacheListener, OwnerChange, OwnerListener } from './types.ts';

/** Changes kept for readers that resume by revision: some seconds of a busy mesh, about 3 MB when it is full. */
const RECENT_CHANGES = 16_384;

/** How many prefixes a slow reader may be behind before it has to begin anew: about 10 MB. */
const PENDING_PREFIXES = 65_536;

/** How a reader of changes begins and ends. */
export interface ReadOptions {
  /** The revision up to which the reader is informed. */
  readonly from?: number | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** Who is told of changes, and in which order: everybody everything, one write after the other (I7). */
export class ChangeHub {
  readonly #listeners: ListenerSet<IPCacheListener>;
  readonly #ownerListeners: ListenerSet<OwnerListener>;
  readonly #namedPortsListeners: ListenerSet<{ changed(): void }>;
  readonly #deliveries = new DeliveryQueue();
  /** Kept from the first reader on. */
  #recent: RecentChanges | undefined;
  #replaying = false;
  #faults = 0;
  #revision = 0;

  constructor(onListenerFault: ((error: unknown) => void) | undefined) {
    const onFault = (error: unknown): void => {
      this.#faults++;
      onListenerFault?.(error);
    };
    this.#listeners = new ListenerSet(onFault);
    this.#ownerListeners = new ListenerSet(onFault);
    this.#namedPortsListeners = new ListenerSet(onFault);
  }

  get revision(): number {
    return this.#revision;
  }

  /** Listeners and readers of changes. */
  get listeners(): number {
    return this.#listeners.size;
  }

  /** Calls that threw. */
  get faults(): number {
    return this.#faults;
  }

  /** Throws while entries are being replayed: what a listener writes then would be lost or doubled. */
  assertNotReplaying(): void {
    assert(!this.#replaying, 'a listener must not write while entries are being replayed to it');
  }

  /** Gives changes of one write or batch their revision and tells them. */
  tellChanges(changes: readonly IPCacheChange[]): void {
    this.#revision++;
    this.#recent?.add(this.#revision, changes);
    this.#deliveries.deliver(this.#listeners, tellChanges, changes);
  }

  tellOwnerChanges(changes: readonly OwnerChange[]): void {
    this.#deliveries.deliver(this.#ownerListeners, tellOwnerChanges, changes);
  }

  tellNamedPortsChanged(): void {
    this.#deliveries.deliver(this.#namedPortsListeners, tellChanged, undefined);
  }

  /** Gives a listener what there is, in parts, then `onSynced`, then every change. */
  subscribe(listener: IPCacheListener, entries: Iterable<readonly IPCacheChange[]>): Unsubscribe {
    this.#replaying = true;
    try {
      this.#listeners.guard(listener, () => {
        for (const changes of entries) listener.onChanges(changes);
        listener.onSynced?.();
      });
    } finally {
      this.#replaying = false;
    }
    return this.#listeners.add(listener);
  }

  subscribeOwners(listener: OwnerListener): Unsubscribe {
    return this.#ownerListeners.add(listener);
  }

  onNamedPortsChange(listener: () => void): Unsubscribe {
    return this.#namedPortsListeners.add({ changed: listener });
  }

  /** A reader that begins where it left off, as long as what it missed is still there. */
  read({ from, signal }: ReadOptions, snapshot: () => IPCacheSnapshot): ChangeReader {
    this.#recent ??= new RecentChanges(RECENT_CHANGES, this.#revision);
    const missed = from !== undefined && from <= this.#revision ? this.#recent.since(from) : undefined;
    const origin = { revision: () => this.#revision, snapshot };
    const reader = new ChangeReader(origin, { limit: PENDING_PREFIXES, missed, signal });
    reader.onEnd(this.#listeners.add(reader));
    return reader;
  }
}

function tellChanges(listener: IPCacheListener, changes: readonly IPCacheChange[]): void {
  listener.onChanges(changes);
}

function tellOwnerChanges(listener: OwnerListener, changes: readonly OwnerChange[]): void {
  listener.onOwnerChanges(changes);
}

function tellChanged(listener: { changed(): void }): void {
  listener.changed();
}
