import { backoffDelay } from '../base/backoff.ts';
import type { Clock, Random } from '../base/clock.ts';
import { type Failure, failureOf } from '../base/failure.ts';
import { sleep } from '../base/sleep.ts';
import type { KeyRead, KvstoreBackend } from '../kvstore/backend.ts';

/** Options of {@link DeleteGuard}. */
export interface DeleteGuardOptions {
  readonly backend: KvstoreBackend;
  /** The key without which deletes prove nothing, as a quorum has seen it. It existed then. */
  readonly key: string;
  readonly seen: KeyRead;
  readonly clock: Clock;
  readonly random: Random;
  readonly signal: AbortSignal;
  /** Called once, when the key is found to have gone, or the store to be another one. */
  readonly onGone: () => void;
  /** Called when a read fails, and with undefined when one succeeds again. */
  readonly onFailure: (failure: Failure | undefined) => void;
}

const BACKOFF = { baseMs: 50, capMs: 5_000 };

/**
 * Holds deletes back until it is proven that a key, the cluster's configuration, was still there when they happened.
 * A publisher that dies takes its configuration along with everything else, in one revision, as its lease expires: such
 * deletes say nothing of the cluster.
 *
 * A delete at revision R is proven by a quorum read after it was received: the store is at R or later then, and if the
 * key's create revision has not changed, the key has existed without interruption until then. All deletes up to the
 * store's revision are proven at once, so a burst costs one read, and no two reads are under way at a time.
 */
export class DeleteGuard {
  readonly #options: DeleteGuardOptions;
  #proven = 0;
  /** The latest delete that was asked for. */
  #asked = 0;
  #gone = false;
  #failures = 0;
  #reading: Promise<void> | undefined;

  constructor(options: DeleteGuardOptions) {
    this.#options = options;
  }

  /** Whether the key existed at `revision`. Waits while the kvstore does not answer; false when the signal fires. */
  async allows(revision: number): Promise<boolean> {
    const { signal } = this.#options;
    this.#asked = Math.max(this.#asked, revision);
    while (revision > this.#proven && !this.#gone && !signal.aborted) {
      this.#reading ??= this.#read(this.#asked).finally(() => {
        this.#reading = undefined;
      });
      await this.#reading;
    }
    return !this.#gone && !signal.aborted;
  }

  async #read(asked: number): Promise<void> {
    const { backend, key, signal, clock, random, onFailure } = this.#options;
    try {
      const found = await backend.read(key, { signal });
      if (this.#failures > 0) onFailure(undefined);
      this.#failures = 0;
      this.#judge(found, asked);
    } catch (thrown) {
      if (signal.aborted) return;
      onFailure(failureOf(thrown, clock));
      await sleep(clock, backoffDelay(++this.#failures, BACKOFF, random), signal);
    }
  }

  #judge({ kv, header }: KeyRead, asked: number): void {
    const { seen, onGone } = this.#options;
    const sameStore = header.clusterID === seen.header.clusterID && header.revision >= asked;
    if (sameStore && kv !== undefined && kv.createRevision === seen.kv?.createRevision) {
      this.#proven = Math.max(this.#proven, header.revision);
    } else {
      this.#gone = true;
      onGone();
    }
  }
}
