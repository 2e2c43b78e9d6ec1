import { availableParallelism } from 'node:os';
import { defineConfig, type ViteUserConfig } from 'vitest/config';
import { BaseSequencer, type TestSpecification } from 'vitest/node';

/** What takes minutes, or a kube-apiserver, has configurations of its own. */
const ELSEWHERE = ['test/long/**', 'test/apiserver/**'];

/**
 * Tests that leave nothing behind that another could see: of what is pure, and of servers and processes that they end. Isolated
 * are those that use the kernel, count objects of the heap or file descriptors, or send signals.
 */
const PURE = [
  'test/*.test.ts',
  'test/{base,columns,net,lpm,model,ipcache,servicecache,nodemanager,metadata,sharedlookup,restore,conformance,k8s}/**/*.test.ts',
  'test/{agent,api,bench,ciliumdump,client,history,lint,mutate,process,recording,scripts,tape,ui,whatif}/**/*.test.ts',
  'test/cli/{bad-input,completion,configuration,diff-failures,diff-over-tcp,mesh-options,once,operations,operator,output,questions,reload,restore-inspect,running-agent,start-up,sysdump,tape}.test.ts',
  'test/{clustermesh,datapath,kvstore,operator}/*.test.ts',
  'test/datapath/linux/{clean-tables,delete-hold,kept-table,key-queue,linux-datapath,probe}.test.ts',
  'test/datapath/linux/{bpf/images,netlink/codecs,paths/paced-task,paths/reserved-prefixes,services/desired-services}.test.ts',
  'test/kvstore/codec/**/*.test.ts',
  'test/kvstore/{allocator,memory,session,stores,watch}/*.test.ts',
  'test/kvstore/{chaos/sequence-checker,etcd/!(etcd-contract|etcd-streams)}.test.ts',
  'test/operator/{collect,elect,kvstoremesh,mcs,mirrored-slices,publish,slices}/*.test.ts',
  'test/sysdump/{compare-with-agent,planted-faults}.test.ts',
  'test/package/bundles.test.ts',
];

/**
 * What takes ten seconds of a processor and more, and what waits long: the longest first, tests that wait before those that
 * compute.
 */
const SLOWEST = [
  ...['kvstore/etcd/etcd-contract', 'kvstore/chaos/chaos', 'package/packed', 'datapath/linux/services'],
  ...[
    'operator/etcd/mesh',
    'ui/page',
    'cli/signals',
    'datapath/linux/paths/kept-equal',
    'datapath/linux/node-ports',
  ],
  ...[
    'demo-mesh',
    'demo-diagnose',
    'kvstore/etcd/etcd-auth',
    'kvstore/etcd/etcd-auth-changes',
    'kvstore/etcd/etcd-slow-link',
  ],
  ...[
    'clustermesh/mesh-laws',
    'nodemanager/laws',
    'servicecache/laws',
    'ipcache/laws',
    'conformance/ipcache',
  ],
  ...['kvstore/allocator/identity-allocator', 'conformance/nodemanager', 'conformance/servicecache'],
  ...['operator/kvstoremesh/laws', 'conformance/operator', 'k8s/reflector-laws', 'api/fuzz'],
  ...['cli/output', 'cli/bad-input', 'cli/questions', 'kvstore/stores/sync-store', 'datapath/had'],
].map((name) => `/test/${name}.test.ts`);

/**
 * In each project begins with what takes longest, that no core waits for it in the end. Where there was no run before, Vitest
 * begins with the largest files, and many of the slowest are the smallest.
 */
class SlowestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const rank = ({ moduleId, project }: TestSpecification): number => {
      const at = SLOWEST.findIndex((name) => moduleId.endsWith(name));
      return (project.config.isolate ? 0 : 100) + (at < 0 ? SLOWEST.length : at);
    };
    return (await super.sort(files)).sort((a, b) => rank(a) - rank(b));
  }
}

const config: ViteUserConfig = defineConfig({
  test: {
    setupFiles: ['test/property-runs.ts'],
    globalSetup: ['test/cli/support/bundle-program.ts'],
    // The longest test takes about 20 s alone: five times that on a machine with much else to do. More property runs take longer.
    testTimeout: process.env['PROPERTY_RUNS'] === undefined ? 120_000 : 600_000,
    // Hooks start etcds and browsers.
    hookTimeout: 120_000,
    // Shorter than the limit of a test, so that a failure names what has not happened.
    expect: { poll: { timeout: 60_000 } },
    // One more than there are cores: what talks to a real etcd mostly waits.
    maxWorkers: availableParallelism() + 1,
    sequence: { sequencer: SlowestFirst },
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
          globalSetup: ['test/datapath/linux/support/look-for-leftovers.ts'],
        },
      },
    ],
  },
});
export default config;
