/** The result of replaying one trace file; printed as one JSON line. */
export interface ReplayReport {
  readonly file: string;
  readonly scenarios: number;
  readonly stepsCompared: number;
  /** Steps, or parts of steps, that were not compared, by reason. */
  readonly stepsSkipped: Readonly<Record<string, number>>;
  /** Number of allowed differences, by rule. */
  readonly explained?: Readonly<Record<string, number>>;
  readonly mismatches: number;
  /** The first few mismatches. */
  readonly examples: readonly Mismatch[];
}

/** One difference between the recording and our engine. */
export interface Mismatch {
  readonly scenario: string;
  /** Index of the step; -1 for the final state. */
  readonly step: number;
  readonly what: string;
  readonly expected: unknown;
  readonly actual: unknown;
}

/** Collects the results of the replay of one file. */
export class ReplayTally {
  static readonly #EXAMPLES = 5;
  readonly #skipped = new Map<string, number>();
  readonly #explained = new Map<string, number>();
  readonly #examples: Mismatch[] = [];
  #scenarios = 0;
  #compared = 0;
  #mismatches = 0;

  scenario(): void {
    this.#scenarios++;
  }

  compared(): void {
    this.#compared++;
  }

  skipped(reason: string, count = 1): void {
    this.#skipped.set(reason, (this.#skipped.get(reason) ?? 0) + count);
  }

  explained(rule: string): void {
    this.#explained.set(rule, (this.#explained.get(rule) ?? 0) + 1);
  }

  mismatch(found: Mismatch): void {
    this.#mismatches++;
    if (this.#examples.length < ReplayTally.#EXAMPLES) this.#examples.push(found);
  }

  report(file: string): ReplayReport {
    return {
      file,
      scenarios: this.#scenarios,
      stepsCompared: this.#compared,
      stepsSkipped: Object.fromEntries(this.#skipped),
      ...(this.#explained.size === 0 ? {} : { explained: Object.fromEntries(this.#explained) }),
      mismatches: this.#mismatches,
      examples: this.#examples,
    };
  }
}
