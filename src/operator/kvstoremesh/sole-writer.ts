import { EitherSignal, fired } from '../../base/follow-signal.ts';
import { sleep } from '../../base/sleep.ts';
import { Supervisor } from '../../base/supervisor.ts';
import type { Runtime } from '../../base/system-clock.ts';
import { KVSTOREMESH_LOCK } from '../../kvstore/codec/keys.ts';
import type { KvstoreBackend, KvstoreLock } from '../../kvstore/session/backend.ts';
import { asKvstoreError } from '../../kvstore/session/errors.ts';

export interface SoleWriterOptions extends Runtime {
  /** The destination of the copies. It holds the lock. */
  readonly backend: KvstoreBackend;
  /** Called when another process holds the awaited lock. */
  readonly onStandby?: (() => void) | undefined;
  /** Receives a message if the kvstore does not answer the release of the lock in time. */
  readonly onProblem?: ((problem: string) => void) | undefined;
}

/** Time between two reads of the lock's holder while waiting for the lock. */
const POLL_MS = 2000;
/**
 * Number of consecutive reads of the same holder that prove that it has not lost the lock, and copies: four reads take
 * 6 s, and a holder that has lost the lock is replaced within 5 s.
 */
const EQUAL_READS = 4;
/** Maximum time to wait for the release of a lock. */
const RELEASE_MS = 2000;

/**
 * Lets only one process at a time copy into a kvstore. Other processes wait for the lock, which expires 25 s after its
 * holder has died. A process that loses the lock because its kvstore is unreachable writes nothing until it holds the
 * lock again. If another process has acquired the lock, `run` ends.
 *
 * Not covered: Cilium's kvstoremesh before 1.19, and a process without permission to write the lock, which copies
 * without it.
 */
export class SoleWriter {
  readonly #options: SoleWriterOptions;
  readonly #tasks: Supervisor;
  /** The keys of this process's entries in the queue of the lock. */
  readonly #entries = new Set<string>();
  /** The key of another process that holds the lock; see {@link SoleWriter.holder}. */
  #holder: string | undefined;
  #held: KvstoreLock | undefined;
  /** True if there is no permission to write the lock. */
  #isForbidden = false;

  constructor(options: SoleWriterOptions) {
    this.#options = options;
    this.#tasks = new Supervisor(options);
  }

  /**
   * The key of the holder of the awaited lock; `undefined` if the lock is not awaited, or if no other holder is known.
   */
  get holder(): string | undefined {
    return this.#holder;
  }

  /**
   * Returns true if this process holds the lock, or has no permission to write it. Otherwise this process must not
   * write, because its keys would be bound to its lease, and would expire although the new holder copies them.
   */
  mayWrite(): boolean {
    return this.#isForbidden || this.#held?.lost.aborted === false;
  }

  /**
   * Calls `begin` when this process holds the lock, or has no permission to write it, and then waits for the signal.
   * Resolves to `taken` if another process has acquired the lost lock, because that process then copies. Rejects if
   * `begin` throws. The lock is released before the end if the kvstore answers.
   */
  async run(begin: () => Promise<void>, signal: AbortSignal): Promise<'ended' | 'taken'> {
    let lock = await this.#acquire(signal, () => {});
    try {
      if (signal.aborted) return 'ended';
      await begin();
      while (!signal.aborted && lock !== undefined) {
        using endedOrLost = new EitherSignal(signal, lock.lost);
        await fired(endedOrLost.signal);
        if (signal.aborted) break;
        await this.#release(lock);
        const taken = new AbortController();
        using endedOrTaken = new EitherSignal(signal, taken.signal);
        lock = await this.#acquire(endedOrTaken.signal, () => taken.abort());
        if (taken.signal.aborted && !signal.aborted) return 'taken';
      }
      await fired(signal);
      return 'ended';
    } finally {
      this.#held = undefined;
      if (lock !== undefined) await this.#release(lock);
    }
  }

  /**
   * Waits at most {@link RELEASE_MS}. If the kvstore does not answer, the release continues: the next `lock()` of this
   * process waits for it, and closing the client revokes the lock's lease.
   */
  async #release(lock: KvstoreLock): Promise<void> {
    const { clock, onProblem } = this.#options;
    const released = new AbortController();
    await Promise.race([
      lock.release().finally(() => released.abort()),
      sleep(clock, RELEASE_MS, released.signal),
    ]);
    if (!released.signal.aborted)
      onProblem?.(`the kvstore did not answer the release of the lock ${lock.key} within ${RELEASE_MS} ms`);
  }

  /** Returns the lock, or `undefined` if the signal has fired or there is no permission to write the lock. */
  async #acquire(signal: AbortSignal, onTaken: () => void): Promise<KvstoreLock | undefined> {
    const { backend } = this.#options;
    // Read before this process has an entry in the queue, because every entry then belongs to another process.
    await this.#readHolder(signal);
    const acquired = new AbortController();
    using either = new EitherSignal(signal, acquired.signal);
    const checking = this.#checkHolder(either.signal, onTaken);
    let lock: KvstoreLock | undefined;
    const acquire = async (until: AbortSignal): Promise<void> => {
      try {
        lock = await backend.lock(KVSTOREMESH_LOCK, { signal: until });
      } catch (error) {
        if (asKvstoreError(error).code !== 'forbidden') throw error;
        this.#isForbidden = true;
      }
    };
    await this.#tasks.runWithRestart('lock of the writer', acquire, { signal });
    acquired.abort();
    await checking;
    this.#held = lock;
    if (lock !== undefined) this.#entries.add(lock.key);
    return lock;
  }

  /** Reads the holder until the signal fires. Calls `onTaken` if another process holds the lock. */
  async #checkHolder(signal: AbortSignal, onTaken: () => void): Promise<void> {
    const { clock } = this.#options;
    let equalReads = 1;
    await sleep(clock, POLL_MS, signal);
    while (!signal.aborted) {
      const previous = this.#holder;
      await this.#readHolder(signal);
      equalReads = this.#holder !== undefined && this.#holder === previous ? equalReads + 1 : 1;
      if (equalReads >= EQUAL_READS) onTaken();
      await sleep(clock, POLL_MS, signal);
    }
    this.#holder = undefined;
  }

  /** Reads the holder of the lock, which is the oldest entry in its queue. */
  async #readHolder(signal: AbortSignal): Promise<void> {
    const { backend, onStandby } = this.#options;
    const entries = await backend.listPrefix(`${KVSTOREMESH_LOCK}/`, { signal }).catch(() => []);
    const [first] = [...entries].sort((a, b) => a.createRevision - b.createRevision);
    const previous = this.#holder;
    this.#holder = first !== undefined && !this.#entries.has(first.key) ? first.key : undefined;
    if (previous === undefined && this.#holder !== undefined) onStandby?.();
  }
}
