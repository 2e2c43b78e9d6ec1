import { CallbackGuard } from '../../base/guard.ts';
import { interruptible } from '../../base/supervisor.ts';
import type { Runtime } from '../../base/system-clock.ts';
import { OPEN_GATE, type TurnGate } from '../../base/turn-gate.ts';
import type { StoreHooks } from '../../clustermesh/resource-stores.ts';
import { byteLengthOf } from '../../kvstore/codec/bytes.ts';
import { type CopiedResource, resourcePrefix, syncedKey } from '../../kvstore/codec/keys.ts';
import { MAX_PUT_BYTES } from '../../kvstore/codec/value.ts';
import type { KvstoreBackend, WatchEvent } from '../../kvstore/session/backend.ts';
import { SyncStore, type SyncStoreStatus } from '../../kvstore/stores/sync-store.ts';
import { WatchStore } from '../../kvstore/stores/watch-store.ts';
import { type Decoded, rejectedAs } from '../../net/fields.ts';

export interface MirrorOptions extends StoreHooks, Runtime {
  readonly cluster: string;
  readonly resource: CopiedResource;
  /** Destination of the copy. */
  readonly local: KvstoreBackend;
  /** See `WatchStoreOptions`. */
  readonly gate?: TurnGate | undefined;
}

const TOO_LARGE = `must have at most ${MAX_PUT_BYTES} bytes with its key`;

/**
 * Copies one resource of one remote cluster to `cilium/cache/` of the local kvstore. Values are copied unchanged, with
 * a lease, unless they are too large. The local canary is written when a complete list of the remote kvstore has been
 * copied.
 */
export class Mirror {
  /** Follows the remote kvstore. */
  readonly store: WatchStore<Uint8Array>;
  readonly #options: MirrorOptions;
  readonly #guard: CallbackGuard;
  readonly #prefix: string;
  readonly #canary: string;
  /**
   * Names of keys in the local kvstore that the remote kvstore may not have: copied by an earlier process and not yet
   * received by this one, or brought back when the local kvstore was restored from a backup.
   */
  readonly #unconfirmed = new Set<string>();
  #sync: SyncStore;
  #isSynced = false;
  #isDeletingReturned = false;

  constructor(options: MirrorOptions) {
    this.#options = options;
    const { cluster, resource, rejections, gate, onApplied, onFault } = options;
    this.#guard = new CallbackGuard(onFault);
    this.#prefix = resourcePrefix(resource, cluster, 'cache');
    this.#canary = syncedKey(cluster, resource, 'cache');
    this.#sync = this.#newSync((name) => this.#unconfirmed.add(name));
    this.store = new WatchStore({
      rejections,
      gate,
      onApplied,
      onFault,
      // Readers reject a larger value. The local kvstore would refuse it, and the canary would wait for it.
      decode: (_name, value, at): Decoded<Uint8Array> =>
        byteLengthOf(at) + value.length <= MAX_PUT_BYTES
          ? { ok: true, value }
          : rejectedAs('too-large', 'value', `${value.length} bytes`, TOO_LARGE, at),
      observer: {
        onUpdate: (name, value) => {
          this.#unconfirmed.delete(name);
          this.#sync.upsert(name, value);
        },
        onDelete: (name) => this.#sync.delete(name),
      },
    });
  }

  /** True if the local canary was written since the mirror was created or last cleared. */
  get isSynced(): boolean {
    return this.#isSynced;
  }

  /** Receives an event of a local canary of the cluster. The caller must pass every such event. */
  receiveCanaryEvent(event: WatchEvent): void {
    this.#sync.receiveCanaryEvent(event);
  }

  /** Returns the state of the writes into the local kvstore. */
  status(): SyncStoreStatus {
    return this.#sync.status();
  }

  /** Writes into the local kvstore until the signal fires. */
  run(signal: AbortSignal): Promise<void> {
    return this.#sync.run(signal);
  }

  /**
   * Adopts the keys of an earlier process with their leases, so that they do not expire while the remote kvstore is
   * unreachable. The mirror must be running. Resolves when the keys are known; `flushed` resolves when all of them are
   * bound to the session of this process. Rejects if the local kvstore fails.
   */
  async inherit(signal: AbortSignal): Promise<{ readonly flushed: Promise<void> }> {
    const { local } = this.#options;
    const sync = this.#sync;
    const canary = await local.get(this.#canary, { signal });
    await interruptible(() => sync.allListed, signal);
    // The keys were complete when the canary was written, and none was deleted since.
    if (canary !== undefined) void sync.markSynced();
    const flushed = sync.whenFlushed();
    this.#guard.call(() => flushed.then(() => sync.endAdoption()));
    return { flushed };
  }

  /**
   * Must be called when `store` has passed a complete list of the remote kvstore. Deletes the keys of `#unconfirmed`,
   * which the list lacks, before the canary is written. Works in steps. Resolves when the canary is written.
   */
  async markListed(): Promise<void> {
    const { gate = OPEN_GATE, onApplied } = this.#options;
    const sync = this.#sync;
    await gate.runSteps(this.#deleteUnconfirmed(sync, gate.slice));
    await sync.markSynced();
    if (sync !== this.#sync) return;
    this.#isSynced = true;
    onApplied();
    this.#deleteReturned();
  }

  /**
   * Deletes all keys, and then writes the canary. For a resource that the cluster does not export, so that readers do
   * not wait for it. The resource must not be followed.
   */
  async markEmpty(signal: AbortSignal): Promise<void> {
    if (await this.store.drain(signal)) this.#guard.call(() => this.markListed());
  }

  /** Deletes all keys, but not the canary. The resource must not be followed. */
  async deleteKeys(signal: AbortSignal): Promise<void> {
    const { gate = OPEN_GATE } = this.#options;
    if (await this.store.drain(signal)) await gate.runSteps(this.#deleteUnconfirmed(this.#sync, gate.slice));
  }

  /** Deletes the keys brought back by a restore, if a complete list of the remote kvstore has been copied. */
  #deleteReturned(): void {
    if (!this.#isSynced || this.#isDeletingReturned || this.#unconfirmed.size === 0) return;
    const { gate = OPEN_GATE } = this.#options;
    this.#isDeletingReturned = true;
    const onEnd = (): void => {
      this.#isDeletingReturned = false;
      this.#deleteReturned();
    };
    gate.runInBackground(this.#deleteUnconfirmed(this.#sync, gate.slice), { onEnd });
  }

  /**
   * Deletes the keys of `#unconfirmed`, in steps of `slice` keys. A key that the remote kvstore sends in between is
   * kept.
   */
  *#deleteUnconfirmed(sync: SyncStore, slice: number): Generator<void, void, void> {
    let deleted = 0;
    for (const name of this.#unconfirmed) {
      if (sync !== this.#sync) return;
      this.#unconfirmed.delete(name);
      sync.delete(name);
      if (++deleted % slice === 0) yield;
    }
  }

  /**
   * Deletes the canary and all keys. The mirror must be neither followed nor running; it may be used again afterwards.
   * Rejects if the local kvstore fails; call it again to delete the remaining keys.
   */
  async clear(signal: AbortSignal): Promise<void> {
    const { local } = this.#options;
    // Drained keys are deleted below by prefix, not one by one.
    if (!(await this.store.drain(signal))) return;
    this.#unconfirmed.clear();
    this.#sync = this.#newSync(undefined);
    this.#isSynced = false;
    // Fenced, so that no abandoned write takes effect afterwards, and this delete cannot affect later copies.
    await local.delete(this.#canary, { fenced: true, signal });
    await local.deletePrefix(this.#prefix, { fenced: true, signal });
  }

  /** @param onInherited receives the names of adopted keys of an earlier process; undefined if no keys are adopted */
  #newSync(onInherited: ((name: string) => void) | undefined): SyncStore {
    const { local: backend, clock, random, gate } = this.#options;
    return new SyncStore({
      backend,
      prefix: this.#prefix,
      canary: this.#canary,
      clock,
      random,
      gate,
      batched: true,
      followCanary: false,
      adoptLeases: onInherited !== undefined,
      onInherited,
      onReturned: (name) => {
        this.#unconfirmed.add(name);
        this.#deleteReturned();
      },
    });
  }
}
