import { processGate } from '../../src/base/node/process-gate.ts';
import { systemClock } from '../../src/base/system-clock.ts';
import { ClusterMesh } from '../../src/clustermesh/cluster-mesh.ts';
import { IPCache } from '../../src/ipcache/ipcache.ts';
import { EtcdBackend } from '../../src/kvstore/etcd/etcd-backend.ts';
import { expect } from '../expect.ts';
import { delayDuring } from '../loop-delay.ts';
import { processMs } from '../thread-clock.ts';
import type { CopiesReport, CopiesTask } from './protocol.ts';

// node --expose-gc copies.js TASK: follows the copies of many clusters in several kvstores, prints a CopiesReport, and
// ends.

const { endpoints, clusters, ips }: CopiesTask = JSON.parse(process.argv[2] ?? '');
const runtime = { clock: systemClock, random: Math.random };
const ipcache = new IPCache({ maxEntries: 2 * clusters * ips });
const gate = processGate(systemClock);
const mesh = new ClusterMesh({ ...runtime, ipcache, gate, clusterName: 'own', clusterID: 255 });

const { ms, delay } = await delayDuring(async () => {
  const added = Array.from({ length: clusters }, (_, i) => {
    const endpoint = endpoints[i % endpoints.length] ?? '';
    return mesh.add(`cluster-${i + 1}`, () => new EtcdBackend({ endpoints: [endpoint] }, runtime));
  });
  await Promise.all(added);
  await mesh.synced();
});
expect('IPs', ipcache.size, clusters * ips);
const report: CopiesReport = { ms, cpuMs: processMs(), peakMB: process.resourceUsage().maxRSS / 1024, delay };
process.stdout.write(JSON.stringify(report));
process.exit();
