import { defineConfig, type ViteUserConfig } from 'vitest/config';

/** Chaos that takes minutes: `npm run test:long`. One file at a time, so that each has the machine for itself. */
const config: ViteUserConfig = defineConfig({
  test: { include: ['test/long/**/*.test.ts'], fileParallelism: false, testTimeout: 3_600_000 },
});
export default config;
