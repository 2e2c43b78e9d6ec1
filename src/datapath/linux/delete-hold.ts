import type { Clock, Timer } from '../../base/clock.ts';
import type { KeptItems } from './kept-items.ts';

/** What is chosen by then has been sent: a connection that was begun just before gets through. */
const SETTLE_MS = 500;
/** A table that cannot be written does not hold deletes of another for longer. */
const MAX_HOLD_MS = 10_000;

/** What deletes wait for. */
export type TableBefore = Pick<KeptItems, 'flushed' | 'missing'>;

/**
 * Holds deletes of a table until tables that lead to it have what is desired: two tables do not change together, and a route
 * that goes before the backends behind it is an error that a client sees. What waits goes when nothing of those tables waits
 * for its turn or fails, and half a second later, so that connections under way are not cut; after ten seconds it goes anyway.
 */
export class DeleteHold implements Disposable {
  readonly #clock: Pick<Clock, 'now' | 'after'>;
  readonly #before: Iterable<TableBefore>;
  readonly #sleeps = new Map<Timer, () => void>();
  #isDisposed = false;

  /** The tables are looked up when something waits: they may be added later. */
  constructor(clock: Pick<Clock, 'now' | 'after'>, before: Iterable<TableBefore>) {
    this.#clock = clock;
    this.#before = before;
  }

  /** Resolves when deletes that are due now may go, or this is disposed of. At once where there are no such tables. */
  async passed(): Promise<void> {
    const tables = [...this.#before];
    const end = this.#clock.now() + MAX_HOLD_MS;
    let isClear = tables.length === 0;
    while (!isClear && !this.#isDisposed && this.#clock.now() < end) {
      await this.#flushed(tables, end - this.#clock.now());
      await this.#sleep(SETTLE_MS);
      isClear = tables.every((table) => table.missing() === 0);
    }
  }

  [Symbol.dispose](): void {
    this.#isDisposed = true;
    for (const [timer, wake] of this.#sleeps) {
      timer.cancel();
      wake();
    }
    this.#sleeps.clear();
  }

  async #flushed(tables: readonly TableBefore[], ms: number): Promise<void> {
    let cancel = (): void => {};
    const tooLong = new Promise<void>((resolve) => {
      cancel = this.#alarm(ms, resolve);
    });
    await Promise.race([tooLong, Promise.all(tables.map((table) => table.flushed()))]);
    cancel();
  }

  #sleep(ms: number): Promise<void> {
    return new Promise((resolve) => void this.#alarm(ms, resolve));
  }

  /** Wakes after a time, or when this is disposed of; gives what cancels it. */
  #alarm(ms: number, wake: () => void): () => void {
    if (this.#isDisposed) {
      wake();
      return () => {};
    }
    const timer = this.#clock.after(ms, () => {
      this.#sleeps.delete(timer);
      wake();
    });
    this.#sleeps.set(timer, wake);
    return () => {
      timer.cancel();
      this.#sleeps.delete(timer);
    };
  }
}
