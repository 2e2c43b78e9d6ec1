import { readdirSync } from 'node:fs';

/**
 * The folders of `src/` that can be mutated, with the percentage of mutants that their tests must detect. In
 * `kvstore` only the tests over memory count, not those with a real etcd.
 */
export const FOLDERS: Readonly<Record<string, number>> = {
  columns: 90,
  net: 90,
  lpm: 90,
  model: 90,
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

/**
 * Tests in deeper folders than the others, without `.test.ts`. A name that ends in `/` is a folder: all of
 * its tests.
 */
const DEEPER: Readonly<Record<string, readonly string[]>> = {
  k8s: [
    ...['rest/api-error', 'rest/connection-health', 'rest/discovery', 'rest/http-transport'],
    ...['rest/kubeconfig', 'rest/object-writer'],
    ...['memory/contract', 'memory/json-patch', 'memory/memory-api-server', 'memory/object-store'],
    'memory/selectors',
    ...['reflector/known-objects', 'reflector/list-query', 'reflector/read-texts', 'reflector/reflector'],
    ...['reflector/reflector-machine', 'reflector/scanners', 'reflector/streaming-lists'],
    'reflector/watch-line',
    ...['feed/bad-answers', 'feed/endpoints', 'feed/handover', 'feed/hostile', 'feed/identities'],
    ...['feed/kubernetes-feed', 'feed/laws', 'feed/nodes-and-services', 'feed/prefixes', 'feed/recorded'],
  ],
  ipcache: ['claims/'],
  kvstore: [
    ...['allocator/', 'codec/', 'memory/', 'session/', 'stores/', 'watch/'],
    ...['etcd/messages', 'etcd/etcd-config-file'],
  ],
  operator: [
    ...['elect/', 'publish/'],
    ...['collect/collectors', 'collect/endpoint-collector', 'collect/identity-collector'],
    ...['collect/kvstore-collectors', 'collect/node-collector', 'collect/policy-status-collector'],
    ...['collect/observed-kind', 'collect/policy-status-histories', 'collect/rounds'],
    ...['collect/unmanaged-dns-collector'],
    ...['collect/unmanaged-dns-histories', 'slices/endpoint-slices'],
    ...['slices/cilium-slice-duty', 'slices/slice-histories'],
    ...['kvstoremesh/kvstore-mesh', 'kvstoremesh/laws', 'kvstoremesh/sole-writer'],
  ],
};

/** Returns the test files of a folder that are in deeper folders. */
export function deeperTests(folder: string): readonly string[] {
  return (DEEPER[folder] ?? []).flatMap((name) => {
    if (!name.endsWith('/')) return `test/${folder}/${name}.test.ts`;
    const path = `test/${folder}/${name}`;
    const files = readdirSync(new URL(`../../${path}`, import.meta.url));
    return files.filter((file) => file.endsWith('.test.ts')).map((file) => `${path}${file}`);
  });
}
