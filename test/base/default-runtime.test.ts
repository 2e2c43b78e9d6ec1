import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import * as api from '../../src/index.ts';
import { KubernetesClient, KubernetesFeed } from '../../src/kubernetes.ts';
import { MemoryApiServer, MemoryApiTransport } from '../../src/testing.ts';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

it('constructs public classes without a clock and random numbers', () => {
  const ipcache = new api.IPCache();
  const backend = new api.MemoryBackend({ server: new api.MemoryServer() });
  const rejections = new api.RejectionLog();
  const decode = (): api.Decoded<string> => ({ ok: true, value: 'x' });
  const observer = { onUpdate: (): void => {}, onDelete: (): void => {} };
  const source = new KubernetesClient(new MemoryApiTransport(new MemoryApiServer()));
  const range = api.clusterIdentityRange(1, 255);
  const created = [
    new api.ClusterMesh({ clusterName: 'a', clusterID: 1, ipcache }),
    new api.History({ ipcache }),
    new api.GarbageCollector({ collection: api.lockCollection(backend), intervalMs: 1000 }),
    new api.Heartbeat({ backend }),
    new api.IdentityAllocator({ backend, rejections, nodeSuffix: 'n', range }),
    new api.KvstoreHealth({ backend }),
    new api.SyncStore({ backend, prefix: 'p/' }),
    new api.SharedStore({ backend, prefix: 'p/', rejections, decode, observer }),
    new KubernetesFeed({ source, ipcache, clusterName: 'a', nodeName: 'here' }),
  ];
  expect(created).toHaveLength(9);
});

it('retries a node handler by the system clock', async () => {
  const ipcache = new api.IPCache();
  const nodes = new api.NodeManager({ ipcache, clusterName: 'a', nodeName: 'here' });
  const nodeAdd = vi.fn().mockRejectedValueOnce(new Error('full')).mockResolvedValue(undefined);
  nodes.subscribe({ name: 'test', nodeAdd, nodeUpdate: nodeAdd, nodeDelete: nodeAdd });
  nodes.nodeUpdated({ cluster: 'a', name: 'b', source: 'k8s', addresses: [] });
  await vi.advanceTimersByTimeAsync(60_000);
  expect(nodeAdd).toHaveBeenCalledTimes(2);
});

it('ends the wait for clusters by the system clock', async () => {
  const mesh = new api.ClusterMesh({ clusterName: 'a', clusterID: 1 });
  await mesh.add('b', () => new Promise(() => {}));
  const missing = api.waitForSync(mesh, { deadlineMs: 1000 });
  await vi.advanceTimersByTimeAsync(60_000);
  expect(await missing).toEqual(['b']);
  await mesh.stop();
});
