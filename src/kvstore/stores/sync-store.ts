import { BYTES, checkArguments, NUMBER, objectWith, SIGNAL, TEXT } from '../../base/arguments.ts';
import { assert } from '../../base/assert.ts';
import type { Clock, Random } from '../../base/clock.ts';
import type { Failure } from '../../base/failure.ts';
import { EitherSignal } from '../../base/follow-signal.ts';
import { sleep } from '../../base/sleep.ts';
import { OPEN_GATE, type TurnGate } from '../../base/turn-gate.ts';
import { equalBytes } from '../codec/bytes.ts';
import { encodeTimestamp } from '../codec/timestamp.ts';
import {
  type KeyWrite,
  type KvstoreBackend,
  MAX_COMPARED_WRITES,
  MAX_WRITES,
  type WatchEvent,
  type WatchState,
  type WriteOptions,
  type WrittenAll,
} from '../session/backend.ts';
import { abortedError } from '../session/errors.ts';
import { CanaryWaits } from './canary-waits.ts';
import { ContestedKeys } from './contested-keys.ts';
import { type Batches, RetryQueue } from './retry-queue.ts';

/** Options of {@link SyncStore}. */
export interface SyncStoreOptions {
  readonly backend: KvstoreBackend;
  /** Ends in `/`. */
  readonly prefix: string;
  readonly clock: Clock;
  readonly random: Random;
  /** Binds the keys to the session of the client; `first`: see `WriteOptions`. Default true. */
  readonly leased?: WriteOptions['leased'];
  /** Binds the canary to the session. Default: as the keys. */
  readonly canaryLeased?: WriteOptions['leased'];
  /** The *canary*: the key that marks the prefix as complete for readers. Put back if deleted, if its path has a `/`. */
  readonly canary?: string | undefined;
  /** Number of concurrent transactions. Default 8; 2 with `batched`. */
  readonly concurrency?: number | undefined;
  /** Writes up to 100 keys in one transaction. Default false. */
  readonly batched?: boolean | undefined;
  /**
   * Watches the prefix, to put back keys that other clients overwrite or delete. Default true. If false, the owner must pass the
   * events and states of its own watch: see {@link SyncStore.observed} and {@link SyncStore.watchState}.
   */
  readonly follow?: boolean | undefined;
  /**
   * Watches the folder of the canary, to put it back if another client deletes it. Default true. If false, the owner must pass the
   * events of its own watch: see {@link SyncStore.canaryObserved}.
   */
  readonly followCanary?: boolean | undefined;
  /** Slices the work of many stores that write at the same time, and of a repeated `run` over all keys. Default: not sliced. */
  readonly gate?: TurnGate | undefined;
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
  /** True if the canary has been written and all keys before it are in the kvstore. */
  readonly canaryWritten: boolean;
}

const CANARY = Symbol('canary');
/** One transaction is prepared while the other is in flight. */
const CONCURRENT_BATCHES = 2;
/** Weight of a write at the gate: preparing, sending and landing it takes about 10 µs, and an event 2 to 3 µs. */
const WRITE_WEIGHT = 4;
/** A third of what etcd accepts in a request (`--max-request-bytes`, 1.5 MiB). */
const BATCH_BYTES = 512 * 1024;
/** After an interruption, a watch shows an earlier write within this time. A later echo costs one comparison. */
const ECHO_MS = 10_000;

/** The last event of a key that the watch delivered during a write of it. */
interface WatchedWrite {
  readonly isDesired: boolean;
  readonly modRevision: number;
}

/** A write that is about to be sent. */
interface Attempt {
  readonly name: string;
  /** Undefined if the key is deleted. */
  readonly wanted: Uint8Array | undefined;
  /** True if the kvstore may have the wanted value already. */
  readonly mayBeThere: boolean;
  /** True if the watch does not have to show a value that the kvstore already has. It may not know a failed write that has landed. */
  readonly isEqualSeen: boolean;
}

/** A landed put that the watch has not shown yet. */
interface UnseenPut {
  readonly revision: number;
  /** Number of puts that had landed before it. */
  readonly order: number;
}

/** A put that has landed, or a wanted value that the kvstore has already. */
interface StoredPut {
  readonly revision: number;
  /** True if the watch does not have to show it. */
  readonly isSeen: boolean;
  readonly shown: WatchedWrite | undefined;
}

/** The revision of a write whose answer does not contain it. */
const UNKNOWN_REVISION = 0;

/**
 * Keeps keys of a kvstore equal to the wanted ones of their owner (SEMANTICS 5). The owner sets keys and values; the store writes
 * the difference, one write per key at a time, only the latest value, and retries until it has landed. If a lease of the session is
 * lost, its keys are put again. If another client overwrites or deletes a key, the key is put back within seconds, or with backoff
 * if it happens repeatedly. Writes are fenced: an abandoned write does not take effect after a later one.
 *
 * The canary is written when all keys wanted before it have landed. If keys are lost, the canary is deleted before they are put
 * again, and written again after them.
 *
 * Not promised: an order between keys; a write of every value; a return to our lease if another client puts the same bytes under
 * its own (the key is put back when that lease ends). Nothing is written before `run`. Keys stay when `run` ends: their lease
 * removes them, or the next process overwrites them.
 */
export class SyncStore {
  readonly #options: SyncStoreOptions;
  /** The values that the owner wants. */
  readonly #desired = new Map<string, Uint8Array>();
  /** The values known to be in the kvstore. */
  readonly #stored = new Map<string, Uint8Array>();
  /** Names with an unknown value in the kvstore. Their next write compares first. */
  readonly #unknown = new Set<string>();
  /** Names whose last write failed. It may have landed, so their next write compares first. */
  readonly #failed = new Set<string>();
  /** Names known to have another value in the kvstore, or none. Their next write does not compare. */
  readonly #other = new Set<string>();
  readonly #queue: RetryQueue<string | typeof CANARY>;
  readonly #contested: ContestedKeys<string | typeof CANARY>;
  /** Running puts, with the last event that the watch delivered since their start. */
  readonly #writing = new Map<string, WatchedWrite | undefined>();
  /** Landed puts that the watch has not shown yet, in their order. */
  readonly #unseen = new Map<string, UnseenPut>();
  #puts = 0;
  /** True if the watch has read the prefix and follows its changes, so that it shows each later delete. */
  #isWatching = false;
  readonly #canaries = new CanaryWaits(() => this.#pending + this.#losses);
  readonly #landings = new CanaryWaits(() => this.#pending + this.#losses);
  /** Number of losses of leases whose keys are not yet reported completely. */
  #losses = 0;
  /** Aborts the write of the canary if a key is lost during it. */
  #canaryWrite: AbortController | undefined;
  /** The running delete of a false canary. */
  #canaryDelete: Promise<void> | undefined;
  /** True if the canary may exist in the kvstore. */
  #isCanaryThere = false;
  #isCanaryTrue = false;
  #writes = 0;
  #putBacks = 0;

  constructor(options: SyncStoreOptions) {
    assert(options.prefix.endsWith('/'), `the prefix "${options.prefix}" must end in "/"`);
    this.#options = options;
    const {
      clock,
      random,
      batched,
      concurrency = batched === true ? CONCURRENT_BATCHES : undefined,
    } = options;
    this.#queue = new RetryQueue({
      clock,
      random,
      concurrency,
      attempt: async (job, signal) => {
        if (this.#isCanaryFalse) await this.#deleteCanary(signal);
        await (job === CANARY ? this.#syncCanary(signal) : this.#sync(job, signal));
      },
      batches: batched === true ? this.#batches() : undefined,
      onDone: (job) => this.#settled(job),
    });
    this.#contested = new ContestedKeys({ clock, random, putBack: (key) => this.#putBack(key) });
  }

  status(): SyncStoreStatus {
    const { failures, lastFailure } = this.#queue.status();
    return {
      keys: this.#desired.size,
      pending: this.#pending,
      writes: this.#writes,
      putBacks: this.#putBacks,
      failures,
      lastFailure,
      canaryWritten: this.#isCanaryTrue,
    };
  }

  /** Returns the wanted value of a name; undefined if it is not wanted. */
  get(name: string): Uint8Array | undefined {
    return this.#desired.get(name);
  }

  /**
   * Writes a key. Costs nothing if the same bytes have landed already. The store keeps `value`.
   *
   * @param isOther true if the kvstore is known to have another value, or none; the write then does not compare
   */
  upsert(name: string, value: Uint8Array, isOther = false): void {
    this.#desired.set(name, value);
    if (isOther && !this.#queue.has(name)) this.#other.add(name);
    this.#enqueue(name);
  }

  /** Accepts the value that another client has put. It is not written, and keeps its lease. */
  adopt(name: string, value: Uint8Array): void {
    this.#desired.set(name, value);
    this.#stored.set(name, value);
    this.#unknown.add(name); // because a running write may replace it
    this.#contested.cancel(name);
    this.#enqueue(name);
  }

  /** Deletes a key. */
  delete(name: string): void {
    this.#desired.delete(name);
    this.#unseen.delete(name);
    this.#contested.cancel(name);
    this.#enqueue(name);
  }

  /**
   * Compares a key in the kvstore and writes it if it differs. A canary that is not written yet waits for it. Does nothing if the
   * name is not wanted.
   */
  invalidate(name: string): void {
    if (!this.#desired.has(name)) return;
    this.#unknown.add(name);
    this.#putAgain(name);
  }

  /**
   * Receives an event of a watch of the prefix. Call it for each event, in order, if `follow` is false. Ignores names that are not
   * wanted.
   */
  observed(name: string, event: WatchEvent): void {
    const { type, value, modRevision } = event;
    const wanted = this.#desired.get(name);
    if (wanted === undefined) return;
    const isDesired = type !== 'delete' && equalBytes(wanted, value);
    if (this.#writing.has(name)) {
      this.#writing.set(name, { isDesired, modRevision });
      return;
    }
    const landedAt = this.#unseen.get(name)?.revision;
    if (!this.#stored.has(name) || (landedAt !== undefined && modRevision < landedAt)) return; // replaced already or soon
    this.#unseen.delete(name);
    if (isDesired) this.#contested.cancel(name);
    else if (type === 'delete' && landedAt !== UNKNOWN_REVISION) this.#contested.deleted(name);
    else this.#contested.overwritten(name);
  }

  /**
   * Receives the state of a watch of the prefix. Call it for each state, if `follow` is false. When the watch has begun to follow
   * changes, compares keys that landed before and that it does not show soon: another client may have deleted them while the watch
   * was interrupted.
   */
  async watchState(state: WatchState, signal: AbortSignal): Promise<void> {
    this.#isWatching = state === 'watching';
    if (!this.#isWatching || this.#unseen.size === 0) return;
    const { clock, gate = OPEN_GATE } = this.#options;
    const puts = this.#puts;
    await sleep(clock, ECHO_MS, signal);
    await gate.runSteps(this.#touchUnseen(puts, gate.slice), signal);
  }

  /** Touches the unseen puts of the first `puts`, in steps of `slice` keys. */
  *#touchUnseen(puts: number, slice: number): Generator<void, void, void> {
    let touched = 0;
    for (const [name, { order }] of this.#unseen) {
      if (order >= puts) return;
      this.invalidate(name);
      if (++touched % slice === 0) yield;
    }
  }

  /** Receives an event of a watch of the canary. Call it for each event if `followCanary` is false. Ignores other keys. */
  canaryObserved({ type, key }: WatchEvent): void {
    if (key !== this.#options.canary) return;
    if (type !== 'delete') this.#contested.cancel(CANARY);
    else if (this.#isCanaryTrue) this.#contested.deleted(CANARY);
  }

  /** Declares the content complete. Resolves when all writes queued before have landed and the canary is written. */
  markSynced(): Promise<void> {
    const written = this.#canaries.add();
    this.#offerCanary();
    return written;
  }

  /** Resolves when all writes queued before have landed, regardless of the canary. */
  flushed(): Promise<void> {
    const flushed = this.#landings.add();
    this.#landings.complete(this.#landings.due());
    return flushed;
  }

  /** Writes until the signal fires. One run at a time. */
  async run(signal: AbortSignal): Promise<void> {
    const { backend, prefix, canary } = this.#options;
    const scopes = canary === undefined ? [prefix] : [prefix, canary];
    const unsubscribe = backend.onLeaseLost({
      scopes,
      onLeaseLost: (keys) => this.#leaseLost(keys),
      onLeasesLost: (reported) => void this.#leasesLost(reported),
    });
    // Keys may have been lost since the last run.
    this.#retractCanary();
    const { gate = OPEN_GATE } = this.#options;
    if (this.#stored.size > 0) await gate.runSteps(this.#touchLanded(gate.slice), signal);
    await Promise.all([this.#queue.run(signal), this.#followKeys(signal), this.#followCanary(signal)]);
    this.#contested.stop();
    unsubscribe();
  }

  /** Touches all keys that landed before, in steps of `slice` keys. */
  *#touchLanded(slice: number): Generator<void, void, void> {
    let touched = 0;
    for (const name of this.#stored.keys()) {
      this.invalidate(name);
      if (++touched % slice === 0) yield;
    }
  }

  async #followKeys(signal: AbortSignal): Promise<void> {
    const { prefix, follow = true } = this.#options;
    if (!follow) return;
    await this.#watch(prefix, signal, (event) => this.observed(event.key.slice(prefix.length), event));
  }

  /** Follows the canary. Only a deleted one is put back, because its value does not matter. */
  async #followCanary(signal: AbortSignal): Promise<void> {
    const { canary, followCanary = true } = this.#options;
    const folder = canary?.slice(0, canary.lastIndexOf('/') + 1) ?? '';
    if (folder === '' || !followCanary) return; // only a prefix that ends in a slash can be watched
    await this.#watch(folder, signal, (event) => this.canaryObserved(event));
  }

  async #watch(prefix: string, signal: AbortSignal, observe: (event: WatchEvent) => void): Promise<void> {
    const { backend } = this.#options;
    const onState = (state: WatchState): void => {
      if (prefix === this.#options.prefix) void this.watchState(state, signal);
    };
    for await (const batch of backend.watch(prefix, { signal, onState }))
      for (const event of batch) if (event.type !== 'list-done') observe(event);
  }

  #putBack(key: string | typeof CANARY): void {
    if (key === CANARY && !this.#isCanaryTrue) return;
    this.#putBacks++;
    if (key !== CANARY) {
      this.#other.add(key);
      this.#putAgain(key);
    } else {
      this.#isCanaryTrue = false;
      this.#isCanaryThere = false;
      void this.markSynced();
    }
  }

  /** Puts the keys of a lost lease again. */
  #leaseLost(keys: readonly string[]): void {
    const { prefix, canary, leased = true, canaryLeased = leased } = this.#options;
    for (const key of keys) {
      if (key === canary && canaryLeased) {
        this.#isCanaryThere = false;
        this.#retractCanary();
      }
      const name = key.slice(prefix.length);
      if (!leased || !key.startsWith(prefix) || !this.#desired.has(name)) continue;
      this.#retractCanary();
      this.#putAgain(name);
    }
  }

  /** Holds the canary until the lost keys are known. */
  async #leasesLost(reported: Promise<unknown>): Promise<void> {
    this.#losses++;
    await reported;
    this.#losses--;
    this.#offerCanary();
    this.#landings.complete(this.#landings.due());
  }

  #putAgain(name: string): void {
    this.#stored.delete(name);
    this.#canaries.invalidated(name);
    this.#landings.invalidated(name);
    this.#canaryWrite?.abort();
    this.#queue.add(name);
  }

  /** Deletes the canary before lost keys are put again, and writes it again after them. */
  #retractCanary(): void {
    this.#canaryWrite?.abort();
    if (!this.#isCanaryTrue) return;
    this.#isCanaryTrue = false;
    if (this.#isCanaryThere) this.#queue.add(CANARY);
    void this.markSynced();
  }

  /** Number of names that are queued or being written. */
  get #pending(): number {
    return this.#queue.has(CANARY) ? this.#queue.size - 1 : this.#queue.size;
  }

  #enqueue(name: string): void {
    if (!this.#queue.has(name)) {
      if (this.#isLanded(name)) return;
      this.#canaries.queued(name);
      this.#landings.queued(name);
    }
    this.#queue.add(name);
  }

  #isLanded(name: string): boolean {
    const wanted = this.#desired.get(name);
    const flushed = this.#stored.get(name);
    // A key that is neither wanted nor known may be left by an earlier process, so it is deleted.
    return wanted !== undefined && flushed !== undefined && equalBytes(wanted, flushed);
  }

  async #sync(name: string, signal: AbortSignal): Promise<void> {
    const attempt = this.#begin(name);
    let revision: number | undefined;
    try {
      revision = await this.#write(attempt, signal);
    } catch (error) {
      this.#hasFailed(name);
      throw error;
    }
    this.#end(attempt, revision);
  }

  #batches(): Batches<string | typeof CANARY> {
    return {
      jobs: MAX_WRITES,
      weight: 1,
      weightOf: (job) => (job === CANARY ? Number.POSITIVE_INFINITY : this.#weightOf(job)),
      attempt: async (jobs, signal) => {
        const { gate = OPEN_GATE } = this.#options;
        if (this.#isCanaryFalse) await this.#deleteCanary(signal);
        if (!(await gate.pass(jobs.length * WRITE_WEIGHT, signal))) throw abortedError();
        await this.#syncAll(
          jobs.filter((job) => job !== CANARY),
          signal,
        );
      },
    };
  }

  /** Returns the part of a transaction that the write of a name takes. */
  #weightOf(name: string): number {
    const bytes = name.length + (this.#desired.get(name)?.length ?? 0);
    return Math.max(bytes / BATCH_BYTES, this.#mayBeThere(name) ? 1 / MAX_COMPARED_WRITES : 0);
  }

  /** Writes several keys in one transaction. */
  async #syncAll(names: readonly string[], signal: AbortSignal): Promise<void> {
    const { backend, prefix, leased = true } = this.#options;
    const attempts = names.map((name) => this.#begin(name));
    const writes = attempts.map(
      ({ name, wanted, mayBeThere }): KeyWrite => ({
        key: `${prefix}${name}`,
        value: wanted,
        mayBeEqual: mayBeThere,
      }),
    );
    let written: WrittenAll;
    try {
      written = await backend.writeAll(writes, { fenced: true, leased, signal });
    } catch (error) {
      for (const name of names) this.#hasFailed(name);
      throw error;
    }
    const { revision, isComplete } = written;
    for (const attempt of attempts)
      this.#end(attempt, isComplete || !attempt.mayBeThere ? revision : undefined);
  }

  /** Returns true if the kvstore may have the wanted value of a name. */
  #mayBeThere(name: string): boolean {
    const { leased = true } = this.#options;
    if (this.#unknown.has(name) || this.#failed.has(name)) return true;
    return leased === false && !this.#stored.has(name) && !this.#other.has(name);
  }

  /** Begins a write. Events that the watch delivers from now on are compared with it. */
  #begin(name: string): Attempt {
    const wanted = this.#desired.get(name);
    const mayBeThere = this.#mayBeThere(name);
    const isEqualSeen = this.#isWatching && !this.#failed.has(name);
    this.#other.delete(name);
    this.#failed.delete(name);
    this.#unknown.delete(name);
    this.#stored.delete(name);
    this.#contested.cancel(name);
    if (wanted !== undefined) this.#writing.set(name, undefined);
    return { name, wanted, mayBeThere, isEqualSeen };
  }

  /** The write may have landed, and the value before it may be wanted next. */
  #hasFailed(name: string): void {
    this.#writing.delete(name);
    this.#failed.add(name);
  }

  /** @param revision 0 if unknown; undefined if the kvstore had the wanted value */
  #end({ name, wanted, isEqualSeen }: Attempt, revision: number | undefined): void {
    const shown = this.#writing.get(name);
    this.#writing.delete(name);
    this.#writes++;
    const isSeen = revision === undefined && isEqualSeen;
    if (wanted !== undefined)
      this.#hasLanded(name, wanted, { isSeen, revision: revision ?? UNKNOWN_REVISION, shown });
  }

  #hasLanded(name: string, value: Uint8Array, { revision, isSeen, shown }: StoredPut): void {
    this.#stored.set(name, value);
    this.#unseen.delete(name);
    if (this.#desired.get(name) !== value) return; // written again soon
    if (shown !== undefined && shown.modRevision >= revision) {
      if (!shown.isDesired) this.#contested.overwritten(name); // by another client, after us
    } else if (!isSeen) this.#unseen.set(name, { revision, order: this.#puts++ });
  }

  /** Writes or deletes the key. Returns its revision; 0 if unknown, and undefined if the kvstore had the wanted value. */
  async #write({ name, wanted, mayBeThere }: Attempt, signal: AbortSignal): Promise<number | undefined> {
    const { backend, prefix, leased = true } = this.#options;
    const key = `${prefix}${name}`;
    const options = { fenced: true, leased, signal };
    if (wanted !== undefined && !mayBeThere) return backend.update(key, wanted, options);
    if (wanted === undefined) await backend.delete(key, options);
    else if (!(await backend.updateIfDifferent(key, wanted, options))) return undefined;
    return UNKNOWN_REVISION;
  }

  #settled(job: string | typeof CANARY): void {
    if (job !== CANARY) {
      this.#canaries.written(job);
      this.#landings.written(job);
      this.#landings.complete(this.#landings.due());
    }
    this.#offerCanary();
  }

  /** Queues the canary if it would be true now, or if it exists and is false. */
  #offerCanary(): void {
    if (this.#isCanaryFalse || this.#canaries.due().length > 0) this.#queue.add(CANARY);
  }

  get #isCanaryFalse(): boolean {
    return this.#isCanaryThere && !this.#isCanaryTrue && this.#canaryWrite === undefined;
  }

  /** Deletes a false canary before any other write. Concurrent attempts share the delete. */
  #deleteCanary(signal: AbortSignal): Promise<void> {
    this.#canaryDelete ??= this.#deleteCanaryOnce(signal).finally(() => {
      this.#canaryDelete = undefined;
    });
    return this.#canaryDelete;
  }

  async #deleteCanaryOnce(signal: AbortSignal): Promise<void> {
    const { backend, canary } = this.#options;
    if (canary !== undefined) await backend.delete(canary, { fenced: true, signal });
    this.#isCanaryThere = false;
  }

  async #syncCanary(signal: AbortSignal): Promise<void> {
    const { canary } = this.#options;
    const due = this.#canaries.due();
    if (canary === undefined) this.#canaries.complete(due);
    else if (due.length > 0) await this.#writeCanary(canary, signal);
  }

  async #writeCanary(canary: string, signal: AbortSignal): Promise<void> {
    const { backend, clock, leased: keysLeased = true, canaryLeased: leased = keysLeased } = this.#options;
    const due = this.#canaries.due();
    const write = new AbortController();
    this.#canaryWrite = write;
    this.#isCanaryThere = true;
    try {
      using either = new EitherSignal(signal, write.signal);
      const value = encodeTimestamp(clock.wallTime());
      await backend.update(canary, value, { fenced: true, leased, signal: either.signal });
    } catch (error) {
      if (!write.signal.aborted) throw error;
    } finally {
      this.#canaryWrite = undefined;
    }
    if (!write.signal.aborted && this.#canaries.complete(due)) this.#isCanaryTrue = true;
  }
}

checkArguments(SyncStore, {
  upsert: { name: TEXT, value: BYTES },
  adopt: { name: TEXT, value: BYTES },
  delete: { name: TEXT },
  invalidate: { name: TEXT },
  observed: { name: TEXT, event: objectWith({ type: TEXT, value: BYTES, modRevision: NUMBER }) },
  canaryObserved: { event: objectWith({ type: TEXT, key: TEXT }) },
  watchState: { state: TEXT, signal: SIGNAL },
  run: { signal: SIGNAL },
});
