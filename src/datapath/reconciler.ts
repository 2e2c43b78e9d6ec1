import { DeliveryQueue } from '../base/delivery-queue.ts';
import type { CallbackGuard } from '../base/guard.ts';
import type { ListenerResult, Unsubscribe } from '../base/subscription.ts';
import { sameEntry } from '../ipcache/change.ts';
import type { IPCacheChange, IPCacheEntry } from '../ipcache/types.ts';
import type { AnnouncedService } from '../servicecache/announcement.ts';
import type { ServiceEvent } from '../servicecache/events.ts';
import { equalBackendMaps } from '../servicecache/offer-difference.ts';
import { equalServices } from '../servicecache/service.ts';
import { formatServiceID } from '../servicecache/service-id.ts';

/** Deletes in one call: as many as keep the array small. */
const SWEEP_CHUNK = 1024;

/** How the changes of one kind of entry are compared with what a device had. */
export interface ChangeKind<Entry, Change> {
  keyOf(change: Change): string;
  /** The change for a device that has `had`; undefined when it has that already. */
  since(had: Entry, change: Change): Change | undefined;
  deleteOf(key: string, had: Entry): Change;
}

/** A part of a device. */
export interface ReconciledListener<Change> {
  onChanges(changes: readonly Change[]): ListenerResult;
  onEnded?(): ListenerResult;
}

/**
 * Between an engine and a part of a device that had something before: tells the device of what differs only, and in the
 * end deletes what is left (SEMANTICS 9). Costs nothing any more once nothing is left.
 */
export class Reconciler<Entry, Change> {
  readonly #kind: ChangeKind<Entry, Change>;
  readonly #listener: ReconciledListener<Change>;
  readonly #guard: CallbackGuard;
  readonly #deliveries: DeliveryQueue;
  /** What the device had, as far as the engine has said nothing of it yet. */
  readonly #had: Map<string, Entry>;
  #unsubscribe: Unsubscribe | undefined;
  #ended = false;

  constructor(
    kind: ChangeKind<Entry, Change>,
    had: Iterable<readonly [string, Entry]>,
    listener: ReconciledListener<Change>,
    guard: CallbackGuard,
  ) {
    this.#kind = kind;
    this.#had = new Map(had);
    this.#listener = listener;
    this.#guard = guard;
    this.#deliveries = new DeliveryQueue(guard);
  }

  /** Whether the device is not told of anything any more. */
  get ended(): boolean {
    return this.#ended;
  }

  /** Subscribes it to the engine, whose replay may end it. */
  connect(subscribe: (self: this) => Unsubscribe): this {
    this.#unsubscribe = subscribe(this);
    return this;
  }

  end(): void {
    this.#ended = true;
    this.#had.clear();
    this.#unsubscribe?.();
  }

  /** Changes of the engine. What the device throws is thrown, and what it returns is returned, to the engine. */
  onChanges(changes: readonly Change[]): ListenerResult {
    const told = this.#had.size === 0 ? changes : changes.flatMap((change) => this.#since(change) ?? []);
    if (told.length === 0) return;
    if (!this.#deliveries.running) return this.#listener.onChanges(told);
    // What a callback of the sweep has written: in its turn.
    this.#deliveries.run(() => (this.#ended ? undefined : this.#listener.onChanges(told)));
  }

  /** The replay, or the sweep, has thrown. */
  onEnded(): ListenerResult {
    this.end();
    return this.#listener.onEnded?.();
  }

  /** Deletes what the engine has said nothing of. A fault ends it, as one in the replay does. */
  sweep(): void {
    this.#deliveries.hold(() => {
      while (this.#had.size > 0) {
        const deletes = this.#takeDeletes();
        if (this.#guard.call(() => this.#listener.onChanges(deletes)) || this.#ended) continue;
        this.#guard.call(() => this.onEnded());
      }
    });
  }

  #takeDeletes(): readonly Change[] {
    const deletes: Change[] = [];
    for (const [key, had] of this.#had) {
      this.#had.delete(key);
      if (deletes.push(this.#kind.deleteOf(key, had)) === SWEEP_CHUNK) break;
    }
    return deletes;
  }

  #since(change: Change): Change | undefined {
    const key = this.#kind.keyOf(change);
    const had = this.#had.get(key);
    if (had === undefined) return change;
    this.#had.delete(key);
    return this.#kind.since(had, change);
  }
}

// An engine says nothing of an entry before it has said what it is: the first change of one is never a delete.

export const PREFIXES: ChangeKind<IPCacheEntry, IPCacheChange> = {
  keyOf: ({ prefix }) => prefix,
  since: (old, change) => (sameEntry(old, change.new) ? undefined : { ...change, old }),
  deleteOf: (prefix, old) => ({ kind: 'delete', prefix, old, new: undefined }),
};

export const SERVICES: ChangeKind<AnnouncedService, ServiceEvent> = {
  keyOf: ({ id }) => formatServiceID(id),
  since: (had, event) => {
    const oldService = equalServices(had.service, event.service) ? event.service : had.service;
    const isSame = equalBackendMaps(had.endpoints.backends, event.endpoints.backends);
    if (isSame && oldService === event.service) return undefined;
    return { ...event, oldService, oldEndpoints: isSame ? event.endpoints : had.endpoints };
  },
  deleteOf: (_key, { service, endpoints }) => ({
    ...{ action: 'delete', id: service.id, service, endpoints },
    ...{ oldService: service, oldEndpoints: endpoints },
  }),
};
