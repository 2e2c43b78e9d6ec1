import { checkArgument, FUNCTION, matching, NUMBER, objectWith, optional } from '../base/arguments.ts';
import { messageOf } from '../base/failure.ts';
import type { Unsubscribe } from '../base/subscription.ts';
import { SplitMap } from '../columns/split-map.ts';
import type { EntryMirror } from '../ipcache/change-journal.ts';
import type { IPCacheEntry } from '../ipcache/types.ts';
import { formatPrefix } from '../net/format-address.ts';
import { type PrefixRegister, parsePrefix, prefixRegister } from '../net/prefix.ts';
import { PrefixBlock } from '../net/prefix-block.ts';
import { SharedMemoryError } from './shared-memory.ts';
import type { SharedLookupHandle } from './shared-reader.ts';
import { type SharedAttributes, SharedTable } from './shared-table.ts';

/** Default of `maxBytes`: 24 million IPv4 prefixes, or 12 million IPv6 prefixes. */
const DEFAULT_MAX_BYTES: number = 512 << 20;
/**
 * 2.25 times as much is reserved, 6.75 GiB. Positions have 31 bits and count words of 4 bytes, so 8 GiB is possible.
 */
const MAX_BYTES = 3 * 2 ** 30;

/** Number of changes whose memory is prefetched together: few enough for the L1 cache. */
const GROUP = 128;

/** Number of waiting prefixes tried for each deleted one. */
const TRIES_PER_DELETE = 8;

/** The part of an `IPCache` used by a `SharedLookup`. */
export interface SharedLookupSource {
  mirror(mirror: EntryMirror): Unsubscribe;
}

/** Options of a `SharedLookup`. */
export interface SharedLookupOptions {
  /**
   * Limit of the shared memory in bytes, 1 MiB to 3 GiB, default 512 MiB: about 20 bytes an IPv4 prefix, 40 an IPv6
   * prefix. 2.25 times as much address space is reserved, but memory is only used for entries. If the limit is reached,
   * further prefixes wait until others are deleted.
   */
  readonly maxBytes?: number | undefined;
  /** Seed of the address hash. Pass a random number if untrusted parties choose addresses, as for an `IPCache`. */
  readonly hashSeed?: number | undefined;
}

/** Counts of a `SharedLookup`, as plain data. */
export interface SharedLookupStatus {
  /** Prefixes visible to readers. */
  readonly entries: number;
  /**
   * Prefixes that readers do not see because the memory is full. They become visible when others of their family are
   * deleted. A prefix also waits if its new pair of host IP and encryption key does not fit.
   */
  readonly waiting: number;
  /** Shared memory in use, without what is free for reuse. */
  readonly bytes: number;
  /** Size of the shared memory. */
  readonly reservedBytes: number;
  readonly maxBytes: number;
  /** The revision of the cache visible to readers. */
  readonly revision: number;
  readonly closed: boolean;
  /** The error that has closed the lookup because memory could not grow; undefined if there was none. */
  readonly failure: string | undefined;
}

/**
 * Copies the visible entries of an `IPCache` into shared memory, where worker threads look them up without locks,
 * without messages and without a copy of their own.
 *
 *     worker.postMessage(lookup.handle)      in the worker: openLookup(handle).lookupIdentity('10.1.2.3')
 *
 * Prefixes of the address spaces of other clusters (`10.1.2.3@5`) are omitted.
 *
 * When a write or batch of the cache returns, all readers see it, as a whole. Cost: about 0.5 µs a change; while
 * prefixes wait for memory, 7 to 12 µs a deletion. Readers do not slow down the writer. A reader that stops or dies has
 * no effect on the others.
 *
 * If memory cannot grow, the lookup closes itself. The cache is not affected.
 *
 * After {@link SharedLookup.close}, readers keep the last state. The memory is released when no thread refers to the
 * lookup, its handle or a reader.
 */
export class SharedLookup {
  /** Can be posted to any number of workers, at any time. */
  readonly handle: SharedLookupHandle;
  readonly #table: SharedTable;
  readonly #maxBytes: number;
  #unsubscribe: Unsubscribe | undefined;
  /** The prefixes of the last changes, up to {@link GROUP}, which are not written yet. */
  readonly #block = new PrefixBlock();
  /** The new entry of each change; undefined for a deletion, and if only the identity changes. */
  readonly #entries: (IPCacheEntry | undefined)[] = new Array(GROUP).fill(undefined);
  /** For each change: 1 if only the identity changes. */
  readonly #isIdentityOnly = new Uint8Array(GROUP);
  /** For each change of only the identity: the new one. */
  readonly #identities = new Int32Array(GROUP);
  /** Number of changes in the group. */
  #count = 0;
  readonly #key: PrefixRegister = prefixRegister();
  /** The prefixes without room in the memory. */
  readonly #waiting = new SplitMap<SharedAttributes>();
  /** Yields the waiting prefixes to try next. */
  #nextWaiting = this.#waiting.entries();
  /** Number of prefixes that the batch has deleted from the table. */
  #deleted = 0;
  #revision = -1;
  #closed = false;
  #failure: unknown;

  /**
   * Reads all entries of the cache, about 0.5 µs each. Must not be called within a batch. Throws a
   * {@link SharedMemoryError} if memory cannot be shared.
   */
  constructor(ipcache: SharedLookupSource, options: SharedLookupOptions = {}) {
    checkArgument('new SharedLookup: ipcache', ipcache, objectWith({ mirror: FUNCTION }));
    checkArgument('new SharedLookup: options', options, OPTIONS);
    const { maxBytes = DEFAULT_MAX_BYTES, hashSeed = 0 } = options;
    this.#maxBytes = maxBytes;
    this.#table = new SharedTable(maxBytes, hashSeed | 0);
    this.handle = { buffer: this.#table.buffer };
    this.#unsubscribe = ipcache.mirror({
      set: (key, old, next) => this.#set(key, old, next),
      publish: (revision) => this.#publish(revision),
    });
    if (this.#failure === undefined) return;
    this.close();
    const message = `cannot share the entries of the cache: ${messageOf(this.#failure)}`;
    throw new SharedMemoryError('refused', message, { cause: this.#failure });
  }

  /** Returns counts as plain data. Takes less than a microsecond. */
  status(): SharedLookupStatus {
    return {
      entries: this.#table.size,
      waiting: this.#waiting.size,
      bytes: this.#table.bytes,
      reservedBytes: this.#table.buffer.byteLength,
      maxBytes: this.#maxBytes,
      revision: this.#revision,
      closed: this.#closed,
      failure: this.#failure === undefined ? undefined : messageOf(this.#failure),
    };
  }

  /** Ends the subscription. Readers keep the last state, and their `closed` is true. Idempotent. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#unsubscribe?.();
    this.#table.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  /** Adds a change to the group. Writes the group when it is full. */
  #set(key: Readonly<PrefixRegister>, old: IPCacheEntry | undefined, next: IPCacheEntry | undefined): void {
    if (key.clusterID !== 0 || this.#failure !== undefined) return;
    const at = this.#count++;
    this.#block.set(at, key);
    const isIdentityOnly =
      old !== undefined &&
      next !== undefined &&
      old.hostIP === next.hostIP &&
      old.encryptKey === next.encryptKey;
    this.#isIdentityOnly[at] = isIdentityOnly ? 1 : 0;
    if (isIdentityOnly) this.#identities[at] = next.identity;
    else this.#entries[at] = next;
    if (this.#count < GROUP) return;
    this.#write();
    // Each group of the initial load is its own batch, because memory of replaced blocks is reused only in later
    // batches. No reader exists yet.
    if (this.#unsubscribe === undefined && this.#failure === undefined) this.#table.publish(0);
  }

  /** Publishes the changes since the last call as one batch. */
  #publish(revision: number): void {
    if (revision === this.#revision && this.#count === 0 && !this.#table.isOpen) return;
    this.#write();
    if (this.#failure !== undefined) return;
    this.#revision = revision;
    this.#table.publish(revision);
    const deleted = this.#deleted;
    this.#deleted = 0;
    if (deleted > 0 && this.#waiting.size > 0) this.#admit(TRIES_PER_DELETE * deleted);
  }

  #write(): void {
    const count = this.#count;
    this.#count = 0;
    try {
      this.#writeGroup(count);
    } catch (error) {
      this.#fail(error);
    }
  }

  /** Closes the lookup after an error: later changes depend on the failed ones. Readers keep the last batch. */
  #fail(error: unknown): void {
    this.#failure = error;
    if (this.#unsubscribe !== undefined) this.close(); // otherwise the constructor throws
  }

  #writeGroup(count: number): void {
    this.#table.begin();
    if (count > 1) this.#table.prefetch(this.#block, count);
    for (let at = 0; at < count; at++) {
      this.#block.get(at, this.#key);
      if (this.#isIdentityOnly[at] === 1) {
        this.#setIdentity((this.#identities[at] ?? 0) >>> 0);
        continue;
      }
      const entry = this.#entries[at];
      this.#entries[at] = undefined;
      if (entry !== undefined) this.#upsert(entry);
      else if (this.#delete()) this.#deleted++;
    }
  }

  /** Changes the identity of the prefix in the register. */
  #setIdentity(identity: number): void {
    if (this.#table.setIdentity(this.#key, identity)) return;
    const waiting = this.#waiting.get(this.#text());
    if (waiting !== undefined) this.#upsert({ ...waiting, identity });
  }

  /** Writes the prefix in the register. */
  #upsert(entry: SharedAttributes): void {
    const { size } = this.#table;
    const isWritten = this.#table.set(this.#key, entry);
    if (this.#table.size < size) this.#deleted++;
    if (!isWritten) this.#waiting.set(this.#text(), entry);
    else if (this.#waiting.size > 0) this.#waiting.delete(this.#text());
  }

  /** Deletes the prefix in the register. Returns true if it was in the table. */
  #delete(): boolean {
    if (this.#table.remove(this.#key)) return true;
    if (this.#waiting.size > 0) this.#waiting.delete(this.#text());
    return false;
  }

  /** Returns the text of the prefix in the register. */
  #text(): string {
    return formatPrefix(this.#key, this.#key.length);
  }

  /**
   * Tries to add up to `tries` waiting prefixes, because their leaves may have room now. They are a batch of their own,
   * which can reuse the memory and the pairs of host and key that the batch before has released.
   */
  #admit(tries: number): void {
    try {
      this.#table.begin();
      for (let left = Math.min(tries, this.#waiting.size); left > 0; left--) {
        let next = this.#nextWaiting.next();
        if (next.done === true) {
          this.#nextWaiting = this.#waiting.entries();
          next = this.#nextWaiting.next();
        }
        if (next.done === true) break;
        const [prefix, entry] = next.value;
        parsePrefix(prefix, this.#key);
        if (this.#table.set(this.#key, entry)) this.#waiting.delete(prefix);
      }
    } catch (error) {
      this.#fail(error);
      return;
    }
    this.#table.publish(this.#revision);
  }
}

const OPTIONS = objectWith({
  maxBytes: optional(
    matching(
      `must be an integer from 1048576 to ${MAX_BYTES}`,
      (value) => Number.isSafeInteger(value) && Number(value) >= 1 << 20 && Number(value) <= MAX_BYTES,
    ),
  ),
  hashSeed: optional(NUMBER),
});
