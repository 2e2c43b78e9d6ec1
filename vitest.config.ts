import { availableParallelism } from 'node:os';
import { defineConfig, type ViteUserConfig } from 'vitest/config';
import { BaseSequencer, type TestSpecification } from 'vitest/node';
import { ELSEWHERE, ISOLATED, SLOWEST } from './test/projects.ts';

const fileOf = (name: string): string => `test/${name}.test.ts`;

/**
 * In each project begins with what takes longest, that no core waits for it in the end. Where there was no run before, Vitest
 * begins with the largest files, and many of the slowest are the smallest.
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
    globalSetup: ['test/cli/support/bundle-program.ts'],
    // The longest test takes about 20 s alone, and on a machine with much else to do more than 100 s, mostly to start processes.
    testTimeout: process.env['PROPERTY_RUNS'] === undefined ? 240_000 : 600_000,
    // Hooks start etcds and browsers.
    hookTimeout: 240_000,
    // Shorter than the limit of a test, so that a failure names what has not happened.
    expect: { poll: { timeout: 120_000 } },
    // Two more than there are cores: what talks to a real etcd or a browser waits half of its time.
    maxWorkers: availableParallelism() + 2,
    sequence: { sequencer: SlowestFirst },
    projects: [
      {
        extends: true,
        // To start a process for each file, and load everything there, would take as long as many of them.
        test: {
          name: 'pure',
          include: ['test/**/*.test.ts'],
          exclude: [...ELSEWHERE.map((folder) => `test/${folder}/**`), ...ISOLATED.map(fileOf)],
          isolate: false,
          restoreMocks: true,
        },
      },
      {
        extends: true,
        test: {
          name: 'isolated',
          include: ISOLATED.map(fileOf),
          globalSetup: ['test/datapath/linux/support/look-for-leftovers.ts'],
        },
      },
    ],
  },
});
export default config;
