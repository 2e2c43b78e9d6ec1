/** Mutants of one place that no test can detect, because what they compute is the same. */
export interface Equivalent {
  readonly file: string;
  /** The line of the source in which the mutant begins, without indentation. */
  readonly line: string;
  /** What is replaced, as the report prints it. */
  readonly original: string;
  readonly replacements: readonly string[];
  readonly reason: string;
}

export const EQUIVALENTS: readonly Equivalent[] = [];
