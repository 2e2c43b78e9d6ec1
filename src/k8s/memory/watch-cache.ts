import type { ObjectStore, StoredWrite } from './object-store.ts';

/**
 * The watch cache of an API server, from which it serves lists and watches. Its updates can be stopped, to simulate a
 * cache that is behind.
 */
export class WatchCache {
  /** True if the version of a resource also increases with writes of other resources, as in Kubernetes 1.34. */
  readonly idleProgress: boolean;
  readonly #store: ObjectStore;
  readonly #watchers = new Set<(write: StoredWrite) => void>();
  /** While updates are stopped: the version of the cache, and the writes after it. */
  #held: { readonly version: number; readonly writes: StoredWrite[] } | undefined;

  constructor(store: ObjectStore, idleProgress: boolean) {
    this.#store = store;
    this.idleProgress = idleProgress;
    store.watch((write) => {
      if (this.#held === undefined) this.#publish(write);
      else this.#held.writes.push(write);
    });
  }

  get version(): number {
    return this.#held?.version ?? this.#store.version;
  }

  /** Returns the version up to which a resource is known. */
  versionOf(resource: string): number {
    return this.idleProgress ? this.version : this.#store.lastWrite(resource, this.version);
  }

  /** Stops updates until {@link WatchCache.release}. */
  hold(): void {
    this.#held ??= { version: this.#store.version, writes: [] };
  }

  release(): void {
    const writes = this.#held?.writes ?? [];
    this.#held = undefined;
    for (const write of writes) this.#publish(write);
  }

  /** Drops the held writes, because a restart ends the watches that would receive them. */
  reset(): void {
    this.#held = undefined;
  }

  /** Returns the known writes of a resource after `version`. */
  since(resource: string, version: number): readonly StoredWrite[] {
    return this.#store.since(resource, version).filter((write) => write.version <= this.version);
  }

  watch(observer: (write: StoredWrite) => void): () => void {
    this.#watchers.add(observer);
    return () => this.#watchers.delete(observer);
  }

  #publish(write: StoredWrite): void {
    for (const observer of [...this.#watchers]) observer(write);
  }
}
