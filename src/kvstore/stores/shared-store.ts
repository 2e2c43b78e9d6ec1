import {
  atLeast,
  checkArgument,
  checkArguments,
  FUNCTION,
  objectWith,
  optional,
  optionsWith,
  SIGNAL,
} from '../../base/arguments.ts';
import { CallbackGuard } from '../../base/guard.ts';
import type { RejectionLog } from '../../base/rejection.ts';
import { Supervisor, type SupervisorStatus } from '../../base/supervisor.ts';
import { type Runtime, withRuntime } from '../../base/system-clock.ts';
import { OPEN_GATE } from '../../base/turn-gate.ts';
import type { WatchState } from '../session/backend.ts';
import { KeyTable } from '../session/key-table.ts';
import { DelayedDeletes } from './delayed-deletes.ts';
import { ReturnedValues } from './returned-values.ts';
import { SYNC_OPTIONS, SyncStore, type SyncStoreOptions, type SyncStoreStatus } from './sync-store.ts';
import {
  guardedObserver,
  type StoreDecoder,
  type StoreObserver,
  type StoreScanner,
  WatchStore,
  type WatchStoreStatus,
} from './watch-store.ts';

/** Options of {@link SharedStore}. */
export interface SharedStoreOptions<T>
  extends Omit<SyncStoreOptions, 'follow' | 'followCanary' | 'onInherited' | 'onReturned' | 'keys'> {
  /** Decodes the value of a key. An invalid value is rejected and counted. */
  readonly decode: StoreDecoder<T>;
  /** @internal See `WatchStoreOptions`. */
  readonly scan?: StoreScanner<T> | undefined;
  /** Receives the decoded values. */
  readonly observer: StoreObserver<T>;
  /**
   * @internal False if the observer does not need the local keys. It then receives no event of a key that is local at
   * that time, and no value that `local.visitInherited` visits. Default true.
   */
  readonly observesLocal?: boolean | undefined;
  /** Counts the rejected values. */
  readonly rejections: RejectionLog;
  /** Delay of the delete of a shared key. Default 30 s, as for nodes; 0: no delay. */
  readonly deleteDelayMs?: number | undefined;
  /** Receives errors of the observer, the decoder, background tasks and writes, with the name of the task. */
  readonly onFailure?: ((error: unknown, task: string) => void) | undefined;
}

/**
 * The store of the local keys of a {@link SharedStore}, without the methods that only the {@link SharedStore} calls: it
 * runs this store, and passes the events of its watch to it.
 */
export type LocalKeyStore = Omit<
  SyncStore,
  'run' | 'receiveEvent' | 'receiveCanaryEvent' | 'receiveWatchState' | 'recordListed'
>;

/** Status of a {@link SharedStore}. */
export interface SharedStoreStatus {
  readonly local: SyncStoreStatus;
  readonly shared: WatchStoreStatus;
  /** Number of delayed deletes. */
  readonly delayedDeletes: number;
  /** Number of errors thrown by the observer. */
  readonly faults: number;
  readonly background: SupervisorStatus;
}

const DELETE_DELAY_MS = 30_000;

/**
 * A prefix to which many clients write (SEMANTICS 5). Each client writes its *local* keys, bound to its session, and
 * reads the *shared* keys: the keys of all clients. One watch serves both, so a local key that already has its value
 * is neither read again nor written. If another client overwrites or deletes a local key, the key is put back within
 * seconds (see {@link SyncStore}). The observer receives local keys, too, with the values in the kvstore.
 */
export class SharedStore<T> {
  /** Writes the local keys. */
  readonly local: LocalKeyStore;
  readonly #options: SharedStoreOptions<T> & Runtime;
  readonly #local: SyncStore;
  readonly #shared: WatchStore<T>;
  readonly #deletes: DelayedDeletes<T>;
  readonly #guard: CallbackGuard;
  readonly #tasks: Supervisor;
  /** Recognizes values that a restore brings back during this run. */
  #returned = new ReturnedValues();
  /** True if the current event delivers a returned value. */
  #isReturned = false;

  constructor(options: SharedStoreOptions<T>) {
    checkArgument('new SharedStore: options', options, OPTIONS);
    this.#options = withRuntime(options);
    const {
      clock,
      random,
      decode,
      scan,
      rejections,
      deleteDelayMs = DELETE_DELAY_MS,
      gate,
      onFailure,
    } = this.#options;
    const { observesLocal = true } = options;
    const keys = new KeyTable();
    const onFault = (error: unknown): void => onFailure?.(error, 'shared keys');
    this.#tasks = new Supervisor({ clock, random, onFailure });
    this.#local = new SyncStore({ ...this.#options, follow: false, keys });
    this.local = this.#local;
    this.#guard = new CallbackGuard(onFault);
    this.#deletes = new DelayedDeletes(guardedObserver(options.observer, this.#guard), clock, deleteDelayMs);
    this.#shared = new WatchStore({
      decode,
      scan,
      rejections,
      gate,
      onFault,
      observer: this.#deletes,
      keys,
      onRow: (row, event) => {
        this.#isReturned = this.#returned.recordEvent(event.modRevision);
        const isLocal = this.#local.receiveEventAt(row, event);
        return observesLocal || !isLocal;
      },
    });
  }

  /** True if a restore of the kvstore from a backup has brought back the value that the observer is receiving. */
  get isReturned(): boolean {
    return this.#isReturned;
  }

  /** Resolves when the shared keys are complete for the first time. */
  get synced(): Promise<void> {
    return this.#shared.synced;
  }

  status(): SharedStoreStatus {
    return {
      local: this.#local.status(),
      shared: this.#shared.status(),
      delayedDeletes: this.#deletes.size,
      faults: this.#guard.faults,
      background: this.#tasks.status(),
    };
  }

  /**
   * Writes local keys and follows the prefix until the signal fires. Local keys then stay in the kvstore. Deletes that
   * are still delayed are delivered only if the store runs again and the keys have not returned.
   */
  async run(signal: AbortSignal): Promise<void> {
    const { backend, prefix } = this.#options;
    this.#deletes.resume();
    this.#returned = new ReturnedValues();
    const follow = async (until: AbortSignal): Promise<void> => {
      const onState = (state: WatchState): void => {
        this.#returned.recordState(state);
        void this.#local.receiveWatchState(state, until);
      };
      const onListed = (): void => this.#local.recordListed();
      await this.#shared.run({ backend, prefix, signal: until, onState, onListed });
    };
    await Promise.all([
      this.#tasks.runWithRestart('local keys', (until) => this.#local.run(until), { signal }),
      this.#tasks.runWithRestart('shared keys', follow, { signal }),
    ]);
    this.#deletes.pause();
  }

  /** Delivers a delete of every shared key to the observer, in slices. The store must not be running. */
  async drain(): Promise<void> {
    const { gate = OPEN_GATE } = this.#options;
    await this.#shared.drain();
    await gate.runSteps(this.#deletes.flush(gate.slice));
  }
}

const OPTIONS = optionsWith({
  ...SYNC_OPTIONS,
  decode: FUNCTION,
  observer: objectWith({ onUpdate: FUNCTION, onDelete: FUNCTION }),
  rejections: objectWith({ add: FUNCTION }),
  deleteDelayMs: optional(atLeast(0)),
});

checkArguments(SharedStore, { run: { signal: SIGNAL } });
