import type { Timer } from '../../base/clock.ts';
import { type Failure, laterFailure } from '../../base/failure.ts';
import { type Rejection, type RejectionLog, rejection } from '../../base/rejection.ts';
import { forEachInSteps, OPEN_GATE } from '../../base/turn-gate.ts';
import { byteLengthOf } from '../../kvstore/codec/bytes.ts';
import { MAX_PUT_BYTES } from '../../kvstore/codec/value.ts';
import type { KvstoreBackend } from '../../kvstore/session/backend.ts';
import { SharedStore } from '../../kvstore/stores/shared-store.ts';
import type { StoreObserver } from '../../kvstore/stores/watch-store.ts';
import type { PublishedKeys } from '../duty.ts';
import type { DutyContext } from '../duty-report.ts';
import { EquivalentValues } from './equivalent-values.ts';

export interface PublishedPrefixOptions extends DutyContext {
  readonly backend: KvstoreBackend;
  /** Ends in `/`. */
  readonly prefix: string;
  /** True to bind the keys to the client's leases. Default true. The canary is always bound. */
  readonly leased?: boolean | undefined;
  /** The key whose existence declares the prefix complete. */
  readonly canary?: string | undefined;
  /** Returns true if an existing unwanted key was left by an earlier run of this publisher. */
  readonly isOwned: (name: string, value: Uint8Array) => boolean;
  /**
   * Returns true if a value of another writer is equivalent to the wanted value; it is then kept. If this option is
   * set, nothing is put before the existing keys are known. Default: no value is equivalent.
   */
  readonly isEquivalent?: ((found: Uint8Array, wanted: Uint8Array) => boolean) | undefined;
  /** True to keep the keys of earlier runs until something is published in this run. Default false. */
  readonly keepWhenEmpty?: boolean | undefined;
  /** Resolves when keys of earlier runs may be deleted; called only if there are some. Default: immediately. */
  readonly sweepAfter?: (() => Promise<unknown>) | undefined;
  /** Counts the values rejected by this class because they are too large. */
  readonly rejections: RejectionLog;
  /** Receives the number of keys of earlier runs before they are deleted, if any. */
  readonly onSweep?: ((keys: number) => void) | undefined;
}

/**
 * Delay before keys that a restored backup brought back are deleted. If another client has written such a key again
 * because a new object requires it, the object is known by then.
 */
const RETURNED_DELAY_MS = 60_000;

/** Status of one published resource, such as the nodes of a cluster. */
export interface PublishedPrefixStatus extends PublishedKeys {
  readonly failures: number;
  readonly lastFailure: Failure | undefined;
}

/**
 * Keeps the keys below a prefix equal to those of the owner (OPERATOR 7, 9, 10, 13). Earlier runs may have left
 * keys, and others may write there:
 * - Wanted keys are put, and put again if they are lost with a lease or if another client overwrites or deletes them.
 * - When the content is complete ({@link PublishedPrefix.markSynced}), keys of earlier runs are deleted, then the
 *   canary is written. Before that, only keys published in this run are deleted. After that, keys that a restore of the
 *   kvstore from a backup brings back are deleted, too.
 *
 * A reader therefore never loses content of the previous run if this run publishes it, too.
 */
export class PublishedPrefix {
  readonly #options: PublishedPrefixOptions;
  readonly #store: SharedStore<Uint8Array>;
  readonly #prefixBytes: number;
  /** The wanted keys, if `isEquivalent` is set. Otherwise only the store has them. */
  readonly #equivalents: EquivalentValues | undefined;
  /**
   * Existing keys of earlier runs that are not wanted. They are deleted when the content is complete, and those of a
   * backup a minute after its restore.
   */
  readonly #leftovers = new Set<string>();
  /** Resolves when the store has received the wanted keys that waited for the list of existing keys. */
  readonly #initialPublish: Promise<unknown>;
  /** True if {@link PublishedPrefix.markSynced} has succeeded. */
  #isComplete = false;
  /** True if the content is complete but empty, so that the sweep waits for the first key. */
  #isSweepWaiting = false;
  /** Set while keys of a restored backup wait for {@link RETURNED_DELAY_MS}. */
  #returnedTimer: Timer | undefined;

  constructor(options: PublishedPrefixOptions) {
    const { isEquivalent } = options;
    this.#options = options;
    this.#prefixBytes = byteLengthOf(options.prefix);
    this.#store = new SharedStore({
      ...options,
      canaryLeased: true,
      decode: (_name, value) => ({ ok: true, value }),
      scan: (_name, buffer, from, to) => buffer.subarray(from, to),
      observer: this.#observer(),
      observesLocal: isEquivalent !== undefined,
      deleteDelayMs: 0,
      batched: true,
      adoptLeases: options.leased !== false,
    });
    this.#equivalents = isEquivalent && new EquivalentValues(this.#store.local, isEquivalent);
    this.#initialPublish = this.#publishWhenListed();
  }

  async #publishWhenListed(): Promise<void> {
    const { gate = OPEN_GATE } = this.#options;
    await this.#store.synced;
    if (this.#equivalents !== undefined) await gate.runSteps(this.#equivalents.publishWaiting(gate.slice));
  }

  get prefix(): string {
    return this.#options.prefix;
  }

  status(): PublishedPrefixStatus {
    const { local, background, shared } = this.#store.status();
    const pending = local.pending + (this.#equivalents?.waiting ?? 0);
    return {
      synced: this.#options.canary === undefined ? this.#isComplete && pending === 0 : local.canaryWritten,
      keys: this.#equivalents?.size ?? local.keys,
      pending,
      isFailing: local.isFailing,
      writes: local.writes,
      rejected: this.#options.rejections.status().total,
      failures: local.failures + background.failures + (shared.watch?.failures ?? 0),
      lastFailure: [local, background, shared.watch].reduce(
        (last: Failure | undefined, part) => laterFailure(last, part?.lastFailure),
        undefined,
      ),
    };
  }

  get #wanted(): Pick<EquivalentValues, 'has' | 'upsert' | 'delete'> {
    return this.#equivalents ?? this.#store.local;
  }

  /**
   * Sets the value of a key. A too large value is rejected and its key deleted, because the kvstore would
   * refuse the write, and the canary would wait for it.
   *
   * @param value copied, unless `isEquivalent` is set
   */
  upsert(name: string, value: Uint8Array): void {
    const { gate = OPEN_GATE } = this.#options;
    if (this.rejectTooLarge(name, value.length, `${value.length} bytes`)) return;
    if (this.#leftovers.size > 0) this.#leftovers.delete(name);
    this.#wanted.upsert(name, value);
    if (!this.#isSweepWaiting) return;
    this.#isSweepWaiting = false;
    gate.runInBackground(this.#sweep(gate.slice));
  }

  /** Returns true if a value of `bytes` is too large with its key. It is then rejected and its key deleted. */
  rejectTooLarge(name: string, bytes: number, text: string): boolean {
    if (bytes + this.#prefixBytes + byteLengthOf(name) <= MAX_PUT_BYTES) return false;
    const reason = `must have at most ${MAX_PUT_BYTES} bytes with its key`;
    this.reject(name, rejection('too-large', 'value', text, reason, `${this.prefix}${name}`));
    return true;
  }

  /** Counts a value as rejected, and deletes its key. */
  reject(name: string, reason: Rejection): void {
    this.#options.rejections.add(reason);
    this.delete(name);
  }

  /** Deletes a key. If it was not published in this run, it is deleted with the keys of earlier runs. */
  delete(name: string): void {
    if (this.#wanted.has(name)) this.#wanted.delete(name);
  }

  /**
   * Declares the content complete. Resolves when everything set before is in the kvstore, the keys of earlier runs are
   * deleted, and the canary is written if there is one.
   */
  async markSynced(): Promise<void> {
    const { gate = OPEN_GATE } = this.#options;
    await this.#initialPublish;
    await gate.runSteps(this.#collectLeftovers(gate.slice));
    if (this.#leftovers.size > 0) await this.#options.sweepAfter?.();
    await gate.runSteps(this.#sweep(gate.slice));
    await this.#store.local.markSynced();
    this.#isComplete = true;
    await this.#store.local.endAdoption();
  }

  /** Resolves when all puts and deletes so far are in the kvstore, regardless of the canary. */
  whenFlushed(): Promise<void> {
    return this.#store.local.whenFlushed();
  }

  /** Adds the existing keys recorded by the store to the leftovers, in steps of `slice` rows. */
  #collectLeftovers(slice: number): Generator<void, void, void> {
    return this.#store.local.visitInherited(slice, (name, value) => {
      if (this.#options.isOwned(name, value)) this.#leftovers.add(name);
    });
  }

  /** Deletes the leftovers, in steps of `slice` keys. A key wanted in the meantime stays. */
  *#sweep(slice: number): Generator<void, void, void> {
    const { keepWhenEmpty, onSweep } = this.#options;
    yield* this.#collectLeftovers(slice);
    this.#isSweepWaiting = keepWhenEmpty === true && this.status().keys === 0;
    if (this.#isSweepWaiting || this.#leftovers.size === 0) return;
    onSweep?.(this.#leftovers.size);
    yield* forEachInSteps(this.#leftovers, slice, (name) => {
      this.#leftovers.delete(name);
      this.#store.local.delete(name);
    });
  }

  #sweepLater(): void {
    const { clock, gate = OPEN_GATE } = this.#options;
    this.#returnedTimer ??= clock.after(RETURNED_DELAY_MS, () => {
      this.#returnedTimer = undefined;
      gate.runInBackground(this.#sweep(gate.slice));
    });
  }

  /**
   * Writes until the signal fires. The keys then stay until their lease expires, or until the next run adopts them.
   * Only one run at a time.
   */
  async run(signal: AbortSignal): Promise<void> {
    await this.#store.run(signal);
    this.#returnedTimer?.cancel();
    this.#returnedTimer = undefined;
  }

  #observer(): StoreObserver<Uint8Array> {
    const { isOwned } = this.#options;
    return {
      onUpdate: (name, value) => {
        this.#equivalents?.recordFound(name, value);
        // Without `isEquivalent`, the wanted keys are the local keys of the store, whose events it does not pass on.
        if (this.#equivalents?.has(name) === true) return;
        const mayBeLeftover = !this.#isComplete || this.#store.isReturned;
        if (!mayBeLeftover || !isOwned(name, value)) return;
        this.#leftovers.add(name);
        if (this.#isComplete) this.#sweepLater();
      },
      onDelete: (name) => {
        this.#leftovers.delete(name);
        this.#equivalents?.recordMissing(name);
      },
    };
  }
}
