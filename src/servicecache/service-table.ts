import { Map as ImmutableMap } from '#immutable';
import { assert } from '../base/assert.ts';
import { type AnnouncedService, announcedPart, changeBetween, shareAnnounced } from './announcement.ts';
import type { ServiceEvent } from './events.ts';
import type { Service } from './service.ts';
import { isEmptyState, isReady, type ServiceState, withAnnounced } from './service-state.ts';

/** What a batch has touched: the states as they were, `undefined` where there was none. */
type Undo = Map<string, ServiceState | undefined>;

/** Receives the events of each change or batch, and whether it was that of `markSynced`. */
type Publish = (events: readonly ServiceEvent[], inputsComplete: boolean) => void;

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
  readonly #publish: Publish;
  /** The innermost batch under way. */
  #undo: Undo | undefined;
  #synced = false;
  #changes = 0;
  readonly #forSnapshot = new TouchedKeys();
  #snapshot: ImmutableMap<string, AnnouncedService> = ImmutableMap();
  readonly #forFrontends = new TouchedKeys();

  constructor(publish: Publish) {
    this.#publish = publish;
  }

  get synced(): boolean {
    return this.#synced;
  }

  /** Goes up with every write of a state. */
  get changes(): number {
    return this.#changes;
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

  /** Puts a state in place of the one of its service, and publishes what that changes. */
  put(next: ServiceState): void {
    const { key } = next;
    const old = this.#states.get(key);
    const state = this.#settle(next);
    this.#write(key, state);
    if (this.#undo !== undefined) {
      if (!this.#undo.has(key)) this.#undo.set(key, old);
      return;
    }
    const event = changeBetween(old, state);
    if (event !== undefined) this.#publish([event], false);
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
   * Runs `write`; what it changes is published as one, once per service, after it (I8). When it throws, all of it is
   * rolled back and nothing is published. Batches nest: an inner one is published with the outer one.
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

  /** All announced services; the same map until something changes. Costs what has changed since the last one. */
  snapshot(): ImmutableMap<string, AnnouncedService> {
    this.#snapshot = this.#snapshot.withMutations((snapshot) => {
      for (const key of this.#forSnapshot.take(this.#states.keys())) {
        const announced = announcedPart(this.#states.get(key));
        if (announced === undefined) snapshot.delete(key);
        else snapshot.set(key, announced);
      }
    });
    return this.#snapshot;
  }

  /** Brings an index of the known services up to date. Costs what has changed since the last time. */
  refresh(index: { update(key: string, service: Service | undefined): void }): void {
    for (const key of this.#forFrontends.take(this.#states.keys())) {
      index.update(key, this.#states.get(key)?.service);
    }
  }

  /** Announced: known and ready, or known once the inputs are complete; and then until it is gone. */
  #settle(state: ServiceState): ServiceState {
    const known = state.service !== undefined;
    return withAnnounced(state, known && (state.announced || this.#synced || isReady(state)));
  }

  /** Puts a state in place, or nothing where nothing is known any more. */
  #write(key: string, state: ServiceState | undefined): void {
    this.#changes++;
    if (state === undefined || isEmptyState(state)) this.#states.delete(key);
    else this.#states.set(key, state);
    this.#forSnapshot.touch(key);
    this.#forFrontends.touch(key);
  }

  /** Publishes the net effect of a batch. What has come back to what it was stays the same object (I3). */
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

/**
 * Which services have changed since a derived view was brought up to date last. Costs next to nothing until the
 * view is wanted for the first time, and holds no more than there are services.
 */
class TouchedKeys {
  #touched: Set<string> | undefined;

  touch(key: string): void {
    this.#touched?.add(key);
  }

  /** The keys to look at again; the first time `all` of them. */
  take(all: Iterable<string>): Iterable<string> {
    const taken = this.#touched ?? all;
    this.#touched = new Set();
    return taken;
  }
}
