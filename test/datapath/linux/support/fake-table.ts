import type { KeptTableContext } from '../../../../src/datapath/linux/kept-table.ts';
import type { KernelTable, TableChange } from '../../../../src/datapath/linux/kernel-table.ts';
import { SyscallError } from '../../../../src/datapath/linux/syscall/syscall-error.ts';
import { ManualClock } from '../../../base/support/manual-clock.ts';

const ENOSPC = 28;
const EPERM = 1;

/** A kernel table. Tests add items, limit room and break keys. Items are texts. */
export class FakeTable implements KernelTable<string> {
  readonly name: string = 'fake';
  readonly there: Map<string, string> = new Map();
  /** Keys that cannot be written. */
  readonly broken: Set<string> = new Set();
  /** Each call of `apply`, as `+ key item` and `- key`. */
  readonly calls: (readonly string[])[] = [];
  capacity: number | undefined;
  order?: (key: string) => number;
  rank?: (key: string, item: string) => number;

  dump(): Iterable<readonly [string, string]> {
    return [...this.there];
  }

  equal(a: string, b: string): boolean {
    return a === b;
  }

  print(item: string): string {
    return item;
  }

  apply(changes: readonly TableChange<string>[]): readonly (SyscallError | undefined)[] {
    this.calls.push(changes.map(({ key, item }) => (item === undefined ? `- ${key}` : `+ ${key} ${item}`)));
    return changes.map((change) => this.#applyOne(change));
  }

  #applyOne({ key, item }: TableChange<string>): SyscallError | undefined {
    if (this.broken.has(key)) return new SyscallError('fake', EPERM);
    if (item === undefined) this.there.delete(key);
    else if (this.there.size === this.capacity && !this.there.has(key))
      return new SyscallError('fake', ENOSPC);
    else this.there.set(key, item);
    return undefined;
  }
}

/** Turns of an event loop that a test runs one by one, and a manual clock. */
export class ManualTurns implements KeptTableContext {
  readonly clock: ManualClock = new ManualClock();
  readonly random = (): number => 1;
  readonly #waiting: (() => void)[] = [];
  readonly nextTurn = (callback: () => void): void => void this.#waiting.push(callback);

  /** Runs one turn, with all the promises that it resolves. Returns false if nothing waited for it. */
  async turn(): Promise<boolean> {
    const waiting = this.#waiting.splice(0);
    for (const callback of waiting) callback();
    await new Promise((resolve) => setImmediate(resolve));
    return waiting.length > 0;
  }

  /** Runs turns until nothing waits for one. Returns their number. */
  async settle(): Promise<number> {
    let turns = 0;
    await Promise.resolve();
    while (await this.turn()) turns++;
    return turns;
  }

  /** Runs turns until `work` is over. */
  async until<T>(work: Promise<T>): Promise<T> {
    let over = false;
    const isOver = (): void => {
      over = true;
    };
    work.then(isOver, isOver);
    while (!over) await this.turn();
    return work;
  }
}
