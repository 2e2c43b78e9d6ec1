import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { TestProject } from 'vitest/node';
import { bundle } from '../../base/support/bundle.ts';
import { PROGRAM } from './program.ts';

const MAIN = fileURLToPath(new URL('../../../src/cli/main.ts', import.meta.url));

/**
 * Before the tests: bundles `src` into {@link PROGRAM}. Vitest calls this for each project that inherits the option,
 * and once for the configuration itself.
 */
export async function setup(project: TestProject): Promise<void> {
  if (project.isRootProject()) await bundle([MAIN], dirname(PROGRAM));
}
