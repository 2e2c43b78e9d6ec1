import { backoffDelay } from '../../base/backoff.ts';
import type { Clock, Random, Timer } from '../../base/clock.ts';
import { type Failure, failureOf } from '../../base/failure.ts';
import { sleep } from '../../base/sleep.ts';
import type { KvstoreBackend } from '../backend.ts';
import { equalBytes } from '../bytes.ts';
import { encodeTimestamp } from '../codec/timestamp.ts';
import { asKvstoreError, type KvstoreError, type KvstoreErrorCode } from '../errors.ts';
import { sharedSignal } from '../shared-signal.ts';
import { type CanaryWait, CanaryWaits } from './canary-waits.ts';

/** What a {@link SyncStore} is made of. */
export interface SyncStoreOptions {
  readonly backend: KvstoreBackend;
  /** Ends in `/`. */
  readonly prefix: string;
  readonly clock: Clock;
  readonly random: Random;
  /** Bind the keys to the client's session. Default true. */
  readonly leased?: boolean | undefined;
  /** The canary that says that the prefix is complete. */
  readonly canary?: string | undefined;
  /** Writes under way at a time. Default 8. */
  readonly concurrency?: number | undefined;
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
  /** Whether the canary has been written. */
  readonly canaryWritten: boolean;
}

const CONCURRENCY = 8;
const BACKOFF = { baseMs: 100, capMs: 5000 };

/** Failures that speak of what was to be written, not of the kvstore: others may go on. */
const REFUSALS: ReadonlySet<KvstoreErrorCode> = new Set(['invalid-request', 'too-large']);
// What was refused will be refused again, unless the kvstore is set up anew: there is no hurry.
const REFUSED_MS = 60_000;

/**
 * Keeps keys of a kvstore equal to what its owner wants (SEMANTICS 5). The owner says what is to be; this
 * store writes the difference, one write per key at a time, the latest value only, until it has landed. When
 * a lease of the session is lost, what was bound to it is put again.
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
  /** Names to be looked at, oldest first. */
  readonly #queue = new Set<string>();
  readonly #busy = new Set<string>();
  /** Names whose delete was asked for and has not landed. */
  readonly #deleting = new Set<string>();
  /** Names with a put that was given up: it may land yet, after whatever has been written since. */
  readonly #doubtful = new Set<string>();
  /** Names that the kvstore has refused, and what tries them again. */
  readonly #refused = new Map<string, Timer>();
  /**
   * Failures in a row. While there are any the kvstore is tried with one thing at a time, because everything else
   * would fail too; the first success makes everything due at once.
   */
  #outage = 0;
  readonly #canaries = new CanaryWaits();
  /** Gives up the canary that is being written: it would not be true any more. */
  #canaryWrite: AbortController | undefined;
  #canaryWritten = false;
  #writes = 0;
  #failures = 0;
  #lastFailure: Failure | undefined;
  /** Workers that have nothing to do. */
  readonly #idle = new Set<() => void>();

  constructor(options: SyncStoreOptions) {
    this.#options = options;
  }

  status(): SyncStoreStatus {
    return {
      keys: this.#wanted.size,
      pending: this.#pending().size,
      writes: this.#writes,
      failures: this.#failures,
      lastFailure: this.#lastFailure,
      canaryWritten: this.#canaryWritten,
    };
  }

  /** The value that a name is to have; undefined when it is not to exist. */
  get(name: string): Uint8Array | undefined {
    return this.#wanted.get(name);
  }

  /** The key is to have this value. Bytes that have landed already cost nothing. The store keeps `value`. */
  upsert(name: string, value: Uint8Array): void {
    this.#wanted.set(name, value);
    this.#deleting.delete(name);
    this.#enqueue(name);
  }

  /** The key is not to exist. */
  delete(name: string): void {
    this.#wanted.delete(name);
    this.#deleting.add(name);
    this.#enqueue(name);
  }

  /**
   * What the kvstore holds of this name is not known any more: somebody else has written or deleted it. A canary that
   * has not been written yet waits for it, whenever it was asked for.
   */
  touch(name: string): void {
    this.#landed.delete(name);
    this.#canaries.touched(name);
    this.#canaryWrite?.abort();
    this.#enqueue(name);
  }

  /** {@link touch} for every key, and {@link appeared} too: now and then. */
  touchAll(): void {
    for (const name of this.#wanted.keys()) this.touch(name);
    for (const name of this.#doubtful) this.appeared(name);
  }

  /**
   * The kvstore shows this name. If it is not to exist, and a put of it was given up before its outcome was known, that
   * put has landed after the delete: the key is deleted again, unless it is somebody else's by now. Without a lease
   * nobody can tell whose it is, and it is left.
   */
  appeared(name: string): void {
    if (this.#doubtful.has(name) && !this.#wanted.has(name)) this.touch(name);
  }

  /**
   * Says that everything has been queued that belongs to a complete content. Resolves when the canary has been
   * written, which is when all that was queued before has landed.
   */
  markSynced(): Promise<void> {
    const written = this.#canaries.add(this.#pending());
    this.#wake();
    return written;
  }

  /** Writes until the signal fires. Once at a time. */
  async run(signal: AbortSignal): Promise<void> {
    const unsubscribe = this.#options.backend.onLeaseLost({ onLeaseLost: (keys) => this.#leaseLost(keys) });
    const stop = (): void => this.#wake();
    sharedSignal(signal).addEventListener('abort', stop);
    // Nobody has listened since the last run.
    for (const name of this.#landed.keys()) this.touch(name);
    this.#writeCanaryAgain();
    const { concurrency = CONCURRENCY } = this.#options;
    await Promise.all(Array.from({ length: concurrency }, () => this.#work(signal)));
    for (const name of [...this.#refused.keys()]) this.#enqueue(name);
    signal.removeEventListener('abort', stop);
    unsubscribe();
  }

  /** A client has a lease for every thousand keys, and may lose all of them: each costs its own keys only. */
  #leaseLost(keys: readonly string[]): void {
    const { prefix, canary, leased = true } = this.#options;
    if (!leased) return;
    const names = keys.filter((key) => key.startsWith(prefix)).map((key) => key.slice(prefix.length));
    const lost = names.filter((name) => this.#wanted.has(name));
    for (const name of lost) this.touch(name);
    if (lost.length > 0 || (canary !== undefined && keys.includes(canary))) this.#writeCanaryAgain();
  }

  #writeCanaryAgain(): void {
    this.#canaryWrite?.abort();
    if (!this.#canaryWritten) return;
    this.#canaryWritten = false;
    void this.markSynced();
  }

  #pending(): ReadonlySet<string> {
    return new Set([...this.#queue, ...this.#busy, ...this.#refused.keys()]);
  }

  #enqueue(name: string): void {
    if (this.#isDone(name)) return;
    this.#refused.get(name)?.cancel();
    this.#refused.delete(name);
    this.#queue.add(name);
    this.#wake();
  }

  /** Whether the kvstore is known to hold what is wanted. What waits or is under way is not known. */
  #isDone(name: string): boolean {
    if (this.#queue.has(name) || this.#busy.has(name) || this.#refused.has(name)) return false;
    const wanted = this.#wanted.get(name);
    const landed = this.#landed.get(name);
    // A key that is not wanted and not known may be left from an earlier life: it is deleted to be sure.
    return wanted !== undefined && landed !== undefined && equalBytes(wanted, landed);
  }

  /** Takes one name after the other; waits when there is none. Nothing is awaited between looking and waiting. */
  async #work(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const name = this.#take();
      const due = name === undefined ? this.#dueCanaries() : [];
      if (name !== undefined) await this.#sync(name, signal);
      else if (due.length > 0) await this.#writeCanary(due, signal);
      else await this.#sleepUntilWoken(signal);
    }
  }

  #sleepUntilWoken(signal: AbortSignal): Promise<void> {
    if (signal.aborted) return Promise.resolve();
    return new Promise((resolve) => this.#idle.add(resolve));
  }

  #wake(): void {
    const idle = [...this.#idle];
    this.#idle.clear();
    for (const resume of idle) resume();
  }

  /** Whether nothing may begin, because the kvstore fails and is being tried already. */
  get #isHeld(): boolean {
    return this.#outage > 0 && (this.#busy.size > 0 || this.#canaryWrite !== undefined);
  }

  #take(): string | undefined {
    if (this.#isHeld) return undefined;
    for (const name of this.#queue) {
      if (this.#busy.has(name)) continue;
      this.#queue.delete(name);
      this.#busy.add(name);
      return name;
    }
    return undefined;
  }

  async #sync(name: string, signal: AbortSignal): Promise<void> {
    const wanted = this.#wanted.get(name);
    const outage = this.#outage;
    try {
      await this.#write(name, wanted, signal);
      this.#writes++;
      if (wanted === undefined) this.#landed.delete(name);
      else this.#landed.set(name, wanted);
      this.#busy.delete(name);
      // What was asked for or touched meanwhile waits again, and has not settled.
      if (!this.#queue.has(name)) this.#canaries.settled(name);
      this.#succeeded();
    } catch (thrown) {
      const error = asKvstoreError(thrown);
      const isRefused = REFUSALS.has(error.code);
      if (wanted !== undefined && !isRefused) this.#doubtful.add(name);
      if (isRefused) this.#noteFailure(error);
      else await this.#failed(error, outage, signal);
      this.#busy.delete(name);
      if (isRefused && !this.#queue.has(name)) this.#rest(name);
      else this.#queue.add(name);
      this.#wake();
    }
  }

  async #write(name: string, wanted: Uint8Array | undefined, signal: AbortSignal): Promise<void> {
    const { backend, prefix, leased = true } = this.#options;
    const key = `${prefix}${name}`;
    if (wanted !== undefined) {
      await backend.updateIfDifferent(key, wanted, { leased, signal });
      return;
    }
    const ifOwn = !this.#deleting.has(name);
    const isFound = await backend.delete(key, { ifOwn, signal });
    this.#deleting.delete(name);
    if (ifOwn && !isFound) this.#doubtful.delete(name);
  }

  #succeeded(): void {
    if (this.#outage === 0) return;
    this.#outage = 0;
    this.#wake();
  }

  #noteFailure(error: KvstoreError): void {
    this.#failures++;
    this.#lastFailure = failureOf(error, this.#options.clock);
  }

  /**
   * Waits before the kvstore is tried again. What has failed stays busy meanwhile, and so nothing else is tried.
   *
   * @param outage as it was when the call was made: calls that fail together are one failure
   */
  async #failed(error: KvstoreError, outage: number, signal: AbortSignal): Promise<void> {
    if (signal.aborted) return;
    this.#noteFailure(error);
    this.#outage = Math.max(this.#outage, outage + 1);
    const { clock, random } = this.#options;
    await sleep(clock, backoffDelay(this.#outage, BACKOFF, random), signal);
  }

  /** Tries a name again that was refused, unless something has been asked of it since. */
  #rest(name: string): void {
    const { clock, random } = this.#options;
    const again = clock.after(REFUSED_MS * (0.5 + random()), () => this.#enqueue(name));
    this.#refused.set(name, again);
  }

  /** Those who wait for a canary that would be true now; none while one is being written. */
  #dueCanaries(): readonly CanaryWait[] {
    if (this.#canaryWrite !== undefined || this.#isHeld) return [];
    return this.#canaries.due();
  }

  async #writeCanary(due: readonly CanaryWait[], signal: AbortSignal): Promise<void> {
    const { backend, canary, clock, leased = true } = this.#options;
    const outage = this.#outage;
    const write = new AbortController();
    this.#canaryWrite = write;
    try {
      if (canary !== undefined) {
        const either = AbortSignal.any([signal, write.signal]);
        await backend.update(canary, encodeTimestamp(clock.wallTime()), { leased, signal: either });
      }
      if (!write.signal.aborted && this.#canaries.landed(due)) this.#canaryWritten = canary !== undefined;
      this.#succeeded();
    } catch (thrown) {
      if (!write.signal.aborted) await this.#failed(asKvstoreError(thrown), outage, signal);
    } finally {
      this.#canaryWrite = undefined;
      this.#wake();
    }
  }
}
