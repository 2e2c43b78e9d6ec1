import { Map as ImmutableMap } from 'immutable';
import { assert } from '../base/assert.ts';
import { type AnnouncedService, announcedPart, changeBetween, shareAnnounced } from './announcement.ts';
import type { ServiceEvent } from './events.ts';
import { serviceKey } from './service-id.ts';
import { isEmptyState, isReady, type ServiceState, withAnnounced } from './service-state.ts';

/** What a batch has touched: the states as they were, `undefined` where there was none. */
type Undo = Map<string, ServiceState | undefined>;

/** Orders names by UTF-16 code unit. */
function ascending(a: string, b: string): number {
  return a < b ? -1 : Number(a > b);
}

/**
 * The states of all services. Decides what is announced (SEMANTICS 3.3), works out the events, and takes batches
 * back that fail. States are immutable, so taking back is putting the old ones in place again.
 */
export class ServiceTable {
  readonly #states = new Map<string, ServiceState>();
  readonly #tell: (events: readonly ServiceEvent[]) => void;
  /** The innermost batch under way. */
  #undo: Undo | undefined;
  #synced = false;
  #snapshot: ImmutableMap<string, AnnouncedService> | undefined;
  /** Keys whose states the last snapshot does not know; only kept once a snapshot was asked for. */
  readonly #stale = new Set<string>();

  /** `tell` gets the events of each change or batch, never an empty list. */
  constructor(tell: (events: readonly ServiceEvent[]) => void) {
    this.#tell = tell;
  }

  get synced(): boolean {
    return this.#synced;
  }

  /** Whether a batch is under way, so that what is here may yet be taken back. */
  get inBatch(): boolean {
    return this.#undo !== undefined;
  }

  get(key: string): ServiceState | undefined {
    return this.#states.get(key);
  }

  /** All states, in no order. */
  values(): Iterable<ServiceState> {
    return this.#states.values();
  }

  /** All states by key, ascending. Costs a sort. */
  sorted(): readonly (readonly [string, ServiceState])[] {
    return [...this.#states].sort(([a], [b]) => ascending(a, b));
  }

  /** Puts a state in place of the one of its service, and tells what that changes. */
  put(next: ServiceState): void {
    const key = serviceKey(next.id);
    const old = this.#states.get(key);
    const state = this.#settle(next);
    this.#write(key, state);
    if (this.#undo !== undefined) {
      if (!this.#undo.has(key)) this.#undo.set(key, old);
      return;
    }
    const event = changeBetween(old, state);
    if (event !== undefined) this.#tell([event]);
  }

  /** From now on every known service is announced. */
  markSynced(): void {
    if (this.#synced) return;
    this.batch(() => {
      this.#synced = true;
      for (const state of [...this.#states.values()]) this.put(state);
    });
  }

  /**
   * Runs `write`; what it changes is told as one, once per service, after it (I8). When it throws, all of it is
   * taken back and nothing is told. Batches nest: an inner one is told with the outer one.
   */
  batch<T>(write: () => T): T {
    const outer = this.#undo;
    const synced = this.#synced;
    const undo: Undo = new Map();
    this.#undo = undo;
    try {
      const result = write();
      assert(!(result instanceof Promise), 'a batch must not be asynchronous');
      this.#undo = outer;
      if (outer === undefined) this.#commit(undo);
      else for (const [key, state] of undo) if (!outer.has(key)) outer.set(key, state);
      return result;
    } catch (error) {
      this.#undo = outer;
      this.#synced = synced;
      for (const [key, state] of undo) this.#restore(key, state);
      throw error;
    }
  }

  /** All announced services; the same map until something changes. Costs what has changed since the last one. */
  snapshot(): ImmutableMap<string, AnnouncedService> {
    const keys = this.#snapshot === undefined ? this.#states.keys() : this.#stale.keys();
    this.#snapshot = (this.#snapshot ?? ImmutableMap()).withMutations((snapshot) => {
      for (const key of keys) {
        const announced = announcedPart(this.#states.get(key));
        if (announced === undefined) snapshot.delete(key);
        else snapshot.set(key, announced);
      }
    });
    this.#stale.clear();
    return this.#snapshot;
  }

  /** Announced: known and ready, or known once the inputs are complete; and then until it is gone. */
  #settle(state: ServiceState): ServiceState {
    const known = state.service !== undefined;
    return withAnnounced(state, known && (state.announced || this.#synced || isReady(state)));
  }

  #write(key: string, state: ServiceState): void {
    if (isEmptyState(state)) this.#states.delete(key);
    else this.#states.set(key, state);
    if (this.#snapshot !== undefined) this.#stale.add(key);
  }

  #restore(key: string, state: ServiceState | undefined): void {
    if (state === undefined) this.#states.delete(key);
    else this.#states.set(key, state);
    if (this.#snapshot !== undefined) this.#stale.add(key);
  }

  /** Tells the net effect of a batch. What has come back to what it was stays the same object (I3). */
  #commit(undo: Undo): void {
    const events: ServiceEvent[] = [];
    for (const [key, old] of undo) {
      const state = this.#states.get(key);
      const shared = state && shareAnnounced(old, state);
      if (shared !== undefined && shared !== state) this.#write(key, shared);
      const event = changeBetween(old, shared);
      if (event !== undefined) events.push(event);
    }
    if (events.length > 0) this.#tell(events);
  }
}
