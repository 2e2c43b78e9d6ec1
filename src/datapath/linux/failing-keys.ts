import type { Backoff } from '../../base/backoff.ts';
import type { Clock, Random } from '../../base/clock.ts';
import { WorkQueue } from '../../base/work-queue.ts';
import type { SyscallError } from './syscall/syscall-error.ts';

/** A key whose write or delete failed and is retried. */
export interface FailingKey {
  readonly key: string;
  readonly reason: string;
  readonly attempts: number;
}

/** With a minimum, because jitter alone could retry immediately. */
const BACKOFF: Backoff = { minMs: 100, baseMs: 200, capMs: 30_000 };
const MAX_SHOWN = 16;

/** The keys whose last write or delete failed. Each is retried with backoff until `end`. */
export class FailingKeys {
  readonly #errors = new Map<string, SyscallError>();
  /** The keys that wait for their next attempt, and the number of attempts of each failing key. */
  readonly #retries: WorkQueue<string>;

  /** Calls `retry` with each key that is due. */
  constructor(clock: Pick<Clock, 'now' | 'after'>, random: Random, retry: (key: string) => void) {
    const onDue = (): void => {
      for (let key = this.#retries.get(); key !== undefined; key = this.#retries.get()) {
        this.#retries.done(key);
        retry(key);
      }
    };
    this.#retries = new WorkQueue({ clock, random, backoff: BACKOFF, onDue });
  }

  get size(): number {
    return this.#errors.size;
  }

  has(key: string): boolean {
    return this.#errors.has(key);
  }

  keys(): Iterable<string> {
    return this.#errors.keys();
  }

  /** Adds a failed attempt. */
  add(key: string, error: SyscallError): void {
    this.#errors.set(key, error);
    this.#retries.retry(key);
  }

  /** Must be called when a write of the key succeeded, or when none is needed any more. */
  end(key: string): void {
    if (this.#errors.delete(key)) this.#retries.delete(key);
  }

  clear(): void {
    this.#errors.clear();
    this.#retries.clear();
  }

  /** Returns up to 16 of the keys. */
  shown(): readonly FailingKey[] {
    const shown: FailingKey[] = [];
    for (const [key, { message: reason }] of this.#errors)
      if (shown.push({ key, reason, attempts: this.#retries.failures(key) }) === MAX_SHOWN) break;
    return shown;
  }
}
