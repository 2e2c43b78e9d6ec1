import { defineConfig, type ViteUserConfig } from 'vitest/config';

/** What needs a real kube-apiserver: `npm run test:apiserver` builds one, once. */
const config: ViteUserConfig = defineConfig({
  test: {
    globalSetup: ['test/base/support/run-folder.ts'],
    include: ['test/apiserver/**/*.test.ts'],
    testTimeout: 300_000,
    hookTimeout: 300_000,
    fileParallelism: false,
  },
});
export default config;
