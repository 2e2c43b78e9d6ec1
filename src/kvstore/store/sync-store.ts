import { BYTES, checkArguments, SIGNAL, TEXT } from '../../base/arguments.ts';
import { assert } from '../../base/assert.ts';
import type { Clock, Random } from '../../base/clock.ts';
import type { Failure } from '../../base/failure.ts';
import type { KvstoreBackend, WriteOptions } from '../backend.ts';
import { equalBytes } from '../bytes.ts';
import { encodeTimestamp } from '../codec/timestamp.ts';
import { CanaryWaits } from './canary-waits.ts';
import { RetryQueue } from './retry-queue.ts';

/** Options of {@link SyncStore}. */
export interface SyncStoreOptions {
  readonly backend: KvstoreBackend;
  /** Ends in `/`. */
  readonly prefix: string;
  readonly clock: Clock;
  readonly random: Random;
  /** Bind the keys to the client's session; `first`: see `WriteOptions`. Default true. */
  readonly leased?: WriteOptions['leased'];
  /** Bind the canary to it. Default: as the keys. */
  readonly canaryLeased?: WriteOptions['leased'];
  /** The key that says that the prefix is complete, the *canary*. */
  readonly canary?: string | undefined;
  /** Writes under way at a time. Default 8; 100 where they go together. */
  readonly concurrency?: number | undefined;
  /** Puts that are under way at a time may be made in one transaction. Default false. */
  readonly together?: boolean | undefined;
}

/** A {@link SyncStore} as data. */
export interface SyncStoreStatus {
  /** Keys that are to exist. */
  readonly keys: number;
  /** Keys that the kvstore does not yet hold as they are to be. */
  readonly pending: number;
  readonly writes: number;
  readonly failures: number;
  readonly lastFailure: Failure | undefined;
  /** Whether the canary has been written, and is true. */
  readonly canaryWritten: boolean;
}

const CANARY = Symbol('canary');
/** As many as go into one transaction. */
const AT_A_TIME = 100;

/**
 * Keeps keys of a kvstore equal to what its owner wants (SEMANTICS 5). The owner says what is to be; this
 * store writes the difference, one write per key at a time, the latest value only, until it has landed. When
 * a lease of the session is lost, what was bound to it is put again. Writes are fenced: one that was given up does not
 * take effect after a later one.
 *
 * The canary is written when everything that was wanted before has landed. When keys are lost it is deleted before they
 * are put again, and written again after them.
 *
 * Not promised: an order between keys; that every value is written. Nothing is written before `run`, and
 * keys stay when it ends: a lease takes them, or the next life overwrites them.
 */
export class SyncStore {
  readonly #options: SyncStoreOptions;
  /** What is to be. */
  readonly #wanted = new Map<string, Uint8Array>();
  /** What is known to be in the kvstore. */
  readonly #landed = new Map<string, Uint8Array>();
  /** Names that another client may have written, or we: only a comparison in the kvstore shows whether there is anything to write. */
  readonly #touched = new Set<string>();
  /** Names of which the kvstore is known to have another value, or none. */
  readonly #other = new Set<string>();
  readonly #queue: RetryQueue<string | typeof CANARY>;
  readonly #canaries = new CanaryWaits();
  readonly #landings = new CanaryWaits();
  /** Gives up the canary that is being written: it would not be true any more. */
  #canaryWrite: AbortController | undefined;
  /** It may be in the kvstore. */
  #isCanaryThere = false;
  #isCanaryTrue = false;
  #writes = 0;

  constructor(options: SyncStoreOptions) {
    assert(options.prefix.endsWith('/'), `the prefix "${options.prefix}" must end in "/"`);
    this.#options = options;
    const { clock, random, together, concurrency = together === true ? AT_A_TIME : undefined } = options;
    this.#queue = new RetryQueue({
      ...{ clock, random, concurrency },
      attempt: (job, signal) => (job === CANARY ? this.#syncCanary(signal) : this.#sync(job, signal)),
      onDone: (job) => this.#settled(job),
    });
  }

  status(): SyncStoreStatus {
    const { failures, lastFailure } = this.#queue.status();
    return {
      keys: this.#wanted.size,
      pending: this.#pending().length,
      writes: this.#writes,
      failures,
      lastFailure,
      canaryWritten: this.#isCanaryTrue,
    };
  }

  /** The value that a name is to have; undefined when it is not to exist. */
  get(name: string): Uint8Array | undefined {
    return this.#wanted.get(name);
  }

  /**
   * The key is to have this value. Bytes that have landed already cost nothing. The store keeps `value`.
   *
   * @param isOther the kvstore is known to have another value, or none: it is not compared with what is there
   */
  upsert(name: string, value: Uint8Array, isOther = false): void {
    this.#wanted.set(name, value);
    if (isOther && !this.#queue.has(name)) this.#other.add(name);
    this.#enqueue(name);
  }

  /** Another client has put this value, and it may stay: it is left as it is, under the lease that it has. */
  adopt(name: string, value: Uint8Array): void {
    this.#wanted.set(name, value);
    this.#landed.set(name, value);
    this.#touched.add(name); // what is under way may change it
    this.#enqueue(name);
  }

  /** The key is not to exist. */
  delete(name: string): void {
    this.#wanted.delete(name);
    this.#enqueue(name);
  }

  /**
   * What the kvstore holds of this name is not known any more: another client has written or deleted it. A canary that
   * has not been written yet waits for it, whenever it was asked for. Ignored for a name that is not to exist.
   */
  touch(name: string): void {
    if (!this.#wanted.has(name)) return;
    this.#touched.add(name);
    this.#putAgain(name);
  }

  /** {@link touch} for every key that is to exist. */
  touchAll(): void {
    for (const name of this.#wanted.keys()) this.touch(name);
  }

  /**
   * Says that everything has been queued that belongs to a complete content. Resolves when the canary has been
   * written, which is when all that was queued before has landed.
   */
  markSynced(): Promise<void> {
    const written = this.#canaries.add(this.#pending());
    this.#offerCanary();
    return written;
  }

  /** Resolves when all that was queued before has landed. Says nothing of the canary. */
  landed(): Promise<void> {
    const landed = this.#landings.add(this.#pending());
    this.#landings.landed(this.#landings.due());
    return landed;
  }

  /** Writes until the signal fires. Once at a time. */
  async run(signal: AbortSignal): Promise<void> {
    const unsubscribe = this.#options.backend.onLeaseLost({ onLeaseLost: (keys) => this.#leaseLost(keys) });
    // What was lost since the last run is not known.
    this.#retractCanary();
    for (const name of this.#landed.keys()) this.touch(name);
    await this.#queue.run(signal);
    unsubscribe();
  }

  /** A client has a lease for every thousand keys, and may lose all of them: each costs its own keys only. */
  #leaseLost(keys: readonly string[]): void {
    const { prefix, canary, leased = true, canaryLeased = leased } = this.#options;
    const isCanaryLost = canaryLeased && canary !== undefined && keys.includes(canary);
    if (isCanaryLost) this.#isCanaryThere = false;
    const own = leased ? keys.filter((key) => key.startsWith(prefix)) : [];
    const names = own.map((key) => key.slice(prefix.length));
    const lost = names.filter((name) => this.#wanted.has(name));
    if (lost.length > 0 || isCanaryLost) this.#retractCanary();
    for (const name of lost) this.#putAgain(name);
  }

  #putAgain(name: string): void {
    this.#landed.delete(name);
    this.#canaries.touched(name);
    if (this.#landings.size > 0) this.#landings.touched(name);
    this.#canaryWrite?.abort();
    this.#enqueue(name);
  }

  /** It is deleted before anything is put again, because it says that everything is there, and then written again. */
  #retractCanary(): void {
    this.#canaryWrite?.abort();
    if (!this.#isCanaryTrue) return;
    this.#isCanaryTrue = false;
    if (this.#isCanaryThere) this.#queue.add(CANARY);
    void this.markSynced();
  }

  #pending(): readonly string[] {
    return [...this.#queue.pending].filter((job) => job !== CANARY);
  }

  #enqueue(name: string): void {
    if (this.#queue.has(name) || !this.#isLanded(name)) this.#queue.add(name);
  }

  #isLanded(name: string): boolean {
    const wanted = this.#wanted.get(name);
    const landed = this.#landed.get(name);
    // A key that is not wanted and not known may be left from an earlier life: it is deleted to be sure.
    return wanted !== undefined && landed !== undefined && equalBytes(wanted, landed);
  }

  async #sync(name: string, signal: AbortSignal): Promise<void> {
    const { leased = true } = this.#options;
    const wanted = this.#wanted.get(name);
    const isKnown = leased || this.#landed.has(name);
    const isOther = this.#other.delete(name);
    const mayBeThere = this.#touched.delete(name) || !(isKnown || isOther);
    this.#landed.delete(name);
    try {
      await this.#write(name, wanted, mayBeThere, signal);
    } catch (error) {
      this.#touched.add(name); // it may have landed, and what was there before may be what is wanted next
      throw error;
    }
    this.#writes++;
    if (wanted !== undefined) this.#landed.set(name, wanted);
  }

  async #write(
    name: string,
    wanted: Uint8Array | undefined,
    mayBeThere: boolean,
    signal: AbortSignal,
  ): Promise<void> {
    const { backend, prefix, leased = true, together } = this.#options;
    const key = `${prefix}${name}`;
    const options = { fenced: true, leased, together, signal };
    if (wanted === undefined) await backend.delete(key, options);
    else if (mayBeThere) await backend.updateIfDifferent(key, wanted, options);
    else await backend.update(key, wanted, options);
  }

  #settled(job: string | typeof CANARY): void {
    if (job !== CANARY) {
      this.#canaries.settled(job);
      if (this.#landings.size > 0) {
        this.#landings.settled(job);
        this.#landings.landed(this.#landings.due());
      }
    }
    this.#offerCanary();
  }

  /** Something is to be done about the canary: it would be true now, or it is there and is not. */
  #offerCanary(): void {
    const isFalse = this.#isCanaryThere && !this.#isCanaryTrue;
    if (isFalse || this.#canaries.due().length > 0) this.#queue.add(CANARY);
  }

  async #syncCanary(signal: AbortSignal): Promise<void> {
    const { backend, canary } = this.#options;
    const due = this.#canaries.due();
    if (canary === undefined) this.#canaries.landed(due);
    else if (due.length > 0) await this.#writeCanary(canary, signal);
    else if (this.#isCanaryThere && !this.#isCanaryTrue) {
      await backend.delete(canary, { fenced: true, signal });
      this.#isCanaryThere = false;
    }
  }

  async #writeCanary(canary: string, signal: AbortSignal): Promise<void> {
    const { backend, clock, leased: keysLeased = true, canaryLeased: leased = keysLeased } = this.#options;
    const due = this.#canaries.due();
    const write = new AbortController();
    this.#canaryWrite = write;
    this.#isCanaryThere = true;
    try {
      const either = AbortSignal.any([signal, write.signal]);
      const value = encodeTimestamp(clock.wallTime());
      await backend.update(canary, value, { fenced: true, leased, signal: either });
    } catch (error) {
      if (!write.signal.aborted) throw error;
    } finally {
      this.#canaryWrite = undefined;
    }
    if (!write.signal.aborted && this.#canaries.landed(due)) this.#isCanaryTrue = true;
  }
}

checkArguments(SyncStore, {
  upsert: { name: TEXT, value: BYTES },
  adopt: { name: TEXT, value: BYTES },
  delete: { name: TEXT },
  touch: { name: TEXT },
  run: { signal: SIGNAL },
});
