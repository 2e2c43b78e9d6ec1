import type { Clock, Random } from '../../base/clock.ts';
import { sleep } from '../../base/sleep.ts';
import { Supervisor } from '../../base/supervisor.ts';
import type { KvstoreBackend, KvstoreLock } from '../../kvstore/backend.ts';
import { INIT_LOCKS_PREFIX } from '../../kvstore/codec/keys.ts';
import { asKvstoreError } from '../../kvstore/errors.ts';

/** What a {@link SoleWriter} works with. */
export interface SoleWriterOptions {
  /** The kvstore into which is written; it has the lock. */
  readonly backend: KvstoreBackend;
  readonly clock: Clock;
  readonly random: Random;
  /** Called when another is found to have the lock that is awaited. */
  readonly onStandby?: (() => void) | undefined;
}

/** The lock of all who copy into one kvstore: where whoever may write anything may write. */
export const WRITER_LOCK: string = `${INIT_LOCKS_PREFIX}kvstoremesh`;
/** Between two looks at who has the lock, while it is awaited. */
const LOOK_MS = 2000;
/** It is passed on within 5 s: who has it in so many looks, keeps it. */
const LOOKS = 4;

/**
 * Lets one process at a time copy into a kvstore: the others wait for its lock, which goes 25 s after its holder has died. One
 * that has lost it writes nothing until it has it again, as its kvstore was out of reach; where another has taken it, it ends.
 *
 * Not covered: a kvstoremesh of another make, and a user who may not write the lock; that one copies without.
 */
export class SoleWriter {
  readonly #options: SoleWriterOptions;
  readonly #tasks: Supervisor;
  /** Places in the queue that were ours. */
  readonly #own = new Set<string>();
  #holder: string | undefined;
  #held: KvstoreLock | undefined;
  /** There is no right to the lock. */
  #isForbidden = false;

  constructor(options: SoleWriterOptions) {
    this.#options = options;
    this.#tasks = new Supervisor(options);
  }

  /** The key of who holds the lock that is awaited; `undefined` while it is not awaited, or no other is known to hold it. */
  get holder(): string | undefined {
    return this.#holder;
  }

  /**
   * Whether no other can have the lock: what is written without it is bound to a lease that ends with this process, under the
   * one that copies then.
   */
  mayWrite(): boolean {
    return this.#isForbidden || this.#held?.lost.aborted === false;
  }

  /**
   * Calls `begin` once the lock is held, and waits for the signal. Resolves to `taken` when another one has the lock that was
   * held, and so copies as well; rejects with what `begin` throws.
   */
  async run(begin: () => Promise<void>, signal: AbortSignal): Promise<'ended' | 'taken'> {
    let lock = await this.#lock(signal, () => {});
    if (signal.aborted) return 'ended';
    await begin();
    while (!signal.aborted && lock !== undefined) {
      await fired(AbortSignal.any([signal, lock.lost]));
      if (signal.aborted) break;
      await lock.release(); // the next one of this process waits for it
      const taken = new AbortController();
      lock = await this.#lock(AbortSignal.any([signal, taken.signal]), () => taken.abort());
      if (taken.signal.aborted && !signal.aborted) return 'taken';
    }
    await fired(signal);
    this.#held = undefined;
    await lock?.release();
    return 'ended';
  }

  /** `undefined`: the signal has fired, or there is no right to it. */
  async #lock(signal: AbortSignal, onTaken: () => void): Promise<KvstoreLock | undefined> {
    const { backend } = this.#options;
    // What is there now is not ours.
    await this.#see(signal);
    const over = new AbortController();
    const looking = this.#look(AbortSignal.any([signal, over.signal]), onTaken);
    let lock: KvstoreLock | undefined;
    const acquire = async (until: AbortSignal): Promise<void> => {
      try {
        lock = await backend.lock(WRITER_LOCK, { signal: until });
      } catch (error) {
        if (asKvstoreError(error).code !== 'forbidden') throw error;
        this.#isForbidden = true;
      }
    };
    await this.#tasks.keep('lock of the writer', acquire, { signal });
    over.abort();
    await looking;
    this.#held = lock;
    if (lock !== undefined) this.#own.add(lock.key);
    return lock;
  }

  async #look(signal: AbortSignal, onTaken: () => void): Promise<void> {
    const { clock } = this.#options;
    for (let looks = 1; !signal.aborted; ) {
      await sleep(clock, LOOK_MS, signal);
      if (signal.aborted) break;
      const before = this.#holder;
      await this.#see(signal);
      looks = this.#holder !== undefined && this.#holder === before ? looks + 1 : 1;
      if (looks >= LOOKS) onTaken();
    }
    this.#holder = undefined;
  }

  async #see(signal: AbortSignal): Promise<void> {
    const { backend, onStandby } = this.#options;
    const places = await backend.listPrefix(`${WRITER_LOCK}/`, { signal }).catch(() => []);
    const [first] = [...places].sort((a, b) => a.createRevision - b.createRevision);
    const before = this.#holder;
    this.#holder = first !== undefined && !this.#own.has(first.key) ? first.key : undefined;
    if (before === undefined && this.#holder !== undefined) onStandby?.();
  }
}

function fired(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    signal.addEventListener('abort', () => resolve(), { once: true });
  });
}
