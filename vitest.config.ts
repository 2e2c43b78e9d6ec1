import { defineConfig, type ViteUserConfig } from 'vitest/config';

/** What takes minutes, or a kube-apiserver, has configurations of its own. */
const ELSEWHERE = ['test/long/**', 'test/apiserver/**'];

/** Tests of what is pure, or talks to servers in the same process: they leave nothing behind that another could see. */
const PURE = [
  'test/{base,conformance,identity,ipcache,k8s,metadata,net,nodemanager,restore,servicecache}/**/*.test.ts',
  'test/{clustermesh,kvstore,operator}/*.test.ts',
  'test/operator/{collect,kvstoremesh,slices}/*.test.ts',
];

const config: ViteUserConfig = defineConfig({
  test: {
    setupFiles: ['test/property-runs.ts'],
    testTimeout: 300_000,
    // Hooks start etcds and browsers: beside others on a slow machine that takes longer than the 10 s of Vitest's default.
    hookTimeout: 300_000,
    expect: { poll: { timeout: 90_000 } },
    // Vitest would leave a core free; what talks to a real etcd mostly waits.
    maxWorkers: '100%',
    projects: [
      {
        extends: true,
        // To start a process for each file, and load everything there, would take as long as many of them.
        test: { name: 'pure', include: PURE, isolate: false, restoreMocks: true },
      },
      {
        extends: true,
        test: {
          name: 'isolated',
          include: ['test/**/*.test.ts'],
          exclude: [...ELSEWHERE, ...PURE],
          globalSetup: [
            'test/datapath/linux/support/look-for-leftovers.ts',
            'test/cli/support/bundle-program.ts',
          ],
        },
      },
    ],
  },
});
export default config;
