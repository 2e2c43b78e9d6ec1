import { readdirSync } from 'node:fs';

/** The folders of `src/` that can be mutated, with the percentage of mutants that their tests must detect. */
export const FOLDERS: Readonly<Record<string, number>> = {
  columns: 90,
  net: 90,
  lpm: 90,
  model: 90,
  ipcache: 90,
  servicecache: 90,
  nodemanager: 90,
  metadata: 90,
  restore: 90,
  history: 85,
  whatif: 85,
  k8s: 85,
  clustermesh: 85,
  kvstore: 85,
  operator: 85,
};

/**
 * Test files that do not run in the process of Stryker: those of mutants, which cannot detect another one, those of the
 * cost of large inputs, which take longer than all others together, those with a real etcd, and one that observes the
 * timers of the process.
 */
const EXCLUDED: readonly RegExp[] = [
  /mutants\.test\.ts$/,
  /(?:^|\/)many-/,
  /(?:^|\/)chaos\//,
  /(?:^|\/)etcd\/(?!etcd-config-file|etcd-endpoint|messages|txn-messages)/,
  /(?:^|\/)http-transport\./,
];

/** Returns the test files of a folder, also those in deeper folders. */
export function testsOf(folder: string): readonly string[] {
  const files = readdirSync(`test/${folder}`, { recursive: true, encoding: 'utf8' });
  return files
    .filter((file) => file.endsWith('.test.ts') && !EXCLUDED.some((pattern) => pattern.test(file)))
    .map((file) => `test/${folder}/${file}`)
    .sort();
}
