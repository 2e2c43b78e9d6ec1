import { defineConfig, type ViteUserConfig } from 'vitest/config';

const config: ViteUserConfig = defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    exclude: ['test/long/**', 'test/apiserver/**'],
    setupFiles: ['test/property-runs.ts'],
    globalSetup: ['test/datapath/linux/support/look-for-leftovers.ts', 'test/cli/support/bundle-program.ts'],
    testTimeout: 300_000,
    // Vitest would leave a core free; what talks to a real etcd mostly waits.
    maxWorkers: '100%',
  },
});
export default config;
