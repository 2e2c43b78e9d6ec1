import { DeliveryQueue } from '../base/delivery-queue.ts';
import type { CallbackGuard } from '../base/guard.ts';
import type { ListenerResult, Unsubscribe } from '../base/subscription.ts';
import type { TurnGate } from '../base/turn-gate.ts';
import { sameEntry } from '../ipcache/change.ts';
import type { IPCacheChange, IPCacheEntry } from '../ipcache/types.ts';
import type { AnnouncedService } from '../servicecache/announcement.ts';
import type { ServiceEvent } from '../servicecache/events.ts';
import { equalBackendMaps } from '../servicecache/offer-difference.ts';
import { equalServices } from '../servicecache/service.ts';
import { formatServiceID } from '../servicecache/service-id.ts';

/** Maximum number of deletes in one call and one step. */
const SWEEP_CHUNK = 1024;

/** Compares changes of one kind of entry with the earlier content of a datapath. */
export interface ChangeComparer<Entry, Change> {
  keyOf(change: Change): string;
  /** Returns the change for a datapath with `previous`; undefined if the datapath is up to date. */
  since(previous: Entry, change: Change): Change | undefined;
  deleteOf(key: string, previous: Entry): Change;
}

export interface ReconciledListener<Change> {
  onChanges(changes: readonly Change[]): ListenerResult;
  onEnded?(): ListenerResult;
}

/**
 * Connects an engine to a part of a datapath with earlier content: delivers only differences, and finally deletes the
 * entries that the engine has not reported (SEMANTICS 9). Costs nothing when no earlier content is left.
 */
export class Reconciler<Entry, Change> {
  readonly #comparer: ChangeComparer<Entry, Change>;
  readonly #listener: ReconciledListener<Change>;
  readonly #guard: CallbackGuard;
  readonly #deliveries: DeliveryQueue;
  /** Earlier content of the datapath, not reported by the engine yet. */
  readonly #previous: Map<string, Entry>;
  #unsubscribe: Unsubscribe | undefined;
  #ended = false;

  constructor(
    comparer: ChangeComparer<Entry, Change>,
    previous: Iterable<readonly [string, Entry]>,
    listener: ReconciledListener<Change>,
    guard: CallbackGuard,
  ) {
    this.#comparer = comparer;
    this.#previous = new Map(previous);
    this.#listener = listener;
    this.#guard = guard;
    this.#deliveries = new DeliveryQueue(guard);
  }

  /** True if the connection has ended: the datapath receives no more changes. */
  get ended(): boolean {
    return this.#ended;
  }

  /** Subscribes to the engine. Its replay may end the reconciler. */
  connect(subscribe: (self: this) => Unsubscribe): this {
    this.#unsubscribe = subscribe(this);
    return this;
  }

  end(): void {
    this.#ended = true;
    this.#previous.clear();
    this.#unsubscribe?.();
  }

  /** Delivers changes of the engine. Outside the sweep, results and exceptions of the datapath reach the engine. */
  onChanges(changes: readonly Change[]): ListenerResult {
    const relevant =
      this.#previous.size === 0 ? changes : changes.flatMap((change) => this.#since(change) ?? []);
    if (relevant.length === 0) return;
    if (!this.#deliveries.running) return this.#listener.onChanges(relevant);
    // A callback caused this change during the sweep, so it is delivered after the current call.
    this.#deliveries.run(() => (this.#ended ? undefined : this.#listener.onChanges(relevant)));
  }

  /** Ends the reconciler because the replay or the sweep has thrown. */
  onEnded(): ListenerResult {
    this.end();
    return this.#listener.onEnded?.();
  }

  /**
   * Deletes the entries that the replay has not reported, in steps of {@link SWEEP_CHUNK}. An entry that the engine
   * reports between two steps is not deleted. An exception ends the reconciler, as in the replay.
   */
  async sweep(gate: TurnGate): Promise<void> {
    await gate.runSteps(this.#sweepSteps());
  }

  *#sweepSteps(): Generator<void, void, void> {
    // One iterator: each new one would step over the slots of deleted entries.
    const remaining = this.#previous.entries();
    while (this.#previous.size > 0) {
      this.#deliveries.deliverAfter(() => {
        const deletes = this.#takeDeletes(remaining);
        if (this.#guard.call(() => this.#listener.onChanges(deletes)) || this.#ended) return;
        this.#guard.call(() => this.onEnded());
      });
      yield;
    }
  }

  #takeDeletes(remaining: Iterator<[string, Entry]>): readonly Change[] {
    const deletes: Change[] = [];
    while (deletes.length < SWEEP_CHUNK) {
      const next = remaining.next();
      if (next.done) break;
      const [key, previous] = next.value;
      this.#previous.delete(key);
      deletes.push(this.#comparer.deleteOf(key, previous));
    }
    return deletes;
  }

  #since(change: Change): Change | undefined {
    const key = this.#comparer.keyOf(change);
    const previous = this.#previous.get(key);
    if (previous === undefined) return change;
    this.#previous.delete(key);
    return this.#comparer.since(previous, change);
  }
}

// Engines report an entry before they delete it, so the first change of an entry is never a delete.

export const PREFIXES: ChangeComparer<IPCacheEntry, IPCacheChange> = {
  keyOf: ({ prefix }) => prefix,
  since: (old, change) => (sameEntry(old, change.new) ? undefined : { ...change, old }),
  deleteOf: (prefix, old) => ({ kind: 'delete', prefix, old, new: undefined }),
};

export const SERVICES: ChangeComparer<AnnouncedService, ServiceEvent> = {
  keyOf: ({ id }) => formatServiceID(id),
  since: (previous, event) => {
    const oldService = equalServices(previous.service, event.service) ? event.service : previous.service;
    const isSame = equalBackendMaps(previous.endpoints.backends, event.endpoints.backends);
    if (isSame && oldService === event.service) return undefined;
    return { ...event, oldService, oldEndpoints: isSame ? event.endpoints : previous.endpoints };
  },
  deleteOf: (_key, { service, endpoints }) => ({
    action: 'delete',
    id: service.id,
    service,
    endpoints,
    oldService: service,
    oldEndpoints: endpoints,
  }),
};
