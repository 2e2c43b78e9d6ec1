import { defineConfig, type ViteUserConfig } from 'vitest/config';

const config: ViteUserConfig = defineConfig({
  test: { include: ['test/**/*.test.ts'], exclude: ['test/long/**'], testTimeout: 300_000 },
});
export default config;
