import type { Stryker } from '@stryker-mutator/core';
import type { MutateCommand } from './command-line.ts';

/** Results of earlier runs and copies of the sources; ignored by git, the linter and the tests. */
export const CACHE = '.mutate';

/** Returns the path of the stored results of a folder. */
export function incrementalFile(folder: string): string {
  return `${CACHE}/${folder}.json`;
}

/** The configuration of Stryker for one run. */
export function strykerOptions({
  folder,
  files,
  concurrency,
  fresh,
}: MutateCommand): ConstructorParameters<typeof Stryker>[0] {
  return {
    mutate: files.length > 0 ? [...files] : [`src/${folder}/**/*.ts`],
    testRunner: 'in-process',
    plugins: [
      new URL('in-process-plugin.mjs', import.meta.url).href,
      new URL('message-texts.mjs', import.meta.url).href,
    ],
    ignorers: ['message-texts'],
    coverageAnalysis: 'perTest',
    concurrency,
    incremental: true,
    incrementalFile: incrementalFile(folder),
    force: fresh,
    // An endless loop is detected by its number of rounds. The time limit is for hanging tests on a busy
    // machine.
    timeoutMS: 30_000,
    timeoutFactor: 3,
    dryRunTimeoutMinutes: 30,
    reporters: ['progress-append-only'],
    tempDirName: `${CACHE}/sandbox`,
    ignorePatterns: ['/dist', '/dist-bench', '/dist-test', '/bench', '/docs'],
    // Stryker would rewrite paths in a tsconfig.json with a compiler API that TypeScript 7 does not have.
    tsconfigFile: 'none',
    disableTypeChecks: false,
    allowConsoleColors: false,
  };
}
