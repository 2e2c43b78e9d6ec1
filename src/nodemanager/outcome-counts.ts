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

  /** The counts so far: a copy. */
  snapshot(): Readonly<Record<CountedNodeOutcome, number>> {
    return { ...this.#counts };
  }
}
