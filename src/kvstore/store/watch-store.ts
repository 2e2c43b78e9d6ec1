import { checkArguments, FUNCTION, objectWith, optional, SIGNAL, TEXT } from '../../base/arguments.ts';
import { assert } from '../../base/assert.ts';
import type { Failure } from '../../base/failure.ts';
import { CallbackGuard, type FaultListener } from '../../base/guard.ts';
import type { RejectionLog } from '../../base/rejection.ts';
import { OPEN_GATE, type TurnGate } from '../../base/turn-gate.ts';
import { type Decoded, rejectedAs } from '../../net/fields.ts';
import type { KvstoreBackend, Watch, WatchEvent, WatchState, WatchStatus } from '../backend.ts';
import { runSteps, slicesOf } from './batch-slices.ts';

/** Decodes the value of a key. `name` is the key below the prefix, `at` the whole key for rejections. */
export type StoreDecoder<T> = (name: string, value: Uint8Array, at: string) => Decoded<T>;

/**
 * Receives a store's content, synchronously and in order. What it throws is counted and reported, and does not keep the
 * store from going on; the key counts as received.
 */
export interface StoreObserver<T> {
  /** The key has this value now. */
  onUpdate(name: string, value: T): void;
  /** The key is gone, or its value is not accepted any more. Only for keys that `onUpdate` was called for. */
  onDelete(name: string): void;
  /** Runs `apply`, during which the two above are called for one batch. By default it is just run. */
  batch?(apply: () => void): void;
}

/** The observer behind a guard: what it throws is counted and reported there. Its `batch` always applies, once. */
export function guardedObserver<T>(
  observer: StoreObserver<T>,
  guard: CallbackGuard,
): Required<StoreObserver<T>> {
  const update = (name: string, value: T): void => observer.onUpdate(name, value);
  const drop = (name: string): void => observer.onDelete(name);
  return {
    onUpdate: (name, value) => void guard.call(update, name, value),
    onDelete: (name) => void guard.call(drop, name),
    batch: (apply) => {
      let isApplied = false;
      const once = (): void => {
        if (!isApplied) {
          isApplied = true;
          apply();
        }
      };
      guard.call(() => observer.batch?.(once));
      once();
    },
  };
}

/** Options of {@link WatchStore}. */
export interface WatchStoreOptions<T> {
  readonly decode: StoreDecoder<T>;
  readonly observer: StoreObserver<T>;
  /** Where rejected values are counted (I12). */
  readonly rejections: RejectionLog;
  /**
   * Shared by all stores of one process. Batches pass it in slices by weight, large values piece by piece; by default
   * each batch is applied at once.
   */
  readonly gate?: TurnGate | undefined;
  /**
   * Decodes a large value in steps of some milliseconds, each of which passes the gate. It must return what `decode`
   * does; `undefined` for a value that is not large: `decode` is called. See `decodeInPieces`.
   */
  readonly decodeLarge?:
    | ((name: string, value: Uint8Array, at: string) => Generator<undefined, Decoded<T>> | undefined)
    | undefined;
  /** Called after each batch. */
  readonly onApplied?: (() => void) | undefined;
  /** Receives what the observer or the decoder has thrown. */
  readonly onFault?: FaultListener | undefined;
}

/** Where a run of a {@link WatchStore} reads. */
export interface WatchStoreRun {
  readonly backend: KvstoreBackend;
  /** Ends in `/`. May differ from run to run, as long as the names below it mean the same. */
  readonly prefix: string;
  /** Ends the run. */
  readonly signal: AbortSignal;
  /** End the run, deleting nothing, when the store is another one or was restored: see `WatchOptions`. */
  readonly endOnDivergence?: boolean | undefined;
  /**
   * Asked before anything is taken away, by a delete or because a complete list does not show it; `revision` is the
   * first that is known not to have it. False: what was to go stays until the complete list of a later run; the run goes
   * on, but is not synced by such a list. Must not reject. By default everything may be taken away.
   */
  readonly mayDelete?: ((revision: number) => Promise<boolean>) | undefined;
  /** A complete list takes nothing away: what it does not show stays until that of a later run. */
  readonly keepUnlisted?: boolean | undefined;
  /** Called when the complete list of this run has been applied, and what it does not show is swept. */
  readonly onListed?: (() => void) | undefined;
  /** As in `WatchOptions`, with the failure that has led to the state, if one has. */
  readonly onState?: ((state: WatchState, failure: Failure | undefined) => void) | undefined;
}

/** A store as data. */
export interface WatchStoreStatus {
  /** Keys whose value the observer holds. */
  readonly keys: number;
  /** Whether the content has been complete once, and not drained since. */
  readonly synced: boolean;
  /** Keys whose present value is rejected. */
  readonly rejected: number;
  readonly updates: number;
  readonly deletes: number;
  /** What the observer and the decoder have thrown. */
  readonly faults: number;
  /** Undefined while the store is not running. */
  readonly watch: WatchStatus | undefined;
}

/** What beginning to read weighs at the gate, in events: up to a page of them is under way then. */
const FIRST_PAGE = 1024;
/** Names that a slice of a sweep looks at for each that it may delete: a look takes some 20 ns, a delete some µs. */
const LOOKS_PER_DELETE = 16;

/**
 * Follows a prefix of a kvstore and keeps an observer equal to it (SEMANTICS 5). What the observer holds is at any moment a
 * function of what the kvstore held: a key whose value is rejected is **absent**, also when an earlier value of
 * it was accepted, because a fresh process could not know that one (I9).
 *
 * It may be run again, on another backend too, after a run has ended: what it knew stays until the new list is
 * complete, and then what the list did not show is deleted (the sweep). Ending a run deletes nothing; `drain` does.
 * Sweep and drain go on in slices of the gate (512 deletes), each a batch of the observer; between slices the observer
 * holds what is not yet deleted. A sweep that is cut short by the end of its run leaves the rest to that of the next one.
 */
export class WatchStore<T> {
  readonly #options: WatchStoreOptions<T>;
  readonly #guard: CallbackGuard;
  readonly #observer: Required<StoreObserver<T>>;
  /** Names that the observer holds → the run that last showed them. */
  readonly #held = new Map<string, number>();
  readonly #rejected = new Set<string>();
  readonly #synced: Promise<void>;
  #markSynced: () => void = () => {};
  #isSynced = false;
  #run = 0;
  #watch: Watch | undefined;
  #cursor = 0;
  #updates = 0;
  #deletes = 0;

  constructor(options: WatchStoreOptions<T>) {
    this.#options = options;
    this.#guard = new CallbackGuard(options.onFault);
    this.#observer = guardedObserver(options.observer, this.#guard);
    this.#synced = new Promise((resolve) => {
      this.#markSynced = resolve;
    });
  }

  /** Resolves once the content has been complete for the first time; never, if that never happens. */
  get synced(): Promise<void> {
    return this.#synced;
  }

  get isSynced(): boolean {
    return this.#isSynced;
  }

  /** Keys whose value the observer holds. */
  get size(): number {
    return this.#held.size;
  }

  /** Keys whose present value is rejected. */
  get rejected(): number {
    return this.#rejected.size;
  }

  /**
   * Everything that was written before this revision, on the backend of this run, has been applied. 0 while the prefix is not
   * followed, and until the next batch after that: what is known may be of another history than the store's.
   */
  get cursor(): number {
    const { state, nextRevision } = this.#watch?.status() ?? {};
    return state === 'watching' && nextRevision !== undefined ? Math.min(this.#cursor, nextRevision) : 0;
  }

  status(): WatchStoreStatus {
    return {
      keys: this.#held.size,
      synced: this.#isSynced,
      rejected: this.#rejected.size,
      updates: this.#updates,
      deletes: this.#deletes,
      faults: this.#guard.faults,
      watch: this.#watch?.status(),
    };
  }

  /** Follows the prefix until the signal fires; says why the run has ended. One run at a time. */
  async run(run: WatchStoreRun): Promise<'ended' | 'diverged'> {
    assert(this.#watch === undefined, 'the store is running already');
    const { backend, prefix, signal, endOnDivergence, onState } = run;
    this.#run++;
    this.#rejected.clear();
    const { gate = OPEN_GATE, onApplied } = this.#options;
    const watch = backend.watch(prefix, {
      signal,
      endOnDivergence,
      onState: (state) => {
        if (state !== 'watching') this.#cursor = 0;
        onState?.(state, watch.status().lastFailure);
      },
    });
    this.#watch = watch;
    try {
      await gate.pass(FIRST_PAGE, signal);
      for await (const batch of watch) {
        const asks = run.mayDelete !== undefined && this.#takesAway(batch);
        const mayDelete = !asks || (await run.mayDelete(removalRevision(batch, watch)));
        if (signal.aborted) break;
        if (!(await this.#applyInTurns(batch, gate, run, mayDelete))) break;
        const isListed = mayDelete && batch.some(({ type }) => type === 'list-done');
        if (isListed && !(await this.#listDone(run))) break;
        const { queuedBytes, nextRevision } = watch.status();
        if (queuedBytes === 0) this.#cursor = nextRevision;
        onApplied?.();
      }
      return watch.status().state === 'diverged' ? 'diverged' : 'ended';
    } finally {
      this.#watch = undefined;
    }
  }

  /**
   * Deletes every key from the observer, in slices: it is not synced any more. Resolves to whether all are deleted; once
   * the signal has fired the rest stays, until it is drained again or swept by a run. The store must not be running,
   * and not be run meanwhile.
   */
  drain(signal?: AbortSignal): Promise<boolean> {
    assert(this.#watch === undefined, 'a running store cannot be drained');
    this.#rejected.clear();
    this.#isSynced = false;
    return this.#sweep(Number.POSITIVE_INFINITY, signal);
  }

  /** Whether all of the batch was applied: not if the signal has fired. */
  async #applyInTurns(
    batch: readonly WatchEvent[],
    gate: TurnGate,
    run: WatchStoreRun,
    mayDelete: boolean,
  ): Promise<boolean> {
    for (const { events, weight } of slicesOf(batch)) {
      const [first] = events;
      const decoded = first && (await this.#decodeInTurns(first, gate, run));
      const apply = (): void => this.#observer.batch(() => this.#apply(events, run, mayDelete, decoded));
      if (!(await gate.run(weight, apply, run.signal))) return false;
    }
    return true;
  }

  /** Decodes the value of an event if it is large (that of a delete is empty); `undefined` otherwise. */
  async #decodeInTurns(
    { key, value }: WatchEvent,
    gate: TurnGate,
    { prefix, signal }: WatchStoreRun,
  ): Promise<Decoded<T> | undefined> {
    const name = key.slice(prefix.length);
    const steps = this.#options.decodeLarge?.(name, value, key);
    try {
      return steps && (await runSteps(steps, gate, signal));
    } catch (error) {
      return this.#decoderFault(error, name, key);
    }
  }

  /** Whether a batch may take away something that the observer holds. */
  #takesAway(batch: readonly WatchEvent[]): boolean {
    return this.#held.size > 0 && batch.some(({ type }) => type === 'delete' || type === 'list-done');
  }

  /** @param decoded the value of the first event, if it was decoded before */
  #apply(batch: readonly WatchEvent[], run: WatchStoreRun, mayDelete: boolean, decoded?: Decoded<T>): void {
    for (const [index, { type, key, value }] of batch.entries()) {
      const name = key.slice(run.prefix.length);
      const known = index === 0 ? decoded : undefined;
      if (type === 'delete' && mayDelete) this.#delete(name);
      else if (type === 'create' || type === 'modify')
        this.#update(name, known ?? this.#decode(name, value, key));
    }
  }

  #update(name: string, decoded: Decoded<T>): void {
    if (!decoded.ok) {
      this.#options.rejections.add(decoded.rejection);
      this.#drop(name);
      this.#rejected.add(name);
      return;
    }
    if (this.#rejected.size > 0) this.#rejected.delete(name);
    this.#held.set(name, this.#run);
    this.#updates++;
    this.#observer.onUpdate(name, decoded.value);
  }

  #decode(name: string, value: Uint8Array, key: string): Decoded<T> {
    try {
      return this.#options.decode(name, value, key);
    } catch (error) {
      return this.#decoderFault(error, name, key);
    }
  }

  #decoderFault(error: unknown, name: string, key: string): Decoded<never> {
    this.#guard.report(error);
    return rejectedAs('decoder-fault', 'value', name, 'the decoder has thrown', key);
  }

  #delete(name: string): void {
    this.#rejected.delete(name);
    this.#drop(name);
  }

  #drop(name: string): void {
    if (!this.#held.delete(name)) return;
    this.#deletes++;
    this.#observer.onDelete(name);
  }

  /** What an earlier run knew and this one's complete list has not shown is stale. */
  async #listDone({ keepUnlisted = false, onListed, signal }: WatchStoreRun): Promise<boolean> {
    if (!keepUnlisted && !(await this.#sweep(this.#run, signal))) return false;
    this.#isSynced = true;
    this.#markSynced();
    onListed?.();
    return true;
  }

  /** Deletes what only runs before this one have shown; false when the signal has fired before all of it was. */
  #sweep(before: number, signal?: AbortSignal): Promise<boolean> {
    const { gate = OPEN_GATE } = this.#options;
    return gate.runSteps(this.#slices(before, gate.slice), signal);
  }

  *#slices(before: number, size: number): Generator<void, void, void> {
    const held = this.#held.entries();
    let isOver = false;
    while (!isOver) {
      this.#observer.batch(() => {
        isOver = this.#slice(held, before, size);
      });
      if (!isOver) yield;
    }
  }

  /** Deletes what is stale of the next names; whether these were the last. */
  #slice(held: Iterator<[string, number]>, before: number, size: number): boolean {
    let dropped = 0;
    for (let looks = 0; looks < LOOKS_PER_DELETE * size && dropped < size; looks++) {
      const next = held.next();
      if (next.done) return true;
      const [name, run] = next.value;
      if (run >= before) continue;
      this.#drop(name);
      dropped++;
    }
    return false;
  }
}

checkArguments(WatchStore, {
  run: { run: objectWith({ backend: objectWith({ watch: FUNCTION }), prefix: TEXT, signal: SIGNAL }) },
  drain: { signal: optional(SIGNAL) },
});

/** The first revision that is known not to have what a batch takes away. */
function removalRevision(batch: readonly WatchEvent[], watch: Watch): number {
  let revision = 0;
  for (const { type, modRevision } of batch) {
    if (type === 'delete') revision = Math.max(revision, modRevision);
    else if (type === 'list-done') revision = Math.max(revision, watch.status().nextRevision - 1);
  }
  return revision;
}
