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
  operator: 85,
};

/** Tests of a room that lie deeper than the others, beside tests with servers; without `.test.ts`. */
const DEEPER: Readonly<Record<string, readonly string[]>> = {
  k8s: [
    ...[
      'client/kubeconfig',
      'client/object-writer',
      'reflector/read-texts',
      'reflector/scanners',
      'reflector/streaming-lists',
    ],
    ...['feed/endpoints', 'feed/handover', 'feed/hostile', 'feed/identities', 'feed/kubernetes-feed'],
    ...['feed/laws', 'feed/nodes-and-services', 'feed/prefixes', 'feed/recorded'],
  ],
  kvstore: ['etcd/messages', 'etcd/etcd-config-file'],
  operator: [
    ...['collect/collectors', 'collect/endpoint-collector', 'collect/identity-collector'],
    ...['collect/kvstore-collectors', 'collect/node-collector', 'collect/policy-status-collector'],
    ...[
      'collect/unmanaged-dns-collector',
      'slices/slice-duty',
      'kvstoremesh/kvstore-mesh',
      'kvstoremesh/laws',
    ],
  ],
};

/** The test files of a room that lie deeper than the others. */
export function deeperTests(room: string): readonly string[] {
  return (DEEPER[room] ?? []).map((name) => `test/${room}/${name}.test.ts`);
}
