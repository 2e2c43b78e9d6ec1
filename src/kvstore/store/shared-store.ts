import { BYTES, checkArguments, SIGNAL, TEXT } from '../../base/arguments.ts';
import { backoffDelay } from '../../base/backoff.ts';
import type { Clock, Random } from '../../base/clock.ts';
import { CallbackGuard } from '../../base/guard.ts';
import type { RejectionLog } from '../../base/rejection.ts';
import { sleep } from '../../base/sleep.ts';
import { Supervisor, type SupervisorStatus } from '../../base/supervisor.ts';
import type { KvstoreBackend } from '../backend.ts';
import { DelayedDeletes } from './delayed-deletes.ts';
import { SyncStore, type SyncStoreOptions, type SyncStoreStatus } from './sync-store.ts';
import {
  guardedObserver,
  type StoreDecoder,
  type StoreObserver,
  WatchStore,
  type WatchStoreStatus,
} from './watch-store.ts';

/** Options of {@link SharedStore}. */
export interface SharedStoreOptions<T>
  extends Pick<SyncStoreOptions, 'leased' | 'canary' | 'canaryLeased' | 'concurrency' | 'together'> {
  readonly backend: KvstoreBackend;
  /** Ends in `/`. */
  readonly prefix: string;
  readonly decode: StoreDecoder<T>;
  readonly observer: StoreObserver<T>;
  readonly rejections: RejectionLog;
  readonly clock: Clock;
  readonly random: Random;
  /** How often local keys are put again if they are not as they should be. Default 5 minutes. */
  readonly syncIntervalMs?: number | undefined;
  /** How long a shared key's delete is held back. Default 30 s, as for nodes; 0: not at all. */
  readonly deleteDelayMs?: number | undefined;
  /** Receives what the observer and the decoder have thrown, and what has failed otherwise, with the name of the task. */
  readonly onFailure?: ((error: unknown, task: string) => void) | undefined;
}

/** A {@link SharedStore} as data. */
export interface SharedStoreStatus {
  readonly local: SyncStoreStatus;
  readonly shared: WatchStoreStatus;
  /** Deletes that are held back. */
  readonly heldDeletes: number;
  /** What the observer has thrown. */
  readonly faults: number;
  readonly background: SupervisorStatus;
}

const SYNC_INTERVAL_MS = 5 * 60_000;
const DELETE_DELAY_MS = 30_000;

/**
 * A prefix to which many contribute (SEMANTICS 5): each its own *local* keys, bound to its session; all see
 * all, the *shared* keys. Local keys that another client deletes are put again at once, those that one overwrites at the
 * next interval. The observer receives local keys too, as the kvstore shows them.
 */
export class SharedStore<T> {
  readonly #options: SharedStoreOptions<T>;
  readonly #local: SyncStore;
  readonly #shared: WatchStore<T>;
  readonly #deletes: DelayedDeletes<T>;
  readonly #guard: CallbackGuard;
  readonly #tasks: Supervisor;

  constructor(options: SharedStoreOptions<T>) {
    this.#options = options;
    const { clock, random, decode, rejections, deleteDelayMs = DELETE_DELAY_MS, onFailure } = options;
    const onFault = (error: unknown): void => onFailure?.(error, 'shared keys');
    this.#tasks = new Supervisor({ clock, random, onFailure });
    this.#local = new SyncStore(options);
    this.#guard = new CallbackGuard(onFault);
    this.#deletes = new DelayedDeletes(guardedObserver(options.observer, this.#guard), clock, deleteDelayMs);
    this.#shared = new WatchStore({ decode, rejections, observer: this.#localKeysKept(), onFault });
  }

  /** Passes on, and puts local keys again that another client has deleted. */
  #localKeysKept(): StoreObserver<T> {
    return {
      onUpdate: (name, value) => this.#deletes.onUpdate(name, value),
      onDelete: (name) => {
        this.#local.touch(name);
        this.#deletes.onDelete(name);
      },
      batch: (apply) => this.#deletes.batch(apply),
    };
  }

  /** Resolves once the shared keys have been complete for the first time. */
  get synced(): Promise<void> {
    return this.#shared.synced;
  }

  status(): SharedStoreStatus {
    return {
      local: this.#local.status(),
      shared: this.#shared.status(),
      heldDeletes: this.#deletes.size,
      faults: this.#guard.faults,
      background: this.#tasks.status(),
    };
  }

  /**
   * This contributor's key is to have this value.
   *
   * @param isOther the kvstore is known to have another value, or none: it is not compared with what is there
   */
  updateLocalKey(name: string, value: Uint8Array, isOther = false): void {
    this.#local.upsert(name, value, isOther);
  }

  /** This contributor's key may stay as another has put it. */
  adoptLocalKey(name: string, value: Uint8Array): void {
    this.#local.adopt(name, value);
  }

  /** This contributor's key is not to exist any more. */
  deleteLocalKey(name: string): void {
    this.#local.delete(name);
  }

  /**
   * Says that all local keys have been queued that belong to a complete content. Resolves when the canary has been
   * written, which is when all that was queued before has landed.
   */
  markSynced(): Promise<void> {
    return this.#local.markSynced();
  }

  /**
   * Writes and follows until the signal fires. Local keys stay; deletes that are held back are not delivered, unless it is
   * run again and the keys do not come back.
   */
  async run(signal: AbortSignal): Promise<void> {
    const { backend, prefix } = this.#options;
    this.#deletes.resume();
    const follow = async (until: AbortSignal): Promise<void> => {
      await this.#shared.run({ backend, prefix, signal: until });
    };
    await Promise.all([
      this.#tasks.keep('local keys', (until) => this.#local.run(until), { signal }),
      this.#tasks.keep('shared keys', follow, { signal }),
      this.#tasks.keep('resync', (until) => this.#resync(until), { signal }),
    ]);
    this.#deletes.pause();
  }

  /** Deletes every shared key from the observer. The store must not be running. */
  async drain(): Promise<void> {
    await this.#shared.drain();
    this.#deletes.flush();
  }

  async #resync(signal: AbortSignal): Promise<void> {
    const { clock, random, syncIntervalMs = SYNC_INTERVAL_MS } = this.#options;
    while (!signal.aborted) {
      // Spread a little, so that a thousand agents do not keep step.
      await sleep(
        clock,
        syncIntervalMs + backoffDelay(1, { baseMs: syncIntervalMs / 10, capMs: 60_000 }, random),
        signal,
      );
      if (!signal.aborted) this.#local.touchAll();
    }
  }
}

checkArguments(SharedStore, {
  updateLocalKey: { name: TEXT, value: BYTES },
  adoptLocalKey: { name: TEXT, value: BYTES },
  deleteLocalKey: { name: TEXT },
  run: { signal: SIGNAL },
});
