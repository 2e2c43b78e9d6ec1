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
   * Returns the sorted content. `items` is called only if the version changed. Its result must not change during the
   * sort.
   */
  of(version: unknown, items: () => Iterable<Keyed<V>>): Promise<readonly Keyed<V>[]> {
    if (this.#last === undefined || this.#last.version !== version)
      this.#last = { version, values: this.#sort(items()) };
    return this.#last.values;
  }

  async #sort(items: Iterable<Keyed<V>>): Promise<readonly Keyed<V>[]> {
    let sorted: readonly Keyed<V>[] = [];
    const steps = function* (): Generator<undefined, void, void> {
      sorted = yield* sortInSteps(items, ITEMS_PER_STEP, byKey);
    };
    await this.#gate.runSteps(steps());
    return sorted;
  }
}

function byKey([a]: Keyed<unknown>, [b]: Keyed<unknown>): number {
  return ascending(a, b);
}
