import type { Clock } from '../../base/clock.ts';
import { followSignal } from '../../base/follow-signal.ts';
import { sleep } from '../../base/sleep.ts';
import type { KeptItems } from './kept-items.ts';

/** Delay of deletes after the last change of the referring tables. Clients connect to former backends until then. */
const SETTLE_MS = 500;
/** Maximum time that an unwritable table delays the deletes of another one. */
const MAX_HOLD_MS = 10_000;

/** A referring table, which deletes wait for. */
export type DependentTable = Pick<KeptItems, 'flushed' | 'missing'>;

/**
 * Delays the deletes of a table until the tables that refer to its items have their desired content. For example, a
 * service refers to the route to its backend. Two tables cannot change together, and if the route is deleted first,
 * clients see errors. Deletes are released half a second after the referring tables have written their pending
 * changes, if these tables then contain all desired items. After about ten seconds they are released in any case.
 */
export class DeleteHold implements Disposable {
  readonly #clock: Pick<Clock, 'now' | 'after'>;
  readonly #dependents: Iterable<DependentTable>;
  readonly #disposed = new AbortController();

  /** `dependents` is iterated at each wait, because tables may be added later. */
  constructor(clock: Pick<Clock, 'now' | 'after'>, dependents: Iterable<DependentTable>) {
    this.#clock = clock;
    this.#dependents = dependents;
  }

  /**
   * Resolves when deletes that were added before the call are allowed: immediately without referring tables. Also on
   * dispose.
   */
  async deletesAllowed(): Promise<void> {
    const { signal } = this.#disposed;
    const tables = [...this.#dependents];
    const end = this.#clock.now() + MAX_HOLD_MS;
    let isClear = tables.length === 0;
    while (!isClear && !signal.aborted && this.#clock.now() < end) {
      await this.#flushed(tables, end - this.#clock.now());
      await sleep(this.#clock, SETTLE_MS, signal);
      isClear = tables.every((table) => table.missing() === 0);
    }
  }

  [Symbol.dispose](): void {
    this.#disposed.abort();
  }

  /** Resolves when the tables are up to date, after the given time, or on dispose. */
  async #flushed(tables: readonly DependentTable[], ms: number): Promise<void> {
    const limit = new AbortController();
    const unfollow = followSignal(this.#disposed.signal, limit);
    const tooLong = sleep(this.#clock, ms, limit.signal);
    await Promise.race([tooLong, Promise.all(tables.map((table) => table.flushed()))]);
    unfollow();
    limit.abort();
  }
}
