import { availableParallelism } from 'node:os';
import { defineConfig, type ViteUserConfig } from 'vitest/config';
import { BaseSequencer, type TestSpecification } from 'vitest/node';
import { ELSEWHERE, ISOLATED, SLOWEST } from './test/projects.ts';

/** Lets a project use the number of the root, which `--maxWorkers` changes. Otherwise, it would inherit only the default. */
const AS_ROOT = { maxWorkers: 0 } as const;

const fileOf = (name: string): string => `test/${name}.test.ts`;

/**
 * Runs the slowest files of each project first, so that at the end no worker is idle while another one runs a long file. Without
 * this, Vitest starts with the largest files on the first run, and many of the slowest files are small.
 */
class SlowestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const rank = ({ moduleId, project }: TestSpecification): number => {
      const at = SLOWEST.findIndex((name) => moduleId.endsWith(`/${fileOf(name)}`));
      return (project.config.isolate ? 0 : 100) + (at < 0 ? SLOWEST.length : at);
    };
    return (await super.sort(files)).sort((a, b) => rank(a) - rank(b));
  }
}

const config: ViteUserConfig = defineConfig({
  test: {
    setupFiles: ['test/property-runs.ts'],
    globalSetup: ['test/base/support/run-folder.ts', 'test/cli/support/bundle-program.ts'],
    // The longest test takes about 20 s on an idle machine. On a busy one, it takes more than 100 s, mostly to start processes.
    testTimeout: process.env['PROPERTY_RUNS'] === undefined ? 240_000 : 600_000,
    // Hooks start etcd servers and browsers.
    hookTimeout: 240_000,
    // Less than the timeout of a test, so that the failure names the condition that was not met.
    expect: { poll: { timeout: 120_000 } },
    // Four more than the number of cores. With two more, two cores are idle for a third of the time, because tests with
    // a real etcd, a browser or another process mostly wait.
    maxWorkers: availableParallelism() + 4,
    // A larger young generation saves processor time, because most objects of tests die young.
    execArgv: ['--max-semi-space-size=64'],
    sequence: { sequencer: SlowestFirst },
    projects: [
      {
        extends: true,
        // Files share processes, because a new process that loads the modules again takes as long as many of the files.
        test: {
          ...AS_ROOT,
          name: 'pure',
          include: ['test/**/*.test.ts'],
          exclude: [...ELSEWHERE.map((folder) => `test/${folder}/**`), ...ISOLATED.map(fileOf)],
          isolate: false,
          setupFiles: ['test/reset-mocks.ts'],
          restoreMocks: true,
        },
      },
      {
        extends: true,
        test: {
          ...AS_ROOT,
          name: 'isolated',
          include: ISOLATED.map(fileOf),
          globalSetup: ['test/datapath/linux/support/look-for-leftovers.ts'],
        },
      },
    ],
  },
});
export default config;
