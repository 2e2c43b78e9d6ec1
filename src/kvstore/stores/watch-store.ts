import { setImmediate as eventLoopTurn } from 'node:timers/promises';
import {
  checkArgument,
  checkArguments,
  FUNCTION,
  objectWith,
  optional,
  optionsWith,
  requireAllowed,
  SIGNAL,
  TEXT,
} from '../../base/arguments.ts';
import type { Failure } from '../../base/failure.ts';
import { CallbackGuard, type FaultListener } from '../../base/guard.ts';
import type { RejectionLog } from '../../base/rejection.ts';
import { deferred } from '../../base/sleep.ts';
import { OPEN_GATE, type TurnGate } from '../../base/turn-gate.ts';
import { type Decoded, rejectedAs } from '../../net/fields.ts';
import { bytesOfKey } from '../codec/bytes.ts';
import type { KvstoreBackend, Watch, WatchEvent, WatchState, WatchStatus } from '../session/backend.ts';
import { KeyTable, MAX_NAME_LENGTH, shortName } from '../session/key-table.ts';
import { nameOf, rowOf, TableEvent } from '../session/table-event.ts';
import { bytesOf, WireKeyValue } from '../session/wire-key-value.ts';
import { slicesOf } from './batch-slices.ts';

/** Decodes the value of a key. `name` is the key without the prefix, `at` is the whole key, for rejections. */
export type StoreDecoder<T> = (name: string, value: Uint8Array, at: string) => Decoded<T>;

/**
 * @internal Decodes the value `buffer[from, to)` of a key. Returns `undefined` if the value, or a part of it, would be
 * rejected or dropped.
 */
export type StoreScanner<T> = (name: string, buffer: Buffer, from: number, to: number) => T | undefined;

/**
 * Receives the content of a store, synchronously and in order. Errors that it throws are counted and reported; the
 * store continues, and the key counts as received.
 */
export interface StoreObserver<T> {
  /** The key has this value. */
  onUpdate(name: string, value: T): void;
  /** The key was deleted, or its new value was rejected. Called only for keys that `onUpdate` was called for. */
  onDelete(name: string): void;
  /** Must call `apply` once, which calls `onUpdate` and `onDelete` for one batch. Default: only calls it. */
  batch?(apply: () => void): void;
}

/**
 * Returns the observer with a guard that counts and reports its errors. Its `batch` applies each batch exactly once,
 * even if the `batch` of the observer does not call `apply`, or calls it twice.
 */
export function guardedObserver<T>(
  observer: StoreObserver<T>,
  guard: CallbackGuard,
): Required<StoreObserver<T>> {
  const onUpdate = (name: string, value: T): void => observer.onUpdate(name, value);
  const onDelete = (name: string): void => observer.onDelete(name);
  return {
    onUpdate: (name, value) => void guard.call(onUpdate, name, value),
    onDelete: (name) => void guard.call(onDelete, name),
    batch: (apply) => {
      let isApplied = false;
      const applyOnce = (): void => {
        if (isApplied) return;
        isApplied = true;
        apply();
      };
      guard.call(() => observer.batch?.(applyOnce));
      applyOnce();
    },
  };
}

/** Options of {@link WatchStore}. */
export interface WatchStoreOptions<T> {
  /** Decodes the value of a key. An invalid value is rejected and counted. */
  readonly decode: StoreDecoder<T>;
  /**
   * @internal
   * Decodes common values faster than `decode`, with the same result. If it returns `undefined`, `decode` is called.
   */
  readonly scan?: StoreScanner<T> | undefined;
  /** Receives the decoded values. */
  readonly observer: StoreObserver<T>;
  /** Counts rejected values (I12). */
  readonly rejections: RejectionLog;
  /**
   * The gate of the process. It limits how many events, and steps of large values, are processed in one turn. Default:
   * each batch is applied in one turn.
   */
  readonly gate?: TurnGate | undefined;
  /**
   * Decodes a large value in steps of some milliseconds, each of which passes the gate. The result must be that of
   * `decode`. If the function returns `undefined`, because the value is not large, `decode` is called. See
   * `decodeInPieces`.
   */
  readonly decodeLarge?:
    | ((name: string, value: Uint8Array, at: string) => Generator<undefined, Decoded<T>> | undefined)
    | undefined;
  /**
   * Returns the number of bytes to decode; for a compressed value, the decompressed size. Default: the size of the
   * value.
   */
  readonly sizeOf?: ((value: Uint8Array) => number) | undefined;
  /** Called with each event of a key, before its value is decoded. Must not throw. */
  readonly onEvent?: ((name: string, event: WatchEvent) => void) | undefined;
  /** @internal The table of the keys, shared with a writer of the prefix. Default: a table of this store only. */
  readonly keys?: KeyTable | undefined;
  /**
   * @internal Called with each event before its value is decoded, with the row of its key; -1 if the table does not
   * have the key. If it returns false, the observer does not receive the event. Must not throw.
   */
  readonly onRow?: ((row: number, event: WatchEvent) => boolean) | undefined;
  /** Called after each batch. */
  readonly onApplied?: (() => void) | undefined;
  /** Receives errors of the observer and the decoder. */
  readonly onFault?: FaultListener | undefined;
}

/** Source and options of a run of a {@link WatchStore}. */
export interface WatchStoreRun {
  readonly backend: Pick<KvstoreBackend, 'watch'>;
  /** Ends in `/`. May differ between runs if the names below it have the same meaning. */
  readonly prefix: string;
  /** Ends the run. */
  readonly signal: AbortSignal;
  /** Ends the run without deletes if the store was replaced or restored: see `WatchOptions`. */
  readonly endOnDivergence?: boolean | undefined;
  /**
   * Called before keys are removed because of a delete or a complete list. `revision` is the first revision at which
   * the keys are known not to exist. If the promise resolves to false, the keys stay until the complete list of a later
   * run, and the list of this run does not make the store synced. Must not reject.
   *
   * `never` keeps all keys without a call, also a key whose new value is rejected. Default: all keys may be removed.
   */
  readonly mayDelete?: ((revision: number) => Promise<boolean>) | 'never' | undefined;
  /**
   * If true, a complete list removes no keys: keys that are not in the list stay until the complete list of a later
   * run.
   */
  readonly keepUnlisted?: boolean | undefined;
  /** Called after the complete list of this run was applied, and the sweep, if any, has ended. */
  readonly onListed?: (() => void) | undefined;
  /** Like `onState` of `WatchOptions`, with the failure that caused the state, if any. */
  readonly onState?: ((state: WatchState, failure: Failure | undefined) => void) | undefined;
}

/** Status of a {@link WatchStore}. */
export interface WatchStoreStatus {
  /** Number of keys with a value in the observer. */
  readonly keys: number;
  /** True if the content has been complete, and was not drained after that. */
  readonly synced: boolean;
  /** Number of keys whose present value is rejected. */
  readonly rejected: number;
  readonly updates: number;
  readonly deletes: number;
  /** Number of errors thrown by the observer and the decoder. */
  readonly faults: number;
  /** Undefined while the store is not running. */
  readonly watch: WatchStatus | undefined;
}

type KeyedValue = Pick<WatchEvent, 'key' | 'value'>;

/** Weight of the start of a watch at the gate, in events: the first page of the listing. */
const FIRST_PAGE = 1024;
/**
 * Maximum number of rows that a slice of a sweep visits, as a multiple of its maximum number of deletes: a visit takes
 * about 10 ns, a delete some µs.
 */
const VISITS_PER_DELETE = 16;
/**
 * Maximum duration of a slice of a sweep. It is reached before the maximum number of deletes if single deletes are
 * slow: that of a service with 1,000 backends, or of a node with 100 addresses, takes 100 times as long as that of an
 * IP.
 */
const MS_PER_SLICE = 2;
/** Number of deletes between two reads of the clock. A read takes 0.2 µs. */
const DELETES_PER_CHECK = 8;

/**
 * Follows a prefix of a kvstore and keeps an observer equal to it (SEMANTICS 5). The state of the observer depends only
 * on the content of the kvstore. A key whose value is rejected is **absent**, even if an earlier value was accepted,
 * because a new process would not know the earlier value (I9). Names of more than 4,096 characters are rejected.
 *
 * The end of a run deletes nothing. The store may run again, also on another backend. The known keys stay until the new
 * list is complete; then the keys that are not in the list are deleted (the *sweep*). `drain` deletes all keys.
 *
 * Sweep and drain run in slices of the gate (256 deletes or 2 ms), each of which is one batch of the observer. Between
 * slices the observer still has the keys that are not yet deleted. If a run ends during its sweep, the next run sweeps
 * the remaining keys.
 */
export class WatchStore<T> {
  readonly #options: WatchStoreOptions<T>;
  readonly #guard: CallbackGuard;
  readonly #observer: Required<StoreObserver<T>>;
  /** The keys of the watch. The mark of a key in the observer is the number of the last run that received the key. */
  readonly #keys: KeyTable;
  #size = 0;
  /** Names whose present value is rejected: see {@link shortName}. */
  readonly #rejected = new Set<string>();
  readonly #synced = deferred();
  #isSynced = false;
  /** Number of runs begun. */
  #runNumber = 0;
  #watch: Watch | undefined;
  #isApplying = false;
  /** The revision before which all writes were applied; 0 if unknown. */
  #cursor = 0;
  #updates = 0;
  #deletes = 0;

  constructor(options: WatchStoreOptions<T>) {
    checkArgument('new WatchStore: options', options, OPTIONS);
    this.#options = options;
    this.#keys = options.keys ?? new KeyTable(true);
    this.#guard = new CallbackGuard(options.onFault);
    this.#observer = guardedObserver(options.observer, this.#guard);
  }

  /** Resolves when the content is complete for the first time. */
  get synced(): Promise<void> {
    return this.#synced.promise;
  }

  get isSynced(): boolean {
    return this.#isSynced;
  }

  /** Number of keys with a value in the observer. */
  get size(): number {
    return this.#size;
  }

  /** Number of keys whose present value is rejected. */
  get rejected(): number {
    return this.#rejected.size;
  }

  /**
   * The revision, on the backend of this run, before which all writes were applied; 0 while the prefix is not followed.
   * After an interruption it stays 0 until the next batch, or until all values were compared, because the known state
   * may be from another history of the store.
   */
  get cursor(): number {
    const { state, nextRevision } = this.#watch?.status() ?? {};
    return state === 'watching' && nextRevision !== undefined ? Math.min(this.#cursor, nextRevision) : 0;
  }

  /**
   * Returns the mod revision of a key in the observer, as read last; `undefined` if the observer does not have the key.
   */
  revisionOf(name: string): number | undefined {
    const row = this.#keys.find(bytesOf({ key: name }), 0);
    return row < 0 || this.#keys.markOf(row) === 0 ? undefined : this.#keys.revisionOf(row);
  }

  status(): WatchStoreStatus {
    return {
      keys: this.#size,
      synced: this.#isSynced,
      rejected: this.#rejected.size,
      updates: this.#updates,
      deletes: this.#deletes,
      faults: this.#guard.faults,
      watch: this.#watch?.status(),
    };
  }

  /** Follows the prefix until the signal fires. Returns the reason of the end. One run at a time. */
  async run(run: WatchStoreRun): Promise<'ended' | 'diverged'> {
    requireAllowed(this.#watch === undefined, 'run: the store is running already');
    const { backend, prefix, signal, endOnDivergence, onState } = run;
    this.#runNumber++;
    this.#rejected.clear();
    const { gate = OPEN_GATE, onApplied } = this.#options;
    const watch = backend.watch(prefix, {
      signal,
      endOnDivergence,
      keys: this.#keys,
      onState: (state) => {
        if (state !== 'watching') this.#cursor = 0;
        else if (!watch.status().isDoubtful) void this.#advanceIfIdle(watch);
        onState?.(state, watch.status().lastFailure);
      },
    });
    this.#watch = watch;
    try {
      await gate.pass(FIRST_PAGE, signal);
      for await (const batch of watch) {
        this.#isApplying = true;
        const mayDelete = await this.#mayDelete(batch, watch, run);
        if (signal.aborted) break;
        if (!(await this.#applyInTurns(batch, gate, run, mayDelete))) break;
        const isListed = mayDelete && batch.some(({ type }) => type === 'list-done');
        if (isListed && !(await this.#completeList(run))) break;
        this.#isApplying = false;
        this.#advance(watch);
        onApplied?.();
      }
      return watch.status().state === 'diverged' ? 'diverged' : 'ended';
    } finally {
      this.#watch = undefined;
      this.#keys.forgetKnown();
    }
  }

  /**
   * Deletes all keys from the observer, in slices. The store is then not synced. Returns true if all keys are deleted.
   * If the signal fires first, the remaining keys stay until the next drain or sweep. The store must not run before the
   * drain has ended.
   */
  drain(signal?: AbortSignal): Promise<boolean> {
    requireAllowed(this.#watch === undefined, 'drain must not be called while the store is running');
    this.#rejected.clear();
    this.#isSynced = false;
    return this.#sweep(Number.POSITIVE_INFINITY, signal);
  }

  /** Advances the cursor to the received revision if no events are queued. */
  #advance(watch: Watch): void {
    const { queuedBytes, nextRevision } = watch.status();
    if (queuedBytes === 0) this.#cursor = nextRevision;
  }

  /**
   * Advances the cursor after a watch has compared all keys without a difference, because no batch follows then. Waits
   * one turn, because a batch that was taken from the queue is applied a turn later.
   */
  async #advanceIfIdle(watch: Watch): Promise<void> {
    await eventLoopTurn();
    const { state, isDoubtful } = watch.status();
    if (this.#isApplying || state !== 'watching' || isDoubtful) return;
    this.#advance(watch);
  }

  /** Applies a batch in slices. Returns false if the signal fires before the end. */
  async #applyInTurns(
    batch: readonly WatchEvent[],
    gate: TurnGate,
    run: WatchStoreRun,
    mayDelete: boolean,
  ): Promise<boolean> {
    for (const { events, weight } of slicesOf(batch, this.#options.sizeOf)) {
      const [first] = events;
      const decoded = first && (await this.#decodeInTurns(first, gate, run));
      const apply = (): void => this.#observer.batch(() => this.#apply(events, run, mayDelete, decoded));
      if (!(await gate.run(weight, apply, run.signal))) return false;
    }
    return true;
  }

  /** Decodes the value of an event if it is large. Returns undefined for other events, such as a delete. */
  async #decodeInTurns(
    { key, value }: WatchEvent,
    gate: TurnGate,
    { prefix, signal }: WatchStoreRun,
  ): Promise<Decoded<T> | undefined> {
    const name = key.slice(prefix.length);
    const steps = this.#options.decodeLarge?.(name, value, key);
    if (steps === undefined) return undefined;
    let decoded: Decoded<T> | undefined;
    const decode = function* (): Generator<undefined, void, void> {
      decoded = yield* steps;
    };
    try {
      await gate.runSteps(decode(), signal);
      return decoded;
    } catch (error) {
      return this.#decoderFault(error, name, key);
    }
  }

  /** Returns true if the run permits the deletes of a batch, or if the batch deletes nothing. */
  async #mayDelete(
    batch: readonly WatchEvent[],
    watch: Watch,
    { mayDelete }: WatchStoreRun,
  ): Promise<boolean> {
    const hasDeletes = this.#size > 0 && batch.some(({ type }) => type === 'delete' || type === 'list-done');
    if (mayDelete === undefined || !hasDeletes) return true;
    return mayDelete !== 'never' && mayDelete(removalRevision(batch, watch));
  }

  /** @param firstDecoded the value of the first event, if it was already decoded */
  #apply(
    events: readonly WatchEvent[],
    run: WatchStoreRun,
    mayDelete: boolean,
    firstDecoded?: Decoded<T>,
  ): void {
    const { onEvent, onRow } = this.#options;
    const prefixLength = bytesOfKey(run.prefix).length;
    for (const event of events) {
      const { type } = event;
      if (type === 'list-done') continue;
      const kv = event instanceof TableEvent ? event.kv : event;
      const isObserved = onRow?.(rowOf(event, this.#keys, prefixLength), event) ?? true;
      const row = rowOf(event, this.#keys, prefixLength); // `onRow` may have added or freed it
      if (!isObserved) {
        if (type === 'delete') this.#markAbsent(row);
        else this.#markReceived(row, kv, prefixLength);
        continue;
      }
      const fullName = nameOf(event, run.prefix, prefixLength);
      const name = shortName(fullName);
      onEvent?.(name, event);
      if (type === 'delete') {
        if (mayDelete) this.#drop(row, name);
        continue;
      }
      if (name !== fullName) {
        this.#receive(row, name, kv, tooLong(fullName, event.key), run);
        continue;
      }
      const decoded = event === events[0] ? firstDecoded : undefined;
      const scanned = decoded === undefined ? this.#scan(name, kv) : undefined;
      if (scanned !== undefined) this.#update(row, name, kv, scanned, prefixLength);
      else this.#receive(row, name, kv, decoded ?? this.#decode(name, kv), run);
    }
  }

  /** Passes a decoded value to the observer, or drops the key because the value is rejected. */
  #receive(row: number, name: string, kv: KeyedValue, decoded: Decoded<T>, run: WatchStoreRun): void {
    const { rejections } = this.#options;
    if (!decoded.ok) {
      rejections.add(decoded.rejection);
      if (run.mayDelete === 'never') return;
      this.#drop(row, name);
      this.#rejected.add(name);
      return;
    }
    if (decoded.dropped !== undefined) for (const detail of decoded.dropped) rejections.add(detail);
    this.#update(row, name, kv, decoded.value, bytesOfKey(run.prefix).length);
  }

  #update(row: number, name: string, kv: KeyedValue, value: T, prefixLength: number): void {
    if (this.#rejected.size > 0) this.#rejected.delete(name);
    this.#markReceived(row, kv, prefixLength);
    this.#observer.onUpdate(name, value);
  }

  #scan(name: string, kv: KeyedValue): T | undefined {
    const { scan } = this.#options;
    if (scan === undefined || !(kv instanceof WireKeyValue)) return undefined;
    try {
      return scan(name, kv.buffer, kv.valueAt, kv.valueEnd);
    } catch {
      return undefined; // `decode` reports the fault
    }
  }

  #decode(name: string, { key, value }: KeyedValue): Decoded<T> {
    try {
      return this.#options.decode(name, value, key);
    } catch (error) {
      return this.#decoderFault(error, name, key);
    }
  }

  #decoderFault(error: unknown, name: string, key: string): Decoded<never> {
    this.#guard.report(error);
    return rejectedAs('decoder-fault', 'value', name, 'the decoder failed', key);
  }

  /** Marks a key as one that the observer has and that was received in this run. Adds a row if `found` is -1. */
  #markReceived(found: number, kv: Pick<WatchEvent, 'key'>, prefixLength: number): void {
    const row = found < 0 ? this.#keys.add(bytesOf(kv), prefixLength) : found;
    if (this.#keys.setMark(row, this.#runNumber) === 0) this.#size++;
    this.#updates++;
  }

  /** Deletes a key from the observer if the observer has it. */
  #drop(row: number, name: string): void {
    if (this.#rejected.size > 0) this.#rejected.delete(name);
    if (this.#markAbsent(row)) this.#observer.onDelete(name);
  }

  /** Records that a key does not exist. Returns true if the observer had it. */
  #markAbsent(row: number): boolean {
    if (row < 0 || this.#keys.markOf(row) === 0) return false;
    this.#keys.setMark(row, 0);
    this.#size--;
    this.#deletes++;
    return true;
  }

  /** Sweeps the keys that the complete list of this run does not contain. Returns false if the signal has fired. */
  async #completeList({ keepUnlisted = false, onListed, signal }: WatchStoreRun): Promise<boolean> {
    if (!keepUnlisted && !(await this.#sweep(this.#runNumber, signal))) return false;
    this.#isSynced = true;
    this.#synced.resolve();
    onListed?.();
    return true;
  }

  /**
   * Deletes the keys that no run since run number `firstRun` has received. Returns false if the signal fires before the
   * end.
   */
  #sweep(firstRun: number, signal?: AbortSignal): Promise<boolean> {
    const { gate = OPEN_GATE } = this.#options;
    return gate.runSteps(this.#sweepSlices(firstRun, gate.slice), signal);
  }

  /** @param maxDeletes of each slice */
  *#sweepSlices(firstRun: number, maxDeletes: number): Generator<void, void, void> {
    for (let row = 0; row < this.#keys.limit; ) {
      this.#observer.batch(() => {
        row = this.#sweepFrom(row, firstRun, maxDeletes);
      });
      if (row < this.#keys.limit) yield;
    }
  }

  /** Deletes the stale keys of the next rows, within the limits of a slice. Returns the row after the visited ones. */
  #sweepFrom(from: number, firstRun: number, maxDeletes: number): number {
    const { gate = OPEN_GATE } = this.#options;
    const end = Math.min(from + VISITS_PER_DELETE * maxDeletes, this.#keys.limit);
    const endTime = gate.now() + MS_PER_SLICE;
    let deletes = 0;
    let row = from;
    for (; row < end && deletes < maxDeletes; row++) {
      const lastRun = this.#keys.markOf(row);
      if (lastRun === 0) this.#keys.release(row); // frees the row of a key that only an ended watch knew
      const isStale = lastRun > 0 && lastRun < firstRun;
      const name = isStale ? this.#keys.nameAt(row) : undefined;
      if (name === undefined) continue;
      this.#drop(row, name);
      if (++deletes % DELETES_PER_CHECK === 0 && gate.now() >= endTime) return row + 1;
    }
    return row;
  }
}

const OPTIONS = optionsWith({
  decode: FUNCTION,
  observer: objectWith({ onUpdate: FUNCTION, onDelete: FUNCTION }),
  rejections: objectWith({ add: FUNCTION }),
  decodeLarge: optional(FUNCTION),
  sizeOf: optional(FUNCTION),
  onEvent: optional(FUNCTION),
  onApplied: optional(FUNCTION),
});

checkArguments(WatchStore, {
  run: { run: objectWith({ backend: objectWith({ watch: FUNCTION }), prefix: TEXT, signal: SIGNAL }) },
  drain: { signal: optional(SIGNAL) },
  revisionOf: { name: TEXT },
});

/** Returns the rejection of a key that is longer than any key of Cilium. */
function tooLong(name: string, key: string): Decoded<never> {
  return rejectedAs('invalid-key', 'key', name, `must have at most ${MAX_NAME_LENGTH} characters`, key);
}

/** Returns the first revision at which the keys that a batch removes are known not to exist. */
function removalRevision(batch: readonly WatchEvent[], watch: Watch): number {
  let revision = 0;
  for (const { type, modRevision } of batch) {
    if (type === 'delete') revision = Math.max(revision, modRevision);
    else if (type === 'list-done') revision = Math.max(revision, watch.status().nextRevision - 1);
  }
  return revision;
}
