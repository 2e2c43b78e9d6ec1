import { parseArgs } from 'node:util';
import { FOLDERS } from './folders.ts';

/** The parsed command line. */
export interface MutateCommand {
  readonly folder: string;
  /** Files of the folder, or parts of them (`FILE:10-20`); all of it when there are none. */
  readonly files: readonly string[];
  /** Parts of the names of the test files to run; none: all test files of the folder. */
  readonly tests: readonly string[];
  readonly concurrency: number;
  /** Number of runs of a property for each mutant. */
  readonly runs: number;
  /** True if results of earlier runs are ignored. */
  readonly fresh: boolean;
}

/** The usage text. */
export const USAGE: string = `usage: npm run mutate -- FOLDER [FILE…] [--tests TEXT]… [--concurrency N] [--runs N] [--fresh]

Changes the sources of a folder a little, one change at a time, and runs the folder's tests: each change that no test
notices is printed. FILE limits it to a file of the folder, or to lines of it (FILE:10-20).

  FOLDER               ${Object.keys(FOLDERS).join(', ')}
  --tests TEXT       only test files with this in their names: quicker, and what survives may be detected by others
  --concurrency N    test processes at a time (2)
  --runs N           how often a property runs for each change (50)
  --fresh            run every change again, also those that were detected before

Exit status 0: the score of the folder is reached. 1: it is not, or a listed equivalent is none. 2: the command line is wrong.`;

const OPTIONS = {
  tests: { type: 'string', multiple: true },
  concurrency: { type: 'string', default: '2' },
  runs: { type: 'string', default: '50' },
  fresh: { type: 'boolean', default: false },
} as const;

/** Parses the command line. Throws an `Error` with a message if it is wrong. */
export function parseCommandLine(words: readonly string[]): MutateCommand {
  const { values, positionals } = parseArgs({ args: [...words], allowPositionals: true, options: OPTIONS });
  const [folder = '', ...files] = positionals;
  if (!Object.hasOwn(FOLDERS, folder)) throw new Error(`unknown folder '${folder}'`);
  const outside = files.find((file) => !file.startsWith(`src/${folder}/`));
  if (outside !== undefined) throw new Error(`${outside}: not in src/${folder}/`);
  const [concurrency, runs] = [Number(values.concurrency), Number(values.runs)];
  if (!(concurrency >= 1 && runs >= 1)) throw new Error('--concurrency and --runs take a number above 0');
  return { folder, files, tests: values.tests ?? [], concurrency, runs, fresh: values.fresh };
}
