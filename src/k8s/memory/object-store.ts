import type { KubernetesObject } from '../resource.ts';

/** One write: the object before and after. Stored objects must not be changed. */
export interface StoredWrite {
  readonly version: number;
  /** Group and plural. Versions of an API share their objects. */
  readonly resource: string;
  /** `namespace/name`, or `name`. */
  readonly key: string;
  readonly before: KubernetesObject | undefined;
  readonly after: KubernetesObject | undefined;
}

/** The content of a `MemoryApiServer`, which its method `backup` returns. */
export interface ObjectStoreSnapshot {
  readonly version: number;
  readonly objects: ReadonlyMap<string, ReadonlyMap<string, KubernetesObject>>;
}

/**
 * The objects of an API server and their history, like its etcd. One version number counts the writes of all kinds. The
 * history starts at the last compaction.
 */
export class ObjectStore {
  #version = 1;
  /** Never 0, because no list of etcd has version 0, and a watch from version 0 sends all objects, in any order. */
  #compacted = 1;
  #objects = new Map<string, Map<string, KubernetesObject>>();
  #history: StoredWrite[] = [];
  readonly #watchers = new Set<(write: StoredWrite) => void>();

  /** The version of the last write. */
  get version(): number {
    return this.#version;
  }

  /** The compacted version: no history exists up to and including it. */
  get compacted(): number {
    return this.#compacted;
  }

  get(resource: string, key: string): KubernetesObject | undefined {
    return this.#objects.get(resource)?.get(key);
  }

  /** Returns the objects of a resource sorted by key, now or at a version that is not compacted. */
  list(resource: string, version: number = this.#version): readonly (readonly [string, KubernetesObject])[] {
    const objects = new Map(this.#objects.get(resource));
    for (let i = this.#history.length - 1; i >= 0; i--) {
      const write = this.#history[i];
      if (write === undefined || write.version <= version) break;
      if (write.resource !== resource) continue;
      if (write.before === undefined) objects.delete(write.key);
      else objects.set(write.key, write.before);
    }
    return [...objects].sort(([a], [b]) => (a < b ? -1 : 1));
  }

  /** Returns the writes of a resource after a version that is not compacted. */
  since(resource: string, version: number): readonly StoredWrite[] {
    return this.#history.filter((write) => write.resource === resource && write.version > version);
  }

  /**
   * Stores and returns the result of `make` for the version of this write, and notifies the watchers. If the result is
   * undefined, the object is deleted.
   */
  write<T extends KubernetesObject | undefined>(
    resource: string,
    key: string,
    make: (version: string) => T,
  ): T {
    const version = ++this.#version;
    const objects = this.#objects.get(resource) ?? new Map<string, KubernetesObject>();
    this.#objects.set(resource, objects);
    const before = objects.get(key);
    const after = make(String(version));
    if (after === undefined) objects.delete(key);
    else objects.set(key, after);
    const write: StoredWrite = { version, resource, key, before, after };
    this.#history.push(write);
    for (const observer of [...this.#watchers]) observer(write);
    return after;
  }

  watch(observer: (write: StoredWrite) => void): () => void {
    this.#watchers.add(observer);
    return () => this.#watchers.delete(observer);
  }

  /** Drops the history up to a version. */
  compact(version: number = this.#version): void {
    this.#compacted = Math.max(this.#compacted, version);
    this.#history = this.#history.filter((write) => write.version > version);
  }

  /** Returns the version of the last write of a resource up to a version, or the compacted version if there is none. */
  lastWrite(resource: string, upTo: number): number {
    const last = this.#history.findLast((write) => write.resource === resource && write.version <= upTo);
    return last?.version ?? this.#compacted;
  }

  snapshot(): ObjectStoreSnapshot {
    const objects = new Map([...this.#objects].map(([resource, all]) => [resource, new Map(all)]));
    return { version: this.#version, objects };
  }

  /** Restores a snapshot, as when an etcd is restored from a backup. Later writes use the version numbers again. */
  restore({ version, objects }: ObjectStoreSnapshot): void {
    this.#version = version;
    this.#compacted = version;
    this.#history = [];
    this.#objects = new Map([...objects].map(([resource, all]) => [resource, new Map(all)]));
  }
}
