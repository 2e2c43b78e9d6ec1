import { defineConfig, type ViteUserConfig } from 'vitest/config';

const { PROPERTY_RUNS = '20000' } = process.env;

/**
 * What takes long, `npm run test:long`: first the chaos, one file at a time, so that each has the machine for itself; then
 * the properties of everything that is pure, 133 times as many runs as in `npm test`.
 */
const config: ViteUserConfig = defineConfig({
  test: {
    globalSetup: ['test/base/support/run-folder.ts'],
    testTimeout: 3_600_000,
    hookTimeout: 300_000,
    maxWorkers: '100%',
    projects: [
      {
        extends: true,
        test: {
          name: 'chaos',
          include: ['test/long/**/*.test.ts'],
          fileParallelism: false,
          // With 0, Vitest would run files without parallelism last.
          sequence: { groupOrder: 1 },
        },
      },
      {
        extends: true,
        test: {
          name: 'properties',
          include: [
            'test/{base,columns,net,lpm,model,ipcache,servicecache,nodemanager,metadata,sharedlookup,restore,clustermesh,ciliumdump,whatif,k8s}/**/*.test.ts',
            'test/client/agent-diff.test.ts',
            'test/kvstore/{allocator,codec,memory,session,stores,watch}/**/*.test.ts',
          ],
          setupFiles: ['test/property-runs.ts'],
          env: { PROPERTY_RUNS },
          sequence: { groupOrder: 2 },
        },
      },
    ],
  },
});
export default config;
