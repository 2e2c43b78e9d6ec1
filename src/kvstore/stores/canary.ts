import type { Clock } from '../../base/clock.ts';
import { EitherSignal } from '../../base/follow-signal.ts';
import { encodeTimestamp } from '../codec/timestamp.ts';
import type { KvstoreBackend, WriteOptions } from '../session/backend.ts';

export interface CanaryOptions {
  readonly backend: KvstoreBackend;
  readonly clock: Clock;
  /** Undefined if the prefix has no canary. */
  readonly key: string | undefined;
  readonly leased: WriteOptions['leased'];
}

/**
 * The canary of a prefix: the key that tells readers that the prefix is complete. It is *valid* while it exists and
 * the kvstore has all keys that were wanted before its write. It is *stale* if it may exist while keys are missing.
 */
export class Canary {
  readonly #options: CanaryOptions;
  /** Aborts the running write if a key is lost during it. */
  #write: AbortController | undefined;
  #delete: Promise<void> | undefined;
  #mayExist = false;
  #isValid = false;

  constructor(options: CanaryOptions) {
    this.#options = options;
  }

  get isValid(): boolean {
    return this.#isValid;
  }

  get mayExist(): boolean {
    return this.#mayExist;
  }

  /** True if the canary may exist although keys are missing, and is not being written. */
  get isStale(): boolean {
    return this.#mayExist && !this.#isValid && this.#write === undefined;
  }

  abortWrite(): void {
    this.#write?.abort();
  }

  /** Records that keys are missing. Returns true if the canary was valid. */
  retract(): boolean {
    this.abortWrite();
    const wasValid = this.#isValid;
    this.#isValid = false;
    return wasValid;
  }

  /** Records that the canary was deleted with its lease. Call {@link retract} afterwards. */
  recordExpiry(): void {
    this.#mayExist = false;
  }

  /** Records that another client has deleted the canary. */
  recordDelete(): void {
    this.#isValid = false;
    this.#mayExist = false;
  }

  /** Deletes the canary. Call this before every write while the canary is stale. Concurrent calls share one delete. */
  deleteStale(signal: AbortSignal): Promise<void> {
    this.#delete ??= this.#deleteOnce(signal).finally(() => {
      this.#delete = undefined;
    });
    return this.#delete;
  }

  async #deleteOnce(signal: AbortSignal): Promise<void> {
    const { backend, key } = this.#options;
    if (key !== undefined) await backend.delete(key, { fenced: true, signal });
    this.#mayExist = false;
  }

  /**
   * Writes the canary, then calls `completeWaits` if no key was lost during the write. If `completeWaits` returns true,
   * the canary is valid. If the prefix has no canary, or if the canary is valid, only calls `completeWaits`.
   */
  async write(signal: AbortSignal, completeWaits: () => boolean): Promise<void> {
    const { backend, clock, key, leased } = this.#options;
    if (key === undefined || this.#isValid) {
      completeWaits();
      return;
    }
    const write = new AbortController();
    this.#write = write;
    this.#mayExist = true;
    try {
      using either = new EitherSignal(signal, write.signal);
      const value = encodeTimestamp(clock.wallTime());
      await backend.update(key, value, { fenced: true, leased, signal: either.signal });
    } catch (error) {
      if (!write.signal.aborted) throw error;
    } finally {
      this.#write = undefined;
    }
    if (!write.signal.aborted && completeWaits()) this.#isValid = true;
  }
}
