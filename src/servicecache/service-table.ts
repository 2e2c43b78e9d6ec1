import { Map as ImmutableMap } from 'immutable';
import { requireArgument } from '../base/arguments.ts';
import { ascending } from '../base/sorted-map.ts';
import { type AnnouncedService, announcedPart, changeBetween, shareAnnounced } from './announcement.ts';
import type { ServiceEvent } from './events.ts';
import type { Service } from './service.ts';
import { isEmptyState, isReady, type ServiceState, withAnnounced } from './service-state.ts';

/** By key of each service that a batch changed: its state before the batch; `undefined` if it was unknown. */
type Undo = Map<string, ServiceState | undefined>;

/** Receives the events of each change or batch. `inputsComplete` is true for `markSynced`. */
type Publish = (events: readonly ServiceEvent[], inputsComplete: boolean) => void;

/**
 * Receives the states of a service before and after a write, undefined while it has no input. It must not throw.
 */
export type StateObserver = (
  key: string,
  before: ServiceState | undefined,
  after: ServiceState | undefined,
) => void;

/** An index of the known services by key, `namespace/name`. */
interface ServiceIndex {
  update(key: string, service: Service | undefined): void;
}

/**
 * The states of all services. It determines which are announced (SEMANTICS 3.3), computes events, and rolls failed
 * batches back. States are immutable, so a rollback puts the old ones back.
 */
export class ServiceTable {
  readonly #states = new Map<string, ServiceState>();
  readonly #publish: Publish;
  /** The states before the innermost open batch; undefined outside batches. */
  #undo: Undo | undefined;
  #synced = false;
  #changes = 0;
  /** Keys of the services that changed since the last snapshot; undefined before the first one. */
  #changedKeys: Set<string> | undefined;
  #snapshot: ImmutableMap<string, AnnouncedService> = ImmutableMap();
  /** Updated with every write; undefined before {@link ServiceTable.track}. */
  #index: ServiceIndex | undefined;
  /** Callbacks for every write of a state, writes that roll back a failed batch included. */
  readonly observers: Set<StateObserver> = new Set();

  constructor(publish: Publish) {
    this.#publish = publish;
  }

  get synced(): boolean {
    return this.#synced;
  }

  /** Increases with every write of a state. */
  get changes(): number {
    return this.#changes;
  }

  /** True while a batch is open, which may be rolled back. */
  get inBatch(): boolean {
    return this.#undo !== undefined;
  }

  get(key: string): ServiceState | undefined {
    return this.#states.get(key);
  }

  /** Returns all states, unordered. */
  values(): Iterable<ServiceState> {
    return this.#states.values();
  }

  /** Returns all states sorted by key. Costs a sort. */
  sorted(): readonly (readonly [string, ServiceState])[] {
    return [...this.#states].sort(([a], [b]) => ascending(a, b));
  }

  /** Replaces the state of a service and publishes the change. */
  put(next: ServiceState): void {
    const { key } = next;
    const old = this.#states.get(key);
    const state = this.withAnnouncement(next);
    this.#write(key, state);
    if (this.#undo !== undefined) {
      if (!this.#undo.has(key)) this.#undo.set(key, old);
      return;
    }
    const event = changeBetween(old, state);
    if (event !== undefined) this.#publish([event], false);
  }

  /** Announces every known service from now on. Writes only those that are not announced yet, usually few. */
  markSynced(): void {
    if (this.#synced) return;
    this.batch(() => {
      this.#synced = true;
      for (const state of this.#states.values()) if (!state.announced) this.put(state);
    });
  }

  /**
   * Runs `write` and publishes its net effect, once per service (I8). If it throws, all changes are rolled back and
   * nothing is published. Batches may be nested; an inner one is published with the outer one.
   */
  batch<T>(write: () => T): T {
    const outer = this.#undo;
    const synced = this.#synced;
    const undo: Undo = new Map();
    this.#undo = undo;
    try {
      const result = write();
      requireArgument(!(result instanceof Promise), 'batch: write must be synchronous');
      this.#undo = outer;
      if (outer === undefined) this.#commit(undo, synced);
      else for (const [key, state] of undo) if (!outer.has(key)) outer.set(key, state);
      return result;
    } catch (error) {
      this.#undo = outer;
      this.#synced = synced;
      for (const [key, state] of undo) this.#write(key, state);
      throw error;
    }
  }

  /** Yields the announced services by key, unordered. Services may change during the iteration. */
  *announced(): Generator<readonly [key: string, announced: AnnouncedService], void, void> {
    for (const [key, state] of this.#states) {
      const announced = announcedPart(state);
      if (announced !== undefined) yield [key, announced];
    }
  }

  /**
   * Returns all announced services; the same map until something changes. Linear in the changes since the last call.
   */
  snapshot(): ImmutableMap<string, AnnouncedService> {
    const changedKeys = this.#changedKeys ?? this.#states.keys();
    this.#changedKeys = new Set();
    this.#snapshot = this.#snapshot.withMutations((snapshot) => {
      for (const key of changedKeys) {
        const announced = announcedPart(this.#states.get(key));
        if (announced === undefined) snapshot.delete(key);
        else snapshot.set(key, announced);
      }
    });
    return this.#snapshot;
  }

  /** Fills an index with the known services and maintains it from now on. */
  track<I extends ServiceIndex>(index: I): I {
    for (const [key, { service }] of this.#states) index.update(key, service);
    this.#index = index;
    return index;
  }

  /**
   * Returns the state with `announced` set. A service is announced as soon as it is known and either it is ready or the
   * inputs are complete. It stays announced until it is deleted.
   */
  withAnnouncement(state: ServiceState): ServiceState {
    const isKnown = state.service !== undefined;
    return withAnnounced(state, isKnown && (state.announced || this.#synced || isReady(state)));
  }

  /** Stores a state; deletes it if it is empty. */
  #write(key: string, state: ServiceState | undefined): void {
    this.#changes++;
    const after = state === undefined || isEmptyState(state) ? undefined : state;
    for (const observer of this.observers) observer(key, this.#states.get(key), after);
    if (after === undefined) this.#states.delete(key);
    else this.#states.set(key, after);
    this.#changedKeys?.add(key);
    this.#index?.update(key, after?.service);
  }

  /** Publishes the net effect of a batch. Parts equal to those before it are replaced by the old objects (I3). */
  #commit(undo: Undo, wasSynced: boolean): void {
    const events: ServiceEvent[] = [];
    for (const [key, old] of undo) {
      const state = this.#states.get(key);
      const shared = state && shareAnnounced(old, state);
      if (shared !== undefined && shared !== state) this.#write(key, shared);
      const event = changeBetween(old, shared);
      if (event !== undefined) events.push(event);
    }
    const inputsComplete = this.#synced && !wasSynced;
    if (events.length > 0 || inputsComplete) this.#publish(events, inputsComplete);
  }
}
