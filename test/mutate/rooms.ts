/**
 * The rooms of `src/` that can be mutated, with the percentage of mutants that their own tests must detect. In `kvstore`
 * the tests over memory count, not those with a real etcd.
 */
export const ROOMS: Readonly<Record<string, number>> = {
  identity: 90,
  net: 90,
  ipcache: 90,
  servicecache: 90,
  nodemanager: 90,
  metadata: 90,
  restore: 90,
  k8s: 85,
  clustermesh: 85,
  kvstore: 85,
};

/** Tests of a room that lie deeper than the others, beside tests with servers. */
export const DEEPER_TESTS: Readonly<Record<string, readonly string[]>> = {
  kvstore: ['test/kvstore/etcd/messages.test.ts', 'test/kvstore/etcd/etcd-config-file.test.ts'],
};
