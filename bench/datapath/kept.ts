import { systemClock } from '../../src/base/system-clock.ts';
import { KeptTable } from '../../src/datapath/linux/kept-table.ts';
import type { KernelTable } from '../../src/datapath/linux/kernel-table.ts';
import { expect } from '../expect.ts';
import { type Delayed, delayDuring } from '../loop-delay.ts';
import { threadMs } from '../thread-clock.ts';

/** As many as an engine says at once of what it reads from a kvstore. */
const MARKED_A_TURN = 256;

/** How long something took, and what of a processor. */
export interface Pass extends Delayed {
  readonly cpuMs: number;
}

/** Changes a table as the agent does: chunk by chunk, between turns of the event loop. */
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

  /** Sets these items, or deletes those that are undefined, and waits until the kernel has it. */
  async change(items: Iterable<readonly [key: string, item: Item | undefined]>): Promise<Pass> {
    let cpuMs = 0;
    const delayed = await delayDuring(async () => {
      const begun = threadMs();
      let marked = 0;
      for (const [key, item] of items) {
        // Not all in one turn: what is looked at is how long the table holds up the event loop.
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
