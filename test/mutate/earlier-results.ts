import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { type Equivalent, keyOf, keysOf } from './equivalents.ts';
import { describeMutant, type MutantResult } from './mutant.ts';

/** What Stryker keeps between runs, as far as it is read here. */
interface IncrementalReport {
  readonly files: Readonly<Record<string, { readonly source: string; mutants: readonly MutantResult[] }>>;
}

/**
 * Takes out of the results of earlier runs what was not detected, so that it is run again, but for what is listed as
 * equivalent. Stryker would keep it unless a test was added, and a test or a model that was changed counts as none.
 */
export function forgetSurvivors(incrementalFile: string, equivalents: readonly Equivalent[]): void {
  if (!existsSync(incrementalFile)) return;
  const listed = keysOf(equivalents);
  const report: IncrementalReport = JSON.parse(readFileSync(incrementalFile, 'utf8'));
  for (const [file, mutated] of Object.entries(report.files)) {
    mutated.mutants = mutated.mutants.filter((result) => {
      if (result.status !== 'Survived' && result.status !== 'NoCoverage') return true;
      return listed.has(keyOf(describeMutant(result, file, mutated.source)));
    });
  }
  writeFileSync(incrementalFile, JSON.stringify(report));
}
