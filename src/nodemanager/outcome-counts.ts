import type { CountedNodeOutcome } from './node-status.ts';

/** How often each outcome came. */
export class NodeOutcomeCounts {
  readonly #counts: Record<CountedNodeOutcome, number> = {
    applied: 0,
    unchanged: 0,
    overruled: 0,
    invalid: 0,
    deleted: 0,
    'not-found': 0,
    'not-owner': 0,
    closed: 0,
  };

  count(outcome: CountedNodeOutcome): void {
    this.#counts[outcome]++;
  }

  /** Those that came at all. */
  seen(): ReadonlyMap<CountedNodeOutcome, number> {
    const counts = Object.entries(this.#counts) as [CountedNodeOutcome, number][]; // keys of the record above
    return new Map(counts.filter(([, count]) => count > 0));
  }
}
