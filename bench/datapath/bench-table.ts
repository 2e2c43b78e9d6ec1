import { systemClock } from '../../src/base/system-clock.ts';
import { KeptTable } from '../../src/datapath/linux/kept-table.ts';
import type { KernelTable } from '../../src/datapath/linux/kernel-table.ts';
import { expect } from '../expect.ts';
import { type Delayed, delayDuring } from '../loop-delay.ts';
import { threadMs } from '../thread-clock.ts';

/** Number of changes that an engine reports in one batch from a kvstore. */
const MARKED_A_TURN = 256;

/** A duration, and the CPU time used. */
export interface Pass extends Delayed {
  readonly cpuMs: number;
}

/** Changes a table like the agent: chunk by chunk, between turns of the event loop. */
export class BenchTable<Item> implements Disposable {
  readonly #desired = new Map<string, Item>();
  readonly #kept: KeptTable<Item>;

  constructor(table: KernelTable<Item>) {
    const context = { clock: systemClock, random: Math.random, nextTurn: setImmediate };
    this.#kept = new KeptTable(table, this.#desired, context);
  }

  async adopt(): Promise<void> {
    await this.#kept.adopt();
    this.#kept.allowDeletes();
  }

  /** Sets the items, deletes the keys whose item is undefined, and waits until the kernel has the changes. */
  async change(items: Iterable<readonly [key: string, item: Item | undefined]>): Promise<Pass> {
    let cpuMs = 0;
    const delayed = await delayDuring(async () => {
      const begun = threadMs();
      let marked = 0;
      for (const [key, item] of items) {
        // In several turns, because the bench measures how long the table blocks the event loop.
        if (++marked % MARKED_A_TURN === 0) await new Promise<void>((resolve) => setImmediate(resolve));
        if (item === undefined) this.#desired.delete(key);
        else this.#desired.set(key, item);
        this.#kept.mark(key);
      }
      await this.#kept.flushed();
      cpuMs = threadMs() - begun;
    });
    expect('failing', this.#kept.status().failing, 0);
    return { ...delayed, cpuMs };
  }

  [Symbol.dispose](): void {
    this.#kept[Symbol.dispose]();
  }
}
