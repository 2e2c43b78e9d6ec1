import { readFileSync } from 'node:fs';
import { relative } from 'node:path';
import { Stryker } from '@stryker-mutator/core';
import { type MutateCommand, parseCommandLine, USAGE } from './command-line.ts';
import { forgetSurvivors } from './earlier-results.ts';
import { EQUIVALENTS } from './equivalents.ts';
import { FOLDERS } from './folders.ts';
import { describeMutant, type Mutant } from './mutant.ts';
import { type Score, scoreOf } from './score.ts';
import { incrementalFile, strykerOptions } from './stryker-options.ts';

/**
 * Number of runs of a property for each mutant at first, without the slow tests: sufficient for most, and
 * much faster.
 */
const FEW_RUNS = 8;

/** Runs Stryker. Returns the mutants of the requested files. */
async function runStryker(command: MutateCommand): Promise<readonly Mutant[]> {
  const { folder, runs, tests } = command;
  const withoutSlow = runs <= FEW_RUNS ? 'yes' : '';
  Object.assign(process.env, {
    MUTATED_ROOM: folder,
    PROPERTY_RUNS: String(runs),
    WITHOUT_SLOW_TESTS: withoutSlow,
    MUTATED_TESTS: JSON.stringify(tests),
  });
  const results = await new Stryker(strykerOptions(command)).runMutationTest();
  const sources = new Map<string, string>();
  const read = (file: string): string => {
    const source = sources.get(file) ?? readFileSync(file, 'utf8');
    sources.set(file, source);
    return source;
  };
  return results
    .map((result) => {
      const file = relative(process.cwd(), result.fileName);
      return describeMutant(result, file, read(file));
    })
    .filter(({ file }) => isAskedFor(file, command));
}

/**
 * Runs all mutants with few runs of each property, then the undetected ones again if more runs were
 * requested.
 */
async function mutate(command: MutateCommand): Promise<Score> {
  const listed = EQUIVALENTS.filter(({ file }) => isAskedFor(file, command));
  const passes = [
    { ...command, runs: Math.min(FEW_RUNS, command.runs) },
    { ...command, fresh: false },
  ];
  let score = scoreOf([], listed);
  for (const pass of passes) {
    forgetSurvivors(incrementalFile(command.folder), EQUIVALENTS);
    score = scoreOf(await runStryker(pass), listed);
    if (score.survivors.length === 0 || pass.runs === command.runs) break;
  }
  return score;
}

function isAskedFor(file: string, { folder, files }: MutateCommand): boolean {
  if (files.length === 0) return file.startsWith(`src/${folder}/`);
  return files.some((asked) => asked.replace(/:.*/, '') === file);
}

function print({ survivors, stale, ...score }: Score, folder: string, threshold: number): void {
  for (const { file, lineNumber, status, original, replacement } of survivors) {
    const covered = status === 'NoCoverage' ? ' (in no test)' : '';
    console.log(`${file}:${lineNumber}: ${original} → ${replacement}${covered}`);
  }
  for (const key of stale) console.log(`listed as equivalent, but detected or gone: ${key}`);
  const { mutants, killed, timeout, equivalent, percent } = score;
  console.log(`| folder | mutants | killed | timeout | survived | equivalent | score |`);
  const counts = [folder, mutants, killed, timeout, survivors.length, equivalent, `${percent.toFixed(1)} %`];
  console.log(`| ${counts.join(' | ')} |   (wanted: ${threshold} %)`);
}

async function main(words: readonly string[]): Promise<number> {
  let command: MutateCommand;
  try {
    command = parseCommandLine(words);
  } catch (error) {
    console.error(`${error instanceof Error ? error.message : error}\n\n${USAGE}`);
    return 2;
  }
  const threshold = FOLDERS[command.folder] ?? 100;
  const score = await mutate(command);
  print(score, command.folder, threshold);
  return score.percent >= threshold && score.stale.length === 0 ? 0 : 1;
}

process.exitCode = await main(process.argv.slice(2));
