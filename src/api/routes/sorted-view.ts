import { ascending } from '../../base/sorted-map.ts';
import type { TurnGate } from '../../base/turn-gate.ts';

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
    let runs: Keyed<V>[][] = [];
    await this.#gate.runSteps(sortRuns(items, runs));
    while (runs.length > 1) runs = await this.#mergePairs(runs);
    return runs[0] ?? [];
  }

  /** Merges the first run with the second, the third with the fourth, and so on. */
  async #mergePairs(runs: readonly Keyed<V>[][]): Promise<Keyed<V>[][]> {
    const longer: Keyed<V>[][] = [];
    for (let at = 0; at < runs.length; at += 2) {
      const merged: Keyed<V>[] = [];
      await this.#gate.runSteps(merge(runs[at] ?? [], runs[at + 1] ?? [], merged));
      longer.push(merged);
    }
    return longer;
  }
}

/** Sorts the items in runs. Each step adds one run to `runs`. */
function* sortRuns<V>(items: Iterable<Keyed<V>>, runs: Keyed<V>[][]): Generator<void, void, void> {
  let run: Keyed<V>[] = [];
  for (const keyed of items) {
    run.push(keyed);
    if (run.length < ITEMS_PER_STEP) continue;
    runs.push(run.sort(byKey));
    run = [];
    yield;
  }
  runs.push(run.sort(byKey));
}

/** Merges two sorted lists into `merged`. */
function* merge<V>(
  a: readonly Keyed<V>[],
  b: readonly Keyed<V>[],
  merged: Keyed<V>[],
): Generator<void, void, void> {
  for (let i = 0, j = 0; i < a.length || j < b.length; ) {
    const [x, y] = [a[i], b[j]];
    if (x !== undefined && (y === undefined || byKey(x, y) <= 0)) {
      merged.push(x);
      i++;
    } else if (y !== undefined) {
      merged.push(y);
      j++;
    }
    if (merged.length % ITEMS_PER_STEP === 0) yield;
  }
}

function byKey([a]: Keyed<unknown>, [b]: Keyed<unknown>): number {
  return ascending(a, b);
}
