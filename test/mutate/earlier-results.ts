import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { type Equivalent, keyOf, keysOf } from './equivalents.ts';
import { describeMutant, type MutantResult } from './mutant.ts';

/** The used part of Stryker's incremental report. */
interface IncrementalReport {
  readonly files: Readonly<Record<string, { readonly source: string; mutants: readonly MutantResult[] }>>;
}

/**
 * Removes undetected mutants from the results of earlier runs, except for listed equivalents, so that they
 * are run again. Stryker would keep them unless a test was added: it ignores changed tests and models.
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
