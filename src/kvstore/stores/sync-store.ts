import { BYTES, checkArguments, NUMBER, objectWith, SIGNAL, TEXT } from '../../base/arguments.ts';
import { assert } from '../../base/assert.ts';
import type { Failure } from '../../base/failure.ts';
import { fired } from '../../base/follow-signal.ts';
import { deferred, sleep } from '../../base/sleep.ts';
import { type Runtime, type RuntimeOptions, withRuntime } from '../../base/system-clock.ts';
import { OPEN_GATE, type TurnGate } from '../../base/turn-gate.ts';
import { byteLengthOf, bytesOfCharacters, charactersOf, equalsCharacters } from '../codec/bytes.ts';
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
import { charactersOfValue, nameOf, rowOf } from '../session/table-event.ts';
import type { LeaseID } from '../session/transport.ts';
import { Canary } from './canary.ts';
import { ContestedKeys } from './contested-keys.ts';
import { type Jobs, RetryQueue } from './retry-queue.ts';
import { ReturnedValues } from './returned-values.ts';
import { isLanded, JOB_ENTRIES, type Job, SyncKey } from './sync-key.ts';
import { SyncKeys } from './sync-keys.ts';
import { type Attempt, adoptLeases, writeOf } from './write-attempt.ts';
import { WriteWaits } from './write-waits.ts';

/** Options of {@link SyncStore}. */
export interface SyncStoreOptions extends RuntimeOptions {
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
  /** Number of concurrent transactions. Default 8; 2 with `batched`. */
  readonly concurrency?: number | undefined;
  /** Writes up to 128 keys in one transaction (`MAX_WRITES`). Default false. */
  readonly batched?: boolean | undefined;
  /**
   * Watches the prefix, to put back keys that other clients overwrite or delete. Default true. If false, the owner must
   * pass the events and states of its own watch: see {@link SyncStore.receiveEvent} and {@link SyncStore.watchState}.
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
/** Unknown: the revision of a put by another client, or by a failed write of this one. */
const UNKNOWN_REVISION = 0;
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
 * *false*: it is deleted before they are put again, and written again after them.
 *
 * Not promised: an order between keys; a write of every value; the lease of this session, if another client puts the
 * same bytes under another lease (the key is put back when that lease ends). Nothing is written before `run`. When
 * `run` ends, the keys stay until their lease expires or the next process overwrites them.
 */
export class SyncStore {
  readonly #options: SyncStoreOptions & Runtime;
  /** The names that are wanted, queued, being written, or left by an earlier session. */
  readonly #keys: SyncKeys;
  #wanted = 0;
  /** Number of landed puts that the watch has not shown yet. */
  #awaitedEchoes = 0;
  #isAdopting: boolean;
  /** Resolves when writes may begin: the existing keys are known, or cannot be read. */
  readonly #writesMayBegin = deferred();
  /** Resolves when the watch has delivered all existing keys. */
  readonly #allListed = deferred();
  #isListed = false;
  readonly #canary: Canary;
  readonly #queue: RetryQueue<Job>;
  readonly #contested: ContestedKeys<Job>;
  /** Number of puts whose events are or were awaited. */
  #puts = 0;
  /** True if the watch has read the prefix and follows its changes, so that it shows each later delete. */
  #isWatching = false;
  readonly #canaryWaits = new WriteWaits(() => this.#pending + this.#lossReports);
  /** The callers that wait for their writes only. */
  readonly #landingWaits = new WriteWaits(() => this.#pending + this.#lossReports);
  /** Number of running reports of the keys of lost leases. */
  #lossReports = 0;
  #writes = 0;
  #putBacks = 0;

  constructor(options: SyncStoreOptions) {
    assert(options.prefix.endsWith('/'), `the prefix "${options.prefix}" must end in "/"`);
    this.#options = withRuntime(options);
    this.#keys = new SyncKeys(options.keys ?? new KeyTable());
    const {
      clock,
      random,
      batched,
      adoptLeases = false,
      concurrency = batched === true ? CONCURRENT_BATCHES : undefined,
    } = this.#options;
    this.#isAdopting = adoptLeases;
    if (!this.#isAdopting) this.#writesMayBegin.resolve();
    const { backend, canary, leased = true, canaryLeased = leased } = options;
    this.#canary = new Canary({ backend, clock, key: canary, leased: canaryLeased });
    const weightOf = (job: Job): number =>
      job instanceof Canary ? Number.POSITIVE_INFINITY : this.#weightOf(job);
    this.#queue = new RetryQueue({
      clock,
      random,
      concurrency,
      attempt: async (jobs, signal) => {
        if (this.#canary.isFalse) await this.#canary.deleteFalse(signal);
        if (jobs[0] instanceof Canary) await this.#syncCanary(signal);
        else await this.#sync(jobs, signal);
      },
      batches: batched === true ? { maxJobs: MAX_WRITES, maxWeight: 1, weightOf } : undefined,
      entries: JOB_ENTRIES,
      onDone: (jobs) => this.#recordDone(jobs),
      onFailure: (error) => options.onFailure?.(error, `writes of ${options.prefix}`),
    });
    this.#contested = new ContestedKeys({ clock, random, putBack: (key) => this.#putBack(key) });
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
      canaryWritten: this.#canary.isTrue,
    };
  }

  /** Returns the wanted value of a name; undefined if it is not wanted. */
  get(name: string): Uint8Array | undefined {
    const wanted = this.#keys.get(name)?.wanted;
    return wanted === undefined ? undefined : bytesOfCharacters(wanted);
  }

  /** Returns true if a name is wanted. */
  has(name: string): boolean {
    return this.#keys.get(name)?.wanted !== undefined;
  }

  /** Iterates over the wanted names and values. */
  *entries(): Generator<[string, Uint8Array], void, void> {
    for (const { name, wanted } of this.#keys.values())
      if (wanted !== undefined) yield [name, bytesOfCharacters(wanted)];
  }

  /**
   * Writes a key. Costs nothing if the same bytes have already landed. The store keeps a copy of `value`.
   *
   * @param isDifferent true if the kvstore is known to have another value, or none; the write then does not compare
   */
  upsert(name: string, value: Uint8Array, isDifferent = false): void {
    const key = this.#want(name, charactersOf(value));
    if (isDifferent && !key.isPending) key.isDifferent = true;
    this.#enqueue(key);
  }

  /** Sets the wanted value to the one that another client has put. The key is not written, and keeps its lease. */
  adopt(name: string, value: Uint8Array): void {
    const key = this.#want(name, charactersOf(value));
    key.stored = key.wanted;
    key.isUnknown = true; // because a running write may replace it
    this.#contested.cancel(key);
    this.#enqueue(key);
  }

  delete(name: string): void {
    const key = this.#keys.ensure(name);
    if (key.wanted !== undefined) this.#wanted--;
    key.wanted = undefined;
    this.#stopAwaitingEcho(key);
    this.#contested.cancel(key);
    this.#enqueue(key);
  }

  #want(name: string, value: string): SyncKey {
    const key = this.#keys.ensure(name);
    if (key.wanted === undefined) this.#wanted++;
    key.wanted = sharedText(value, key.inherited?.value);
    return key;
  }

  #stopAwaitingEcho(key: SyncKey): void {
    if (key.echoRevision !== undefined) this.#awaitedEchoes--;
    key.echoRevision = undefined;
  }

  /**
   * Compares the value of a key in the kvstore with the wanted value, and writes the key if they differ. A canary that
   * is not written yet waits for this. Does nothing if the name is not wanted.
   */
  invalidate(name: string): void {
    const key = this.#keys.get(name);
    if (key !== undefined) this.#invalidate(key);
  }

  #invalidate(key: SyncKey): void {
    if (key.wanted === undefined) return;
    key.isUnknown = true;
    this.#putAgain(key);
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
   * not have it. Returns true if the name is wanted, or if {@link SyncStore.visitFound} will visit the value.
   */
  receiveEventAt(row: number, event: WatchEvent): boolean {
    return this.#receiveEvent(row, undefined, event);
  }

  #receiveEvent(row: number, name: string | undefined, event: WatchEvent): boolean {
    const { type, modRevision } = event;
    const key = this.#keys.at(row);
    const isFound = this.#isAdopting && key?.stored === undefined && key?.isWriting !== true;
    if (isFound) this.#recordFound(key, row, name, event);
    if (key?.wanted === undefined) return isFound && type !== 'delete';
    if (key.stored === undefined && !key.isWriting) return true; // written soon
    const isEcho = modRevision === key.echoRevision && key.wanted === key.stored;
    const isDesired = isEcho || (type !== 'delete' && equalsCharacters(event.value, key.wanted));
    if (key.isWriting) {
      key.watchedWrite = { isDesired, modRevision };
      return true;
    }
    const landedAt = key.echoRevision;
    if (landedAt !== undefined && modRevision < landedAt) return true; // replaced already
    this.#stopAwaitingEcho(key);
    if (isDesired) this.#contested.cancel(key);
    else if (type === 'delete' && landedAt !== UNKNOWN_REVISION) this.#contested.recordDelete(key);
    else this.#contested.recordOverwrite(key);
    return true;
  }

  /** Records the value in the kvstore and its lease, which may be adopted. */
  #recordFound(known: SyncKey | undefined, row: number, name: string | undefined, event: WatchEvent): void {
    const isDelete = event.type === 'delete';
    if (known === undefined && isDelete) return;
    const key = known ?? this.#keys.add(name ?? nameOf(event, this.#options.prefix), row);
    key.inherited = isDelete
      ? undefined
      : { value: sharedText(charactersOfValue(event), key.wanted), lease: event.lease };
    this.#inherit(key);
    this.#forgetUnneeded(key);
  }

  /**
   * Makes the inherited value of a key the wanted value, if `onInherited` is set and the owner has neither set nor
   * deleted the key.
   */
  #inherit({ name, inherited, wanted, isPending }: SyncKey): void {
    const { onInherited } = this.#options;
    const isLate = this.#isListed || wanted !== undefined || isPending;
    if (onInherited === undefined || inherited === undefined || isLate) return;
    onInherited(name);
    this.#enqueue(this.#want(name, inherited.value));
  }

  /** Removes the state of a key that is neither wanted, queued, nor left by an earlier session. */
  #forgetUnneeded(key: SyncKey): void {
    if (key.wanted === undefined && key.inherited === undefined && !key.isPending) this.#keys.delete(key);
  }

  /**
   * Records that the watch of the prefix has delivered all existing keys. Call it if `adoptLeases` is set and `follow`
   * is false.
   */
  recordListed(): void {
    this.#isListed = true;
    this.#allListed.resolve();
    this.#writesMayBegin.resolve();
  }

  /** Resolves when the watch of the prefix has delivered all keys that existed when it began. */
  get allListed(): Promise<void> {
    return this.#allListed.promise;
  }

  /**
   * @internal Calls `visit` with each unwanted key that exists and its value, while leases are adopted. Yields after
   * each `slice` keys.
   */
  *visitFound(slice: number, visit: (name: string, value: Uint8Array) => void): Generator<void, void, void> {
    if (!this.#isAdopting) return;
    yield* this.#keys.visit(slice, ({ name, wanted, inherited, isPending }) => {
      const isUnwanted = wanted === undefined && !isPending;
      if (isUnwanted && inherited !== undefined) visit(name, bytesOfCharacters(inherited.value));
    });
  }

  /** Forgets unwanted values of earlier sessions. Keys that become wanted later are written. */
  async endAdoption(): Promise<void> {
    if (!this.#isAdopting) return;
    this.#isAdopting = false;
    this.#writesMayBegin.resolve();
    const { gate = OPEN_GATE } = this.#options;
    const forget = this.#keys.visit(gate.slice, (key) => {
      key.inherited = undefined;
      this.#forgetUnneeded(key);
    });
    await gate.runSteps(forget);
  }

  /**
   * Receives the state of a watch of the prefix. Call it for each state if `follow` is false. After an interruption,
   * the watch should soon deliver the events of all stored puts. Keys whose events are not delivered in time are
   * compared, because another client may have deleted them during the interruption.
   */
  async watchState(state: WatchState, signal: AbortSignal): Promise<void> {
    this.#isWatching = state === 'watching';
    // Writes do not wait for a broken watch.
    if (!this.#isWatching && state !== 'listing') this.#writesMayBegin.resolve();
    if (!this.#isWatching || this.#awaitedEchoes === 0) return;
    const { clock, gate = OPEN_GATE } = this.#options;
    const puts = this.#puts;
    await sleep(clock, ECHO_MS, signal);
    const steps = this.#invalidateWhere(
      gate.slice,
      ({ echoRevision, order }) => echoRevision !== undefined && order < puts,
    );
    gate.runInBackground(steps, { signal });
  }

  /** Queues a comparison of the keys that satisfy `isDue`, in steps of `slice` rows. */
  #invalidateWhere(slice: number, isDue: (key: SyncKey) => boolean): Generator<void, void, void> {
    return this.#keys.visit(slice, (key) => {
      if (isDue(key)) this.#invalidate(key);
    });
  }

  /**
   * Receives an event of a watch of the canary. Call it for each event if `followCanary` is false. Ignores other keys.
   */
  receiveCanaryEvent({ type, key }: WatchEvent): void {
    if (key !== this.#options.canary) return;
    if (type !== 'delete') this.#contested.cancel(this.#canary);
    else if (this.#canary.isTrue) this.#contested.recordDelete(this.#canary);
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
    const steps = this.#invalidateWhere(gate.slice, ({ stored }) => stored !== undefined);
    if (this.#keys.size > 0) await gate.runSteps(steps, signal);
    await Promise.all([this.#runQueue(signal), this.#followKeys(signal), this.#followCanary(signal)]);
    this.#contested.stop();
    unsubscribe();
  }

  async #runQueue(signal: AbortSignal): Promise<void> {
    await Promise.race([this.#writesMayBegin.promise, fired(signal)]);
    await this.#queue.run(signal);
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
      void this.watchState(state, signal);
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

  #putBack(key: Job): void {
    const isCanary = key instanceof Canary;
    if (isCanary ? !key.isTrue : key.wanted === undefined) return;
    this.#putBacks++;
    if (!isCanary) {
      key.isDifferent = true;
      this.#putAgain(key);
    } else {
      this.#canary.recordDelete();
      void this.markSynced();
    }
  }

  #putLostKeys(keys: readonly string[]): void {
    const { prefix, canary, leased = true, canaryLeased = leased } = this.#options;
    for (const key of keys) {
      if (key === canary && canaryLeased) {
        this.#canary.recordExpiry();
        this.#retractCanary();
      }
      const lost = key.startsWith(prefix) ? this.#keys.get(key.slice(prefix.length)) : undefined;
      if (!leased || lost?.wanted === undefined) continue;
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

  #putAgain(key: SyncKey): void {
    key.stored = undefined;
    this.#canaryWaits.forgetQueued(key.name);
    this.#landingWaits.forgetQueued(key.name);
    this.#canary.abortWrite();
    this.#add(key);
  }

  /** Deletes the canary before lost keys are put again, and writes it again after them. */
  #retractCanary(): void {
    if (!this.#canary.retract()) return;
    if (this.#canary.mayExist) this.#queue.add(this.#canary);
    void this.markSynced();
  }

  /** Number of names that are queued or being written. */
  get #pending(): number {
    return this.#queue.has(this.#canary) ? this.#queue.size - 1 : this.#queue.size;
  }

  #enqueue(key: SyncKey): void {
    if (!key.isPending) {
      if (isLanded(key)) return;
      this.#canaryWaits.recordQueued(key.name);
      this.#landingWaits.recordQueued(key.name);
    }
    this.#add(key);
  }

  #add(key: SyncKey): void {
    key.isPending = true;
    this.#queue.add(key);
  }

  #weightOf(key: SyncKey): number {
    const bytes = key.name.length + (key.wanted?.length ?? 0);
    return Math.max(bytes / BATCH_BYTES, this.#mayBeThere(key) ? 1 / MAX_COMPARED_WRITES : 0);
  }

  /** Writes keys in one transaction. */
  async #sync(jobs: Jobs<Job>, signal: AbortSignal): Promise<void> {
    const { backend, prefix, leased = true, gate = OPEN_GATE } = this.#options;
    if (!(await gate.pass(jobs.length * WRITE_WEIGHT, signal))) throw abortedError();
    const attempts = jobs.filter((job) => job instanceof SyncKey).map((key) => this.#begin(key));
    try {
      const due = await adoptLeases(attempts, this.#options, signal, (attempt) => this.#land(attempt));
      if (due.length === 0) return;
      const writes = due.map((attempt) => writeOf(attempt, prefix));
      const { revision, isComplete } = await backend.writeAll(writes, { fenced: true, leased, signal });
      this.#writes += due.length;
      for (const attempt of due)
        this.#land(attempt, isComplete || !attempt.mayBeThere ? revision : undefined);
    } catch (error) {
      for (const { key } of attempts) if (key.stored === undefined) this.#recordFailure(key);
      throw error;
    }
  }

  /** Returns true if the kvstore may have the wanted value of a key. */
  #mayBeThere({ isUnknown, hasFailed, isDifferent, stored }: SyncKey): boolean {
    const { leased = true } = this.#options;
    return isUnknown || hasFailed || (leased === false && stored === undefined && !isDifferent);
  }

  /** Begins a write. Events that the watch delivers from now on are compared with it. */
  #begin(key: SyncKey): Attempt {
    const { wanted, hasFailed } = key;
    const mayBeThere = this.#mayBeThere(key);
    const adoptable = mayBeThere ? undefined : this.#adoptable(key);
    key.inherited = undefined;
    key.isDifferent = false;
    key.hasFailed = false;
    key.isUnknown = false;
    key.stored = undefined;
    this.#contested.cancel(key);
    key.isWriting = wanted !== undefined;
    key.watchedWrite = undefined;
    return { key, wanted, mayBeThere, adoptable, wasDelivered: this.#isWatching && !hasFailed };
  }

  #adoptable({ wanted, inherited }: SyncKey): LeaseID | undefined {
    const { leased = true } = this.#options;
    return leased === true && inherited !== undefined && inherited.value === wanted
      ? inherited.lease
      : undefined;
  }

  /** Records a failed write. It may have taken effect, so the value in the kvstore is unknown. */
  #recordFailure(key: SyncKey): void {
    key.isWriting = false;
    key.hasFailed = true;
  }

  /** @param revision of the write; undefined if the kvstore had the wanted value */
  #land({ key, wanted, wasDelivered }: Attempt, revision?: number): void {
    const { watchedWrite } = key;
    key.isWriting = false;
    key.watchedWrite = undefined;
    if (wanted === undefined) return;
    key.stored = wanted;
    this.#stopAwaitingEcho(key);
    if (key.wanted !== wanted) return; // written again soon
    if (watchedWrite !== undefined && watchedWrite.modRevision >= (revision ?? UNKNOWN_REVISION)) {
      if (!watchedWrite.isDesired) this.#contested.recordOverwrite(key); // by another client, after us
    } else if (revision !== undefined || !wasDelivered) {
      this.#awaitedEchoes++;
      key.echoRevision = revision ?? UNKNOWN_REVISION;
      key.order = this.#puts++;
    }
  }

  #recordDone(jobs: readonly Job[]): void {
    for (const job of jobs) {
      if (job instanceof Canary) continue;
      job.isPending = false;
      this.#forgetUnneeded(job);
      this.#canaryWaits.forgetQueued(job.name);
      this.#landingWaits.forgetQueued(job.name);
    }
    this.#landingWaits.complete(this.#landingWaits.due());
    this.#offerCanary();
  }

  /** Queues the canary if it would be true now, or if it exists and is false. */
  #offerCanary(): void {
    if (this.#canary.isFalse || this.#canaryWaits.due().length > 0) this.#queue.add(this.#canary);
  }

  async #syncCanary(signal: AbortSignal): Promise<void> {
    const due = this.#canaryWaits.due();
    if (due.length > 0) await this.#canary.write(signal, () => this.#canaryWaits.complete(due));
  }
}

checkArguments(SyncStore, {
  upsert: { name: TEXT, value: BYTES },
  adopt: { name: TEXT, value: BYTES },
  delete: { name: TEXT },
  get: { name: TEXT },
  has: { name: TEXT },
  invalidate: { name: TEXT },
  receiveEvent: { name: TEXT, event: objectWith({ type: TEXT, modRevision: NUMBER }) },
  receiveCanaryEvent: { event: objectWith({ type: TEXT, key: TEXT }) },
  watchState: { state: TEXT, signal: SIGNAL },
  run: { signal: SIGNAL },
});

/** Returns `known` if the texts are equal, so that only one of them stays in memory. */
function sharedText(text: string, known: string | undefined): string {
  return text === known ? known : text;
}
