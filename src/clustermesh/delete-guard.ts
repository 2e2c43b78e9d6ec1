import { backoffDelay } from '../base/backoff.ts';
import { type Failure, failureOf } from '../base/failure.ts';
import { sleep } from '../base/sleep.ts';
import type { Runtime } from '../base/system-clock.ts';
import type { KeyRead, KvstoreBackend } from '../kvstore/session/backend.ts';

export interface DeleteGuardOptions extends Runtime {
  readonly backend: KvstoreBackend;
  /**
   * The key of the cluster's configuration. Deletes are applied only while it exists at the revision of `initialRead`.
   */
  readonly key: string;
  /** The quorum read that found the key before the guard was created. */
  readonly initialRead: KeyRead;
  readonly signal: AbortSignal;
  /** Called once if the key was deleted or written again, or the store was replaced. */
  readonly onKeyLost: () => void;
  /** Called with the failure when a read fails, and with undefined when a later read succeeds. */
  readonly onFailure: (failure: Failure | undefined) => void;
}

const BACKOFF = { baseMs: 50, capMs: 5_000 };

/**
 * Holds deletes back until a read proves that a key, the cluster's configuration, still existed at their revision. If a
 * publisher dies, its lease expires and deletes the configuration with everything else in one revision. Such deletes do
 * not mean that objects of the cluster were deleted.
 *
 * The proof is a quorum read after the receipt of a delete at revision R. The store is then at R or later. If the key
 * has the mod revision found by the handshake, it existed unchanged at R. One read proves all deletes up to the
 * revision of the store, so a burst costs one read. At most one read runs at a time.
 *
 * A cluster that changes the format of its services first writes the new format to its configuration, and then deletes
 * the old keys. Such deletes must not be applied before the next handshake. Equal values are no proof, because the
 * cluster may have changed the format and changed it back. Therefore any write of the configuration ends the guard. If
 * the value is the same, this costs one handshake.
 */
export class DeleteGuard {
  readonly #options: DeleteGuardOptions;
  #proven = 0;
  /** The highest revision passed to {@link DeleteGuard.allows}. */
  #requestedRevision = 0;
  /** True after the key was deleted or written again, or the store was replaced. */
  #isKeyLost = false;
  #failures = 0;
  #reading: Promise<void> | undefined;

  constructor(options: DeleteGuardOptions) {
    this.#options = options;
  }

  /**
   * Returns true if the key existed at `revision`. Waits while the kvstore does not answer; returns false if the signal
   * fires.
   */
  async allows(revision: number): Promise<boolean> {
    const { signal } = this.#options;
    this.#requestedRevision = Math.max(this.#requestedRevision, revision);
    while (revision > this.#proven && !this.#isKeyLost && !signal.aborted) {
      this.#reading ??= this.#read(this.#requestedRevision).finally(() => {
        this.#reading = undefined;
      });
      await this.#reading;
    }
    return !this.#isKeyLost && !signal.aborted;
  }

  async #read(requestedRevision: number): Promise<void> {
    const { backend, key, signal, clock, random, onFailure } = this.#options;
    try {
      const found = await backend.read(key, { signal });
      if (this.#failures > 0) onFailure(undefined);
      this.#failures = 0;
      this.#evaluate(found, requestedRevision);
    } catch (thrown) {
      if (signal.aborted) return;
      onFailure(failureOf(thrown, clock));
      await sleep(clock, backoffDelay(++this.#failures, BACKOFF, random), signal);
    }
  }

  #evaluate({ kv, header }: KeyRead, requestedRevision: number): void {
    const { initialRead, onKeyLost } = this.#options;
    // Revisions of a store never decrease: a lower one means that the store was replaced or restored.
    const isSameStore =
      header.clusterID === initialRead.header.clusterID && header.revision >= requestedRevision;
    const isUnchanged = kv !== undefined && kv.modRevision === initialRead.kv?.modRevision;
    if (isSameStore && isUnchanged) {
      this.#proven = Math.max(this.#proven, header.revision);
    } else {
      this.#isKeyLost = true;
      onKeyLost();
    }
  }
}
