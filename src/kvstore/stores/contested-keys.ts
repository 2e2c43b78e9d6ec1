import { type Backoff, backoffDelay } from '../../base/backoff.ts';
import type { Runtime } from '../../base/system-clock.ts';
import { type ValueTable, WorkQueue } from '../../base/work-queue.ts';

export interface ContestedKeysOptions<K> extends Runtime {
  /** Writes the key again. */
  putBack(key: K): void;
}

/** When a key was put back. */
interface PutBacks {
  /** Number of times the key was put back, each time within {@link CONTESTED_MS} of the previous time. */
  readonly times: number;
  /** Time at which the key was put back last. */
  readonly at: number;
}

/**
 * An overwritten key is put back within a second at first. If two writers fight for a key, they write it every five
 * minutes.
 */
const BACKOFF: Backoff = { baseMs: 1000, capMs: 5 * 60_000 };
/** Time after the last put-back until a key is no longer contested: twice the maximum delay. */
const CONTESTED_MS = 2 * BACKOFF.capMs;

/**
 * Decides when to put back a key that another client has overwritten or deleted. A deleted key is put back immediately,
 * because readers need it. An overwritten key is put back after up to a second: the other value may be an earlier one
 * of this client whose event arrives late. The event of the latest write then follows soon, and cancels the put-back. A
 * key that is changed repeatedly is put back with backoff.
 */
export class ContestedKeys<K> {
  readonly #options: ContestedKeysOptions<K>;
  readonly #waiting: WorkQueue<K>;
  readonly #histories: ValueTable<K, PutBacks>;

  /** @param histories a table for these keys only. Default: a `Map`. */
  constructor(options: ContestedKeysOptions<K>, histories: ValueTable<K, PutBacks> = new Map<K, PutBacks>()) {
    this.#options = options;
    this.#histories = histories;
    const { clock, random } = options;
    this.#waiting = new WorkQueue({ clock, random, onDue: () => this.#putBackDue() });
  }

  /** Schedules a put-back, because the key has another value. {@link cancel} cancels it. */
  recordOverwrite(key: K): void {
    if (this.#waiting.has(key)) return;
    const { random } = this.#options;
    this.#waiting.addAfter(key, backoffDelay(this.#times(key) + 1, BACKOFF, random));
  }

  /** Puts a deleted key back immediately if it was not put back recently, otherwise like {@link recordOverwrite}. */
  recordDelete(key: K): void {
    if (this.#times(key) > 0) this.recordOverwrite(key);
    else this.#putBack(key);
  }

  /** Cancels a put-back, because the key has its value or will be written anyway. */
  cancel(key: K): void {
    if (this.#waiting.size > 0) this.#waiting.delete(key);
  }

  /** Forgets when a key was put back. Call it after {@link cancel}, when the key is no longer used. */
  forget(key: K): void {
    this.#histories.delete(key);
  }

  /** Cancels all put-backs. */
  stop(): void {
    this.#waiting.clear();
  }

  #times(key: K): number {
    const history = this.#histories.get(key);
    const isRecent = history !== undefined && this.#options.clock.now() - history.at < CONTESTED_MS;
    return isRecent ? history.times : 0;
  }

  #putBackDue(): void {
    for (let key = this.#waiting.get(); key !== undefined; key = this.#waiting.get()) {
      this.#waiting.done(key);
      this.#putBack(key);
    }
  }

  #putBack(key: K): void {
    this.cancel(key);
    this.#histories.set(key, { times: this.#times(key) + 1, at: this.#options.clock.now() });
    this.#options.putBack(key);
  }
}
