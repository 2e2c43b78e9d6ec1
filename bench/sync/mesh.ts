import type { Clock } from '../../src/base/clock.ts';
import { processGate } from '../../src/base/node/process-gate.ts';
import { systemClock } from '../../src/base/system-clock.ts';
import { ClusterMesh } from '../../src/clustermesh/cluster-mesh.ts';
import { IPCache } from '../../src/ipcache/ipcache.ts';
import { EtcdBackend } from '../../src/kvstore/etcd/etcd-backend.ts';
import { expect } from '../expect.ts';
import type { Following } from './follower.ts';
import type { FollowerTask } from './protocol.ts';

/**
 * A time longer than the interval of comparisons, so that all values are compared after the next loss of the stream.
 */
const HOUR_MS = 3_600_000;

const turn = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 50));

/** Follows the cluster by `ClusterMesh` into an `IPCache` with one listener. */
export function follow({ endpoint, cluster, keys }: FollowerTask): Following {
  let shiftMs = 0;
  const clock: Clock = { ...systemClock, now: () => systemClock.now() + shiftMs };
  const runtime = { clock, random: Math.random };
  const ipcache = new IPCache();
  const gate = processGate(clock);
  const mesh = new ClusterMesh({ ...runtime, ipcache, gate, clusterName: 'own', clusterID: 255 });
  let changes = 0;
  let begun = 0;
  let first = 0;
  let awaited = Number.POSITIVE_INFINITY;
  let onAwaited = (): void => {};
  ipcache.subscribe({
    onChanges: ({ length }) => {
      changes += length;
      first ||= performance.now();
      if (changes >= awaited) onAwaited();
    },
  });
  const watch = () => mesh.statusOf(cluster)?.resources.ip?.watch;
  return {
    get firstMs() {
      return first - begun;
    },
    list: async () => {
      begun = performance.now();
      await mesh.add(cluster, () => new EtcdBackend({ endpoints: [endpoint] }, runtime));
      await mesh.synced();
      expect('IPs', ipcache.size, keys);
    },
    changes: (count) => {
      awaited = keys + count;
      return new Promise((resolve) => {
        onAwaited = resolve;
        if (changes >= awaited) resolve();
      });
    },
    resynced: async () => {
      const before = changes;
      shiftMs += HOUR_MS;
      while (watch()?.isDoubtful !== true) await turn();
      while (watch()?.isDoubtful !== false || watch()?.state !== 'watching') await turn();
      expect('changes by the resync', changes - before, 0);
    },
  };
}
