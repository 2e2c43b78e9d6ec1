import { ascending } from '../../base/sorted-map.ts';
import { sortInSteps, type TurnGate } from '../../base/turn-gate.ts';

type Keyed<V> = readonly [key: string, value: V];

/** Number of items sorted or merged per step: about a millisecond. */
const ITEMS_PER_STEP = 2_048;

/**
 * The content of an engine, sorted by key in turns of the event loop. Each version is sorted once; all requests share
 * the result.
 */
export class SortedView<V> {
  readonly #gate: TurnGate;
  #last: { readonly version: unknown; readonly values: Promise<readonly Keyed<V>[]> } | undefined;

  constructor(gate: TurnGate) {
    this.#gate = gate;
  }

  /**
   * Returns the sorted content, each key once. `items` is called only if the version changed. The content may change
   * while it is read in steps: an item then has its value of this or of a later version.
   */
  of(version: unknown, items: () => Iterable<Keyed<V>>): Promise<readonly Keyed<V>[]> {
    if (this.#last === undefined || this.#last.version !== version)
      this.#last = { version, values: this.#sort(items()) };
    return this.#last.values;
  }

  async #sort(items: Iterable<Keyed<V>>): Promise<readonly Keyed<V>[]> {
    const unique: Keyed<V>[] = [];
    const steps = function* (): Generator<undefined, void, void> {
      const sorted = yield* sortInSteps(items, ITEMS_PER_STEP, byKey);
      for (const [at, item] of sorted.entries()) {
        // An item that was deleted and added meanwhile was read twice. The sort is stable: the last one is current.
        if (item[0] !== sorted[at + 1]?.[0]) unique.push(item);
        if (at % ITEMS_PER_STEP === 0) yield;
      }
    };
    await this.#gate.runSteps(steps());
    return unique;
  }
}

function byKey([a]: Keyed<unknown>, [b]: Keyed<unknown>): number {
  return ascending(a, b);
}
