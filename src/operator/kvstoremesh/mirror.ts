import type { Clock, Random } from '../../base/clock.ts';
import type { TurnGate } from '../../base/turn-gate.ts';
import type { StoreHooks } from '../../clustermesh/resource-stores.ts';
import type { KvstoreBackend } from '../../kvstore/backend.ts';
import { type MeshResource, resourcePrefix, syncedKey } from '../../kvstore/codec/keys.ts';
import { SyncStore, type SyncStoreStatus } from '../../kvstore/store/sync-store.ts';
import { WatchStore } from '../../kvstore/store/watch-store.ts';

/** Options of {@link Mirror}. */
export interface MirrorOptions extends StoreHooks {
  readonly cluster: string;
  readonly resource: MeshResource;
  /** The kvstore into which is copied. */
  readonly local: KvstoreBackend;
  readonly clock: Clock;
  readonly random: Random;
  /** See `WatchStoreOptions`. */
  readonly gate?: TurnGate | undefined;
}

/**
 * One resource of one remote cluster, value by value as its kvstore has it, under `cilium/cache/` of the local kvstore,
 * leased. The local canary is written when a complete list of the remote one is there.
 */
export class Mirror {
  /** Follows the remote kvstore. */
  readonly store: WatchStore<Uint8Array>;
  readonly #options: MirrorOptions;
  readonly #prefix: string;
  readonly #canary: string;
  /** Names that an earlier process has left, and no list of this one has shown. */
  readonly #inherited = new Set<string>();
  #sync: SyncStore;
  #isSynced = false;

  constructor(options: MirrorOptions) {
    this.#options = options;
    const { cluster, resource, rejections, gate, onApplied, onFault } = options;
    this.#prefix = resourcePrefix(resource, cluster, 'cache');
    this.#canary = syncedKey(cluster, resource, 'cache');
    this.#sync = this.#newSync();
    this.store = new WatchStore({
      ...{ rejections, gate, onApplied, onFault },
      // A copy: what was received may be a part of a whole page.
      decode: (_name, value) => ({ ok: true, value: value.slice() }),
      observer: {
        onUpdate: (name, value) => {
          this.#inherited.delete(name);
          this.#sync.upsert(name, value);
        },
        onDelete: (name) => this.#sync.delete(name),
      },
    });
  }

  /** Whether the local canary was written since this resource was begun. */
  get isSynced(): boolean {
    return this.#isSynced;
  }

  /** What is under way into the local kvstore. */
  status(): SyncStoreStatus {
    return this.#sync.status();
  }

  /** Writes into the local kvstore until the signal fires. */
  run(signal: AbortSignal): Promise<void> {
    return this.#sync.run(signal);
  }

  /**
   * Takes over what an earlier process has left, so that it does not end with the lease of that while the remote kvstore
   * cannot be reached. Resolves to when all of it is bound to our session; rejects as the local kvstore does.
   */
  async inherit(signal: AbortSignal): Promise<{ readonly landed: Promise<void> }> {
    const { local } = this.#options;
    const [kvs, canary] = await Promise.all([
      local.listPrefix(this.#prefix, { signal }),
      local.get(this.#canary, { signal }),
    ]);
    for (const { key, value } of kvs) {
      const name = key.slice(this.#prefix.length);
      this.#inherited.add(name);
      this.#sync.upsert(name, value.slice());
    }
    // It was true when it was written, and nothing was taken away since.
    if (canary !== undefined) void this.#sync.markSynced();
    return { landed: this.#sync.landed() };
  }

  /** A complete list of the remote kvstore is queued: what was inherited and is not in it goes before the canary. */
  listed(): void {
    for (const name of this.#inherited) this.#sync.delete(name);
    this.#inherited.clear();
    const sync = this.#sync;
    void sync.markSynced().then(() => {
      if (sync !== this.#sync) return;
      this.#isSynced = true;
      this.#options.onApplied();
    });
  }

  /**
   * Deletes everything, first of all the canary. It must be neither followed nor run, and may be again afterwards. Rejects
   * as the local kvstore does; what it has not deleted then, it deletes when it is called again.
   */
  async clear(signal: AbortSignal): Promise<void> {
    const { local } = this.#options;
    // What is drained is deleted below, all at once, and not key by key.
    if (!(await this.store.drain(signal))) return;
    this.#inherited.clear();
    this.#sync = this.#newSync();
    this.#isSynced = false;
    // Fenced: no write that was given up takes effect after it, nor this after what is copied later.
    await local.delete(this.#canary, { fenced: true, signal });
    await local.deletePrefix(this.#prefix, { fenced: true, signal });
  }

  #newSync(): SyncStore {
    const { local: backend, clock, random } = this.#options;
    return new SyncStore({
      ...{ backend, prefix: this.#prefix, canary: this.#canary, clock, random },
      together: true,
    });
  }
}
