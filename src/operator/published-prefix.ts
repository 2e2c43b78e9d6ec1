import type { Clock, Random } from '../base/clock.ts';
import type { Failure } from '../base/failure.ts';
import { type RejectionLog, rejection } from '../base/rejection.ts';
import type { KvstoreBackend } from '../kvstore/backend.ts';
import { bytesOfText, equalBytes } from '../kvstore/bytes.ts';
import { VALUE_LIMITS } from '../kvstore/codec/value.ts';
import { SharedStore } from '../kvstore/store/shared-store.ts';
import type { StoreObserver } from '../kvstore/store/watch-store.ts';
import type { PublishedKeys } from './duty.ts';

/** Options of {@link PublishedPrefix}. */
export interface PublishedPrefixOptions {
  readonly backend: KvstoreBackend;
  /** Ends in `/`. */
  readonly prefix: string;
  readonly clock: Clock;
  readonly random: Random;
  /** Bind the keys to the client's session. Default true; the canary always is. */
  readonly leased?: boolean | undefined;
  /** The key that says that the prefix is complete. */
  readonly canary?: string | undefined;
  /** Whether a key that is there and not wanted was left by a former life of this publisher. */
  readonly isOwn: (name: string, value: Uint8Array) => boolean;
  /**
   * Whether what another writer has put says what is to be said: then it is left as it is. Nothing is put before the keys
   * that are there are known. Default: never.
   */
  readonly isAsGood?: ((found: Uint8Array, wanted: Uint8Array) => boolean) | undefined;
  /** What a former life has left stays until something is published in this one. Default false. */
  readonly keepWhenEmpty?: boolean | undefined;
  /** Where values are counted that are too large, beside what cannot be made a value. */
  readonly rejections: RejectionLog;
  /** Receives what fails in the background, with the name of the task. */
  readonly onFailure?: ((error: unknown, task: string) => void) | undefined;
}

/** etcd counts the whole request, with the fence and what frames them: less than 128 bytes, measured. */
const MOST_BYTES = VALUE_LIMITS.bytes - 512;

/** A {@link PublishedPrefix} as data. */
export interface PublishedPrefixStatus extends PublishedKeys {
  readonly failures: number;
  readonly lastFailure: Failure | undefined;
}

/**
 * Keys below a prefix, of which the owner says what they are to be (OPERATOR 7, 9, 10, 13). A former life may have left
 * some, and others may write there:
 *
 * - what is to be is put, also when it was lost with a lease, or when another client has deleted it; what another has
 *   overwritten is put again within 5 minutes and a little;
 * - once everything has been said ({@link PublishedPrefix.markSynced}) what a former life has left is deleted, and then
 *   the canary is written. Before that nothing is deleted that was not published in this life.
 *
 * So a reader that follows never loses what is said in this life and was in the one before.
 */
export class PublishedPrefix {
  readonly #options: PublishedPrefixOptions;
  readonly #store: SharedStore<Uint8Array>;
  readonly #wanted = new Map<string, Uint8Array>();
  /** Keys that are there, own, and not wanted: deleted when everything has been said, once. */
  readonly #leftovers = new Set<string>();
  /** What was handed on of what is wanted: that, or what is as good. */
  readonly #said = new Map<string, Uint8Array>();
  /** What is there, where others may say it as well. */
  readonly #found = new Map<string, Uint8Array>();
  #listed = false;
  #synced = false;
  /** Everything has been said, and nothing was to be published. */
  #isSweepDue = false;

  constructor(options: PublishedPrefixOptions) {
    this.#options = options;
    this.#store = new SharedStore({
      ...options,
      canaryLeased: true,
      decode: (_name, value) => ({ ok: true, value }),
      observer: this.#present(),
      deleteDelayMs: 0,
      together: true,
    });
    void this.#store.synced.then(() => {
      this.#listed = true;
      if (options.isAsGood !== undefined) for (const name of this.#wanted.keys()) this.#say(name);
    });
  }

  status(): PublishedPrefixStatus {
    const { local, background, shared } = this.#store.status();
    const held = this.#mayPut ? 0 : this.#wanted.size;
    const pending = local.pending + held;
    return {
      synced: this.#options.canary === undefined ? this.#synced && pending === 0 : local.canaryWritten,
      keys: this.#wanted.size,
      pending,
      writes: local.writes,
      refused: this.#options.rejections.status().total,
      failures: local.failures + background.failures + (shared.watch?.failures ?? 0),
      lastFailure: latest(latest(local.lastFailure, background.lastFailure), shared.watch?.lastFailure),
    };
  }

  /** Names that are to exist, with their values. */
  entries(): IterableIterator<[string, Uint8Array]> {
    return this.#wanted.entries();
  }

  /**
   * The key is to have this value, which is kept. One that is larger than readers take is refused, and there is no key: a
   * kvstore that refused it would hold up the canary.
   */
  upsert(name: string, value: Uint8Array): void {
    const at = `${this.#options.prefix}${name}`;
    if (value.length + bytesOfText(at).length > MOST_BYTES) {
      const why = `must have at most ${MOST_BYTES} bytes with its key`;
      this.#options.rejections.add(rejection('too-large', 'value', `${value.length} bytes`, why, at));
      this.delete(name);
      return;
    }
    this.#wanted.set(name, value);
    this.#leftovers.delete(name);
    if (this.#mayPut) this.#say(name);
    if (this.#isSweepDue) this.#sweep();
  }

  /** The key is not to exist. One that was not published in this life goes with what a former life has left. */
  delete(name: string): void {
    if (!this.#wanted.delete(name)) return;
    this.#said.delete(name);
    this.#store.deleteLocalKey(name);
  }

  /**
   * Everything has been said that belongs to a complete content. Resolves when all that was said before has landed, what a
   * former life has left is deleted, and the canary is written, if there is one.
   */
  async markSynced(): Promise<void> {
    await this.#store.synced;
    this.#sweep();
    await this.#store.markSynced();
    this.#synced = true;
  }

  #sweep(): void {
    this.#isSweepDue = this.#options.keepWhenEmpty === true && this.#wanted.size === 0;
    if (this.#isSweepDue) return;
    for (const name of this.#leftovers) this.#store.deleteLocalKey(name);
    this.#leftovers.clear();
  }

  /** Writes until the signal fires. Keys stay: a lease takes them, or the next life does. Once at a time. */
  run(signal: AbortSignal): Promise<void> {
    return this.#store.run(signal);
  }

  get #mayPut(): boolean {
    return this.#listed || this.#options.isAsGood === undefined;
  }

  #say(name: string): void {
    const wanted = this.#wanted.get(name);
    if (wanted === undefined) return;
    const found = this.#found.get(name);
    const isAsGood = found !== undefined && this.#options.isAsGood?.(found, wanted) === true;
    const value = isAsGood ? found : wanted;
    const said = this.#said.get(name);
    if (said !== undefined && equalBytes(said, value)) return;
    this.#said.set(name, value);
    if (isAsGood) this.#store.adoptLocalKey(name, value);
    else this.#store.updateLocalKey(name, value, this.#isOther(found, value));
  }

  /** Whether what was found is something else. Nothing is known of it where others' writes are not looked at. */
  #isOther(found: Uint8Array | undefined, value: Uint8Array): boolean {
    if (this.#options.isAsGood === undefined) return false;
    return found === undefined || !equalBytes(found, value);
  }

  /** What the kvstore shows. */
  #present(): StoreObserver<Uint8Array> {
    const { isOwn, isAsGood } = this.#options;
    return {
      onUpdate: (name, value) => {
        if (isAsGood !== undefined) this.#found.set(name, value);
        if (!this.#wanted.has(name)) {
          if (!this.#synced && isOwn(name, value)) this.#leftovers.add(name);
        } else if (isAsGood !== undefined && this.#listed) this.#say(name);
      },
      onDelete: (name) => {
        this.#found.delete(name);
        this.#leftovers.delete(name);
        if (isAsGood !== undefined && this.#listed) this.#say(name);
      },
    };
  }
}

/** The later of two failures. */
export function latest(a: Failure | undefined, b: Failure | undefined): Failure | undefined {
  return a === undefined || (b !== undefined && b.at > a.at) ? b : a;
}
