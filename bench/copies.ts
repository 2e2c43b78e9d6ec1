import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { bytesOfText } from '../src/kvstore/codec/bytes.ts';
import { encodeIPIdentityPair } from '../src/kvstore/codec/ip-identity-pair.ts';
import { clusterConfigKey, resourcePrefix } from '../src/kvstore/codec/keys.ts';
import { EtcdTransport } from '../src/kvstore/etcd/etcd-transport.ts';
import { NO_LEASE, type WriteOperation } from '../src/kvstore/session/transport.ts';
import { startEtcd } from '../test/kvstore/etcd/support/etcd-process.ts';
import { podAddress } from './pod-address.ts';
import type { CopiesReport, CopiesTask } from './sync/protocol.ts';
import { textTable } from './text-table.ts';

const FOLLOWER = fileURLToPath(new URL('./sync/copies.js', import.meta.url));
const ETCDS = 3;
/** Number of remote clusters: the maximum of a mesh of 255 clusters. */
const CLUSTERS = 254;
/** Maximum of etcd for one transaction. */
const TXN_KEYS = 128;

function putOf(key: string, value: Uint8Array): WriteOperation {
  return { op: 'put', key, value, lease: NO_LEASE };
}

function ipOf(cluster: number, i: number, ips: number): WriteOperation {
  const key = podAddress((cluster - 1) * ips + i);
  const value = encodeIPIdentityPair({
    key,
    identity: (cluster << 16) + 256 + (i % 500),
    encryptKey: 0,
    hostIP: `192.168.${cluster}.${Math.floor(i / 110) & 255}`, // 110 pods per node
    k8s: { namespace: `namespace-${i % 50}`, podName: `workload-${i % 977}-${i.toString(36)}` },
  });
  return putOf(`${resourcePrefix('ip', `cluster-${cluster}`, 'cache')}${key}`, value);
}

/** Writes the copy of a cluster as kvstoremesh does, without canaries. */
async function writeCopy(transport: EtcdTransport, cluster: number, ips: number): Promise<void> {
  const written: Promise<unknown>[] = [];
  for (let from = 0; from < ips; from += TXN_KEYS) {
    const size = Math.min(TXN_KEYS, ips - from);
    const writes = Array.from({ length: size }, (_, i) => ipOf(cluster, from + i, ips));
    written.push(transport.txn({ compare: [], writes }, { deadlineMs: 60_000 }));
  }
  await Promise.all(written);
  const config = { id: cluster, capabilities: { cached: true, maxConnectedClusters: 255 } };
  const writes = [putOf(clusterConfigKey(`cluster-${cluster}`), bytesOfText(JSON.stringify(config)))];
  await transport.txn({ compare: [], writes });
}

async function writeCopies(endpoint: string, first: number, ips: number): Promise<void> {
  const transport = new EtcdTransport({ endpoints: [endpoint] }, Math.random);
  for (let cluster = first; cluster <= CLUSTERS; cluster += ETCDS) await writeCopy(transport, cluster, ips);
  await transport.close();
}

function render({ cpuMs, ms, peakMB, delay }: CopiesReport, ips: number): string {
  const perKey = `${((cpuMs * 1000) / (CLUSTERS * ips)).toFixed(1)} µs`;
  const [cpu, time] = [cpuMs, ms].map((each) => `${(each / 1000).toFixed(1)} s`);
  return `${CLUSTERS} clusters of ${ips} IPs, copied into ${ETCDS} real etcds, followed until all are complete.

${textTable(
  ['CPU', 'per key', 'time', 'peak memory', 'loop p99', 'max'],
  [[cpu ?? '', perKey, time ?? '', `${peakMB.toFixed(0)} MiB`, `${delay.p99} ms`, `${delay.max} ms`]],
)}`;
}

/** Measures a process that follows a whole mesh through copies in real etcds. Prints a table unless `json` is set. */
export async function benchCopies({
  n: ips = 10_000,
  json = false,
}: {
  readonly n?: number;
  readonly json?: boolean;
}): Promise<CopiesReport> {
  const flags = ['--quota-backend-bytes', String(8 * 2 ** 30)];
  const etcds = (await Promise.all(Array.from({ length: ETCDS }, () => startEtcd(1, { flags })))).flat();
  try {
    const endpoints = etcds.map(({ url }) => url);
    await Promise.all(endpoints.map((endpoint, i) => writeCopies(endpoint, i + 1, ips)));
    const task: CopiesTask = { endpoints, clusters: CLUSTERS, ips };
    const args = ['--expose-gc', FOLLOWER, JSON.stringify(task)];
    const { stdout } = await promisify(execFile)(process.execPath, args);
    const report: CopiesReport = JSON.parse(stdout);
    if (!json) process.stdout.write(render(report, ips));
    return report;
  } finally {
    for (const etcd of etcds) await etcd.dispose();
  }
}
