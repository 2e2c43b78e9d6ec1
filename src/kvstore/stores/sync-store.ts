import {
  BOOLEAN,
  BYTES,
  type Check,
  checkArgument,
  checkArguments,
  FUNCTION,
  matching,
  NUMBER,
  OBJECT,
  objectWith,
  optional,
  optionsWith,
  SIGNAL,
  TEXT,
} from '../../base/arguments.ts';
import type { Failure } from '../../base/failure.ts';
import { fired } from '../../base/follow-signal.ts';
import { deferred, sleep } from '../../base/sleep.ts';
import { type Runtime, type RuntimeOptions, withRuntime } from '../../base/system-clock.ts';
import { OPEN_GATE, type TurnGate } from '../../base/turn-gate.ts';
import { byteLengthOf, bytesOfCharacters, charactersOf } from '../codec/bytes.ts';
import {
  type KvstoreBackend,
  MAX_COMPARED_WRITES,
  MAX_WRITES,
  type WatchEvent,
  type WatchOptions,
  type WatchState,
  type WriteOptions,
} from '../session/backend.ts';
import { abortedError } from '../session/errors.ts';
import { KeyTable } from '../session/key-table.ts';
import { nameOf, rowOf } from '../session/table-event.ts';
import { Canary } from './canary.ts';
import { ContestedKeys } from './contested-keys.ts';
import { LeaseAdoption } from './lease-adoption.ts';
import { type Attempt, OwnWrites } from './own-writes.ts';
import { type Jobs, RetryQueue } from './retry-queue.ts';
import { ReturnedValues } from './returned-values.ts';
import {
  CANARY,
  DIFFERENT,
  type Job,
  JobColumn,
  PENDING,
  STORED,
  SyncKeys,
  UNKNOWN,
  UP_TO_DATE,
  WAITING,
  WANTED,
} from './sync-keys.ts';
import { WriteWaits } from './write-waits.ts';

/** Options of {@link SyncStore}. */
export interface SyncStoreOptions extends RuntimeOptions {
  /** The kvstore to write. The caller closes it. */
  readonly backend: KvstoreBackend;
  /** Ends in `/`. */
  readonly prefix: string;
  /** Binds the keys to the session of the client, as in `WriteOptions`. Default true. */
  readonly leased?: WriteOptions['leased'];
  /** Binds the canary to the session. Default: the value of `leased`. */
  readonly canaryLeased?: WriteOptions['leased'];
  /**
   * The *canary*: the key that marks the prefix as complete for readers. If it has a `/`, it is put back when another
   * client deletes it.
   */
  readonly canary?: string | undefined;
  /** Writes up to 384 keys in one transaction (`MAX_WRITES`), and two instead of 8 at the same time. Default false. */
  readonly batched?: boolean | undefined;
  /**
   * Watches the prefix, to put back keys that other clients overwrite or delete. Default true. If false, the owner must
   * pass the events and states of its own watch: see {@link SyncStore.receiveEvent} and
   * {@link SyncStore.receiveWatchState}.
   */
  readonly follow?: boolean | undefined;
  /**
   * Watches the folder of the canary, to put it back if another client deletes it. Default true. If false, the owner
   * must pass the events of its own watch: see {@link SyncStore.receiveCanaryEvent}.
   */
  readonly followCanary?: boolean | undefined;
  /**
   * Adopts the leases of an earlier session for existing keys with the wanted values, instead of writing these keys
   * again. Nothing is written before the existing keys are known. Requires a call of {@link SyncStore.endAdoption}, and
   * of {@link SyncStore.recordListed} if `follow` is false. Default false.
   */
  readonly adoptLeases?: boolean | undefined;
  /**
   * With `adoptLeases`: called with the name of each existing key that the owner has not set. Its value is wanted from
   * then on. Default: such keys are not wanted.
   */
  readonly onInherited?: ((name: string) => void) | undefined;
  /**
   * @internal With `follow`: called with the name of each existing key that is not wanted and that a restore of the
   * kvstore from a backup has brought back. Default: such keys stay.
   */
  readonly onReturned?: ((name: string) => void) | undefined;
  /**
   * Receives failed writes, which are retried, with `writes of` and the prefix. Reports each code once until no write
   * fails any more.
   */
  readonly onFailure?: ((error: unknown, task: string) => void) | undefined;
  /** Splits the writes of many stores, and the checks of a repeated `run`, into short turns. Default: not split. */
  readonly gate?: TurnGate | undefined;
  /** @internal The table of the watch of the owner, if `follow` is false. Default: a table of this store only. */
  readonly keys?: KeyTable | undefined;
}

/** Status of a {@link SyncStore}. */
export interface SyncStoreStatus {
  /** Number of wanted keys. */
  readonly keys: number;
  /** Number of keys that are not yet written or deleted in the kvstore. */
  readonly pending: number;
  readonly writes: number;
  /** Number of times a key was written again because another client had overwritten or deleted it. */
  readonly putBacks: number;
  readonly failures: number;
  readonly lastFailure: Failure | undefined;
  /** True if pending writes have failed, and have not succeeded since. */
  readonly isFailing: boolean;
  /** True if the canary has been written and all keys before it are in the kvstore. */
  readonly canaryWritten: boolean;
}

/** One transaction is prepared while the other is in flight. */
const CONCURRENT_BATCHES = 2;
/** Weight of a write at the gate: a write takes about 10 µs, and an event (weight 1) 2 to 3 µs. */
const WRITE_WEIGHT = 4;
/** A third of what etcd accepts in a request (`--max-request-bytes`, 1.5 MiB). */
const BATCH_BYTES = 512 * 1024;
/**
 * After an interruption, a watch delivers the event of an earlier write within this time. If it does so later, the key
 * is compared once.
 */
const ECHO_MS = 10_000;

/**
 * Keeps keys of a kvstore equal to those that their owner wants (SEMANTICS 5). The owner sets names and values, and the
 * store writes the differences. It has at most one pending write for each key, writes only the latest value, and
 * retries until the write *has landed*, which means that the kvstore has stored it. If a lease of the session is lost,
 * its keys are put again. If another client overwrites or deletes a key, the key is put back within seconds, or with
 * backoff if this is repeated. Writes are fenced: an abandoned write does not take effect after a later write.
 *
 * The canary is written when all keys that were wanted before it have landed. If keys are lost, the canary is
 * *stale*: it is deleted before they are put again, and written again after them.
 *
 * Not promised: an order between keys; a write of every value; the lease of this session, if another client puts the
 * same bytes under another lease (the key is put back when that lease ends). Nothing is written before `run`. When
 * `run` ends, the keys stay until their lease expires or the next process overwrites them.
 */
export class SyncStore {
  // upsert, delete ─► #enqueue ──────────────┐                 ┌─► #writeKeys ─► #recordDone ─┐
  // lost lease ─► #putLostKeys ─► #putAgain ─┼─► #makePending ─┤                              ├─► #settle
  // another client ─► #putBack ─► #putAgain ─┘                 └─► LeaseAdoption ─► #endWait ─┘
  //
  // When no key is pending, #offerCanary queues the canary, and #writeCanary writes it.

  readonly #options: SyncStoreOptions & Runtime;
  readonly #keys: SyncKeys;
  /** The pending keys that are not held back, the leases to be adopted, and the canary. */
  readonly #queue: RetryQueue<Job>;
  readonly #contested: ContestedKeys<Job>;
  readonly #ownWrites: OwnWrites;
  readonly #canary: Canary;
  readonly #adoption: LeaseAdoption;
  #wanted = 0;
  /** Number of keys to be written, deleted or adopted. */
  #pending = 0;
  /** The callers of {@link SyncStore.markSynced}. */
  readonly #canaryWaits = new WriteWaits<number>(() => this.#pending + this.#lossReports);
  /** The callers of {@link SyncStore.whenFlushed}, which do not wait for the canary. */
  readonly #landingWaits = new WriteWaits<number>(() => this.#pending + this.#lossReports);
  /** Number of losses of several leases whose keys are still being reported. */
  #lossReports = 0;
  /** True if writes may begin: the existing keys are known, or cannot be read. */
  #mayWrite = false;
  /** Resolves when {@link #mayWrite} becomes true. */
  readonly #writesAllowed = deferred();
  #isListed = false;
  /** Resolves when {@link #isListed} becomes true. */
  readonly #allListed = deferred();
  #writes = 0;
  #putBacks = 0;

  constructor(options: SyncStoreOptions) {
    checkArgument('new SyncStore: options', options, optionsWith(SYNC_OPTIONS));
    this.#options = withRuntime(options);
    this.#keys = new SyncKeys(options.keys ?? new KeyTable(), options.prefix);
    const { clock, random, batched, adoptLeases = false } = this.#options;
    if (!adoptLeases) this.#allowWrites();
    const { backend, prefix, gate, canary, leased = true, canaryLeased = leased } = options;
    this.#adoption = new LeaseAdoption(
      {
        backend,
        gate,
        keys: this.#keys,
        isLeased: leased === true,
        onWait: (job) => this.#queue.add(job),
        onEnd: (row, isAdopted) => this.#endWait(row, isAdopted),
      },
      adoptLeases,
    );
    this.#canary = new Canary({ backend, clock, key: canary, leased: canaryLeased });
    // The canary and leases are never written in one batch with keys.
    const weightOf = (job: Job): number => (job < 0 ? Number.POSITIVE_INFINITY : this.#weightOf(job));
    this.#queue = new RetryQueue({
      clock,
      random,
      concurrency: batched === true ? CONCURRENT_BATCHES : undefined,
      attempt: async (jobs, signal) => {
        if (this.#canary.isStale) await this.#canary.deleteStale(signal);
        const lease = this.#keys.leaseOf(jobs[0]);
        if (lease !== undefined) await this.#adoption.adopt(lease, signal);
        else if (jobs[0] === CANARY) await this.#writeCanary(signal);
        else await this.#writeKeys(jobs, signal);
      },
      batches: batched === true ? { maxJobs: MAX_WRITES, maxWeight: 1, weightOf } : undefined,
      newTable: () => new JobColumn(),
      onDone: (jobs) => this.#recordDone(jobs),
      onFailure: (error) => options.onFailure?.(error, `writes of ${prefix}`),
    });
    const putBack = (job: Job): void => this.#putBack(job);
    this.#contested = new ContestedKeys({ clock, random, putBack }, new JobColumn());
    this.#ownWrites = new OwnWrites(this.#keys, this.#contested, leased !== false);
  }

  status(): SyncStoreStatus {
    const { failures, lastFailure, isFailing } = this.#queue.status();
    return {
      keys: this.#wanted,
      pending: this.#pending,
      writes: this.#writes,
      putBacks: this.#putBacks,
      failures,
      lastFailure,
      isFailing,
      canaryWritten: this.#canary.isValid,
    };
  }

  /** Returns the wanted value of a name; undefined if it is not wanted. */
  get(name: string): Uint8Array | undefined {
    return this.#keys.wantedAt(this.#keys.rowOf(name));
  }

  /** Returns true if a name is wanted. */
  has(name: string): boolean {
    return this.#keys.is(this.#keys.rowOf(name), WANTED);
  }

  /** Iterates over the wanted names and values. */
  *entries(): Generator<[string, Uint8Array], void, void> {
    for (const row of this.#keys.rows()) {
      const value = this.#keys.wantedAt(row);
      if (value !== undefined) yield [this.#keys.nameAt(row), value];
    }
  }

  /**
   * Writes a key. Costs nothing if the same bytes have already landed. The store keeps a copy of `value`.
   *
   * @param isDifferent true if the kvstore is known to have another value, or none; the write then does not compare
   */
  upsert(name: string, value: Uint8Array, isDifferent = false): void {
    const row = this.#want(name, charactersOf(value));
    if (isDifferent && !this.#keys.is(row, PENDING)) this.#keys.set(row, DIFFERENT);
    this.#enqueue(row);
  }

  /** Sets the wanted value to the one that another client has put. The key is not written, and keeps its lease. */
  adoptValue(name: string, value: Uint8Array): void {
    const row = this.#want(name, charactersOf(value));
    this.#keys.set(row, STORED | UP_TO_DATE | UNKNOWN); // unknown because a running write may replace it
    this.#contested.cancel(row);
    this.#enqueue(row);
  }

  delete(name: string): void {
    const row = this.#keys.ensure(name);
    if (this.#keys.is(row, WANTED)) this.#wanted--;
    this.#keys.unwant(row);
    this.#keys.stopAwaitingEcho(row);
    this.#contested.cancel(row);
    this.#enqueue(row);
  }

  /**
   * Compares the value of a key in the kvstore with the wanted value, and writes the key if they differ. A canary that
   * is not written yet waits for this. Does nothing if the name is not wanted.
   */
  invalidate(name: string): void {
    this.#invalidate(this.#keys.rowOf(name));
  }

  /**
   * Declares the wanted keys complete. Resolves when all writes queued before have landed and the canary is written.
   */
  markSynced(): Promise<void> {
    const written = this.#canaryWaits.add();
    this.#offerCanary();
    return written;
  }

  /** Resolves when all writes queued before have landed, regardless of the canary. */
  whenFlushed(): Promise<void> {
    const flushed = this.#landingWaits.add();
    this.#landingWaits.complete(this.#landingWaits.due());
    return flushed;
  }

  /** Writes until the signal fires. One run at a time. */
  async run(signal: AbortSignal): Promise<void> {
    const { backend, prefix, canary } = this.#options;
    const scopes = canary === undefined ? [prefix] : [prefix, canary];
    const unsubscribe = backend.onLeaseLost({
      scopes,
      onLeaseLost: (keys) => this.#putLostKeys(keys),
      onLeasesLost: (reported) => void this.#awaitLostKeys(reported),
    });
    // Keys may have been lost since the last run.
    this.#retractCanary();
    const { gate = OPEN_GATE } = this.#options;
    const steps = this.#invalidateWhere(gate.slice, (row) => this.#keys.is(row, STORED));
    if (this.#keys.size > 0) await gate.runSteps(steps, signal);
    await Promise.all([this.#runQueue(signal), this.#followKeys(signal), this.#followCanary(signal)]);
    this.#contested.stop();
    unsubscribe();
  }

  /**
   * Receives an event of a watch of the prefix. Call it for each event, in order, if `follow` is false. Ignores names
   * that are not wanted, except while leases are adopted.
   */
  receiveEvent(name: string, event: WatchEvent): void {
    this.#receiveEvent(this.#keys.rowOf(name), name, event);
  }

  /**
   * @internal Like {@link SyncStore.receiveEvent}, with the row of the key in the shared table; -1 if the table does
   * not have it. Returns true if the name is wanted, or if {@link SyncStore.visitInherited} will visit the value.
   */
  receiveEventAt(row: number, event: WatchEvent): boolean {
    return this.#receiveEvent(row, undefined, event);
  }

  /**
   * Records that the watch of the prefix has delivered all existing keys. Call it if `adoptLeases` is set and `follow`
   * is false.
   */
  recordListed(): void {
    this.#isListed = true;
    this.#allListed.resolve();
    this.#allowWrites();
  }

  /**
   * Receives the state of a watch of the prefix. Call it for each state if `follow` is false. After an interruption,
   * the watch should soon deliver the events of all stored puts. Keys whose events are not delivered in time are
   * compared, because another client may have deleted them during the interruption.
   */
  async receiveWatchState(state: WatchState, signal: AbortSignal): Promise<void> {
    const isWatching = state === 'watching';
    this.#ownWrites.isWatching = isWatching;
    // Writes do not wait for a broken watch.
    if (!isWatching && state !== 'listing') this.#allowWrites();
    const { echoes, awaitedEchoes } = this.#keys;
    if (!isWatching || awaitedEchoes === 0) return;
    const { clock, gate = OPEN_GATE } = this.#options;
    await sleep(clock, ECHO_MS, signal);
    const steps = this.#invalidateWhere(gate.slice, (row) => this.#keys.isEchoBefore(row, echoes));
    gate.runInBackground(steps, { signal });
  }

  /**
   * Receives an event of a watch of the canary. Call it for each event if `followCanary` is false. Ignores other keys.
   */
  receiveCanaryEvent({ type, key }: WatchEvent): void {
    if (key !== this.#options.canary) return;
    if (type !== 'delete') this.#contested.cancel(CANARY);
    else if (this.#canary.isValid) this.#contested.recordDelete(CANARY);
  }

  /** Resolves when the watch of the prefix has delivered all keys that existed when it began. */
  get allListed(): Promise<void> {
    return this.#allListed.promise;
  }

  /**
   * @internal Calls `visit` with each unwanted key that exists and its value, while leases are adopted. Yields after
   * each `slice` rows.
   */
  *visitInherited(
    slice: number,
    visit: (name: string, value: Uint8Array) => void,
  ): Generator<void, void, void> {
    if (!this.#adoption.isActive) return;
    yield* this.#keys.visit(slice, (row) => {
      const inherited = this.#keys.is(row, WANTED | PENDING) ? undefined : this.#keys.inheritedAt(row);
      if (inherited !== undefined) visit(this.#keys.nameAt(row), bytesOfCharacters(inherited));
    });
  }

  /** Forgets unwanted values of earlier sessions. Keys that become wanted later are written. */
  async endAdoption(): Promise<void> {
    if (!this.#adoption.isActive) return;
    this.#adoption.end();
    this.#allowWrites();
    const { gate = OPEN_GATE } = this.#options;
    await gate.runSteps(this.#keys.visit(gate.slice, (row) => this.#forgetUnneeded(row)));
  }

  #want(name: string, value: string): number {
    const row = this.#keys.ensure(name);
    if (!this.#keys.is(row, WANTED)) this.#wanted++;
    this.#keys.want(row, value);
    return row;
  }

  /** Makes a changed key pending, unless the kvstore has the wanted value. Present waiters do not require it. */
  #enqueue(row: number): void {
    if (!this.#keys.is(row, PENDING)) {
      if (this.#keys.is(row, UP_TO_DATE)) return;
      this.#canaryWaits.recordQueued(row);
      this.#landingWaits.recordQueued(row);
    }
    this.#makePending(row);
  }

  /** Makes a key pending, and queues it unless it must wait for its lease or for the existing keys. */
  #makePending(row: number): void {
    if (!this.#keys.is(row, PENDING)) this.#pending++;
    this.#keys.set(row, PENDING);
    if (this.#queue.has(row) || (!this.#adoption.wait(row) && this.#mayWrite)) this.#queue.add(row);
  }

  async #runQueue(signal: AbortSignal): Promise<void> {
    const { adoptLeases = false, gate = OPEN_GATE } = this.#options;
    await Promise.race([this.#writesAllowed.promise, fired(signal)]);
    if (adoptLeases && this.#pending > 0) await gate.runSteps(this.#queueHeldBack(gate.slice), signal);
    await this.#queue.run(signal);
  }

  /** Queues the pending keys that do not wait for a lease, in steps of `slice` rows. */
  #queueHeldBack(slice: number): Generator<void, void, void> {
    return this.#keys.visit(slice, (row) => {
      if (this.#keys.is(row, PENDING)) this.#makePending(row);
    });
  }

  #allowWrites(): void {
    this.#mayWrite = true;
    this.#writesAllowed.resolve();
  }

  /** Writes keys in one transaction. */
  async #writeKeys(rows: Jobs<Job>, signal: AbortSignal): Promise<void> {
    const { backend, leased = true, gate = OPEN_GATE } = this.#options;
    if (!(await gate.pass(rows.length * WRITE_WEIGHT, signal))) throw abortedError();
    const attempts: Attempt[] = [];
    for (const row of rows) if (!this.#adoption.wait(row)) attempts.push(this.#ownWrites.begin(row));
    if (attempts.length === 0) return;
    try {
      const { revision, isComplete } = await backend.writeAll(attempts, { fenced: true, leased, signal });
      this.#writes += attempts.length;
      this.#ownWrites.recordLanded(attempts, revision, isComplete);
    } catch (error) {
      this.#ownWrites.recordFailed(attempts);
      throw error;
    }
  }

  #weightOf(row: number): number {
    const bytes = this.#keys.sizeOf(row);
    return Math.max(bytes / BATCH_BYTES, this.#ownWrites.mayBeEqual(row) ? 1 / MAX_COMPARED_WRITES : 0);
  }

  #recordDone(jobs: readonly Job[]): void {
    for (const job of jobs) if (job >= 0 && !this.#keys.is(job, WAITING)) this.#settle(job);
    this.#landingWaits.complete(this.#landingWaits.due());
    this.#offerCanary();
  }

  /** Records that a key is written, deleted or adopted. */
  #settle(row: number): void {
    this.#pending--;
    this.#keys.update(row, PENDING, 0);
    this.#forgetUnneeded(row);
    this.#canaryWaits.forgetQueued(row);
    this.#landingWaits.forgetQueued(row);
  }

  /** Removes the state of a key that is neither wanted nor pending, and was not left by an earlier session. */
  #forgetUnneeded(row: number): void {
    if (this.#keys.is(row, WANTED | PENDING) || this.#keys.inheritedAt(row) !== undefined) return;
    this.#contested.forget(row);
    this.#keys.delete(row);
  }

  /** Queues the canary if it would be valid now, or if it is stale. */
  #offerCanary(): void {
    if (this.#canary.isStale || this.#canaryWaits.due().length > 0) this.#queue.add(CANARY);
  }

  async #writeCanary(signal: AbortSignal): Promise<void> {
    const due = this.#canaryWaits.due();
    if (due.length > 0) await this.#canary.write(signal, () => this.#canaryWaits.complete(due));
  }

  /** Deletes the canary before lost keys are put again, and writes it again after them. */
  #retractCanary(): void {
    if (!this.#canary.retract()) return;
    if (this.#canary.mayExist) this.#queue.add(CANARY);
    void this.markSynced();
  }

  async #followKeys(signal: AbortSignal): Promise<void> {
    const { prefix, follow = true, onReturned } = this.#options;
    if (!follow) return;
    const { table: keys } = this.#keys;
    const prefixLength = byteLengthOf(prefix);
    const returned = new ReturnedValues();
    const observe = (event: WatchEvent): void => {
      if (event.type === 'list-done') {
        this.recordListed();
        return;
      }
      this.receiveEventAt(rowOf(event, keys, prefixLength), event);
      const isReturned = returned.recordEvent(event.modRevision) && event.type !== 'delete';
      if (isReturned && !this.has(nameOf(event, prefix))) onReturned?.(nameOf(event, prefix));
    };
    const onState = (state: WatchState): void => {
      returned.recordState(state);
      void this.receiveWatchState(state, signal);
    };
    await this.#watch(prefix, observe, { signal, onState, keys });
    keys.forgetKnown();
  }

  /**
   * Watches the canary, and puts it back if it was deleted. A changed canary is not put back, because its value does
   * not matter.
   */
  async #followCanary(signal: AbortSignal): Promise<void> {
    const { canary, followCanary = true } = this.#options;
    const folder = canary?.slice(0, canary.lastIndexOf('/') + 1) ?? '';
    if (folder === '' || !followCanary) return; // only a prefix that ends in a slash can be watched
    await this.#watch(folder, (event) => this.receiveCanaryEvent(event), { signal });
  }

  async #watch(prefix: string, observe: (event: WatchEvent) => void, options: WatchOptions): Promise<void> {
    const { backend, gate = OPEN_GATE } = this.#options;
    for await (const batch of backend.watch(prefix, options)) {
      const observeAll = (): void => {
        for (const event of batch) observe(event);
      };
      if (!(await gate.run(batch.length, observeAll, options.signal))) break;
    }
  }

  #receiveEvent(found: number, name: string | undefined, event: WatchEvent): boolean {
    const isOfEarlierSession =
      this.#adoption.isActive && !this.#keys.is(found, STORED) && !this.#ownWrites.isRunning(found);
    const row = isOfEarlierSession ? this.#recordInherited(found, name, event) : found;
    if (!this.#keys.is(row, WANTED)) return isOfEarlierSession && event.type !== 'delete';
    this.#ownWrites.receiveEvent(row, event);
    return true;
  }

  /** Puts a key or the canary again because another client has changed it. */
  #putBack(job: Job): void {
    const isCanary = job === CANARY;
    if (isCanary ? !this.#canary.isValid : !this.#keys.is(job, WANTED)) return;
    this.#putBacks++;
    if (!isCanary) {
      this.#keys.set(job, DIFFERENT);
      this.#putAgain(job);
    } else {
      this.#canary.recordDelete();
      void this.markSynced();
    }
  }

  #invalidate(row: number): void {
    if (!this.#keys.is(row, WANTED)) return;
    this.#keys.set(row, UNKNOWN);
    this.#putAgain(row);
  }

  /** Queues a comparison of the keys that satisfy `isDue`, in steps of `slice` rows. */
  #invalidateWhere(slice: number, isDue: (row: number) => boolean): Generator<void, void, void> {
    return this.#keys.visit(slice, (row) => {
      if (isDue(row)) this.#invalidate(row);
    });
  }

  /** Makes an unchanged key pending, because the kvstore may have lost it. All waiters and the canary require it. */
  #putAgain(row: number): void {
    this.#keys.update(row, STORED | UP_TO_DATE, 0);
    this.#keys.disinherit(row);
    this.#canaryWaits.forgetQueued(row);
    this.#landingWaits.forgetQueued(row);
    this.#canary.abortWrite();
    this.#makePending(row);
  }

  /** Puts the keys of a lost lease again. */
  #putLostKeys(keys: readonly string[]): void {
    const { prefix, canary, leased = true, canaryLeased = leased } = this.#options;
    for (const key of keys) {
      if (key === canary && canaryLeased) {
        this.#canary.recordExpiry();
        this.#retractCanary();
      }
      const lost = key.startsWith(prefix) ? this.#keys.rowOf(key.slice(prefix.length)) : -1;
      if (!leased || !this.#keys.is(lost, WANTED)) continue;
      this.#retractCanary();
      this.#putAgain(lost);
    }
  }

  /** Prevents the canary from being written until all lost keys are reported. */
  async #awaitLostKeys(reported: Promise<unknown>): Promise<void> {
    this.#lossReports++;
    await reported;
    this.#lossReports--;
    this.#offerCanary();
    this.#landingWaits.complete(this.#landingWaits.due());
  }

  /**
   * Records the value that an earlier session has left, and its lease, which may be adopted. Returns the row of the
   * key, or -1.
   */
  #recordInherited(found: number, name: string | undefined, event: WatchEvent): number {
    if (event.type === 'delete') {
      if (!this.#keys.has(found)) return found;
      this.#keys.disinherit(found);
      this.#forgetUnneeded(found);
      return found;
    }
    const row = found < 0 ? this.#keys.ensure(name ?? nameOf(event, this.#options.prefix)) : found;
    if (!this.#keys.has(row)) this.#keys.add(row);
    this.#keys.inherit(row, event);
    if (!this.#keys.is(row, WANTED | PENDING)) this.#wantInherited(row);
    else if (this.#keys.is(row, PENDING) && !this.#queue.has(row)) this.#adoption.wait(row);
    return row;
  }

  /** Makes the inherited value of a key the wanted value if `onInherited` is set. */
  #wantInherited(row: number): void {
    const { onInherited } = this.#options;
    const inherited = this.#keys.inheritedAt(row);
    if (onInherited === undefined || this.#isListed || inherited === undefined) return;
    const name = this.#keys.nameAt(row);
    onInherited(name);
    this.#enqueue(this.#want(name, inherited));
  }

  /** Ends the wait of a key for its lease. Queues the key if it was not adopted. */
  #endWait(row: number, isAdopted: boolean): void {
    if (!isAdopted || this.#queue.has(row)) {
      this.#makePending(row);
      return;
    }
    this.#ownWrites.recordAdopted(row);
    this.#settle(row);
  }
}

/** Options of a store that writes. */
export const SYNC_OPTIONS: Readonly<Record<string, Check>> = {
  backend: OBJECT,
  prefix: matching('must end in "/"', (value) => typeof value === 'string' && value.endsWith('/')),
  canary: optional(TEXT),
  batched: optional(BOOLEAN),
  follow: optional(BOOLEAN),
  followCanary: optional(BOOLEAN),
  adoptLeases: optional(BOOLEAN),
  onInherited: optional(FUNCTION),
};

checkArguments(SyncStore, {
  upsert: { name: TEXT, value: BYTES },
  adoptValue: { name: TEXT, value: BYTES },
  delete: { name: TEXT },
  get: { name: TEXT },
  has: { name: TEXT },
  invalidate: { name: TEXT },
  receiveEvent: { name: TEXT, event: objectWith({ type: TEXT, modRevision: NUMBER }) },
  receiveCanaryEvent: { event: objectWith({ type: TEXT, key: TEXT }) },
  receiveWatchState: { state: TEXT, signal: SIGNAL },
  run: { signal: SIGNAL },
});
