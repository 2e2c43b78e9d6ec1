import { type Equivalent, keyOf, keysOf } from './equivalents.ts';
import type { Mutant } from './mutant.ts';

/** The results of a run's mutants, without ignored ones. */
export interface Score {
  readonly mutants: number;
  /** A test failed, an error was unhandled, or a test file could not be loaded. */
  readonly killed: number;
  readonly timeout: number;
  readonly equivalent: number;
  /** Neither detected nor equivalent. */
  readonly survivors: readonly Mutant[];
  /** Listed as equivalent, but detected or absent. */
  readonly stale: readonly string[];
  /** Percentage of detected mutants among those that are not equivalent. */
  readonly percent: number;
}

/** Counts the results; `equivalents` are those of the mutated files. */
export function scoreOf(results: readonly Mutant[], equivalents: readonly Equivalent[]): Score {
  const withStatus = (...statuses: Mutant['status'][]): readonly Mutant[] =>
    results.filter(({ status }) => statuses.includes(status));
  const killed = withStatus('Killed', 'RuntimeError').length;
  const timeout = withStatus('Timeout').length;
  const undetected = withStatus('Survived', 'NoCoverage');
  const listed = keysOf(equivalents);
  const survivors = undetected.filter((mutant) => !listed.has(keyOf(mutant)));
  const found = new Set(undetected.map(keyOf));
  return {
    mutants: killed + timeout + undetected.length,
    killed,
    timeout,
    equivalent: undetected.length - survivors.length,
    survivors,
    stale: [...listed].filter((key) => !found.has(key)),
    percent: (100 * (killed + timeout)) / Math.max(killed + timeout + survivors.length, 1),
  };
}
