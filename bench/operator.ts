import { type ChildProcess, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { processGate } from '../src/base/node/process-gate.ts';
import { systemClock } from '../src/base/system-clock.ts';
import { ClusterMesh } from '../src/clustermesh/cluster-mesh.ts';
import { IPCache } from '../src/ipcache/ipcache.ts';
import { KubernetesClient } from '../src/k8s/kubernetes-client.ts';
import { type ClusterAccess, fixedCredentials } from '../src/k8s/rest/cluster-access.ts';
import { HttpTransport } from '../src/k8s/rest/http-transport.ts';
import { EtcdBackend } from '../src/kvstore/etcd/etcd-backend.ts';
import { NodeManager } from '../src/nodemanager/node-manager.ts';
import { ClusterConfigKeeper } from '../src/operator/publish/cluster-config.ts';
import { nodeSync } from '../src/operator/publish/node-sync.ts';
import { ServiceObjects } from '../src/operator/publish/service-objects.ts';
import { serviceSync } from '../src/operator/publish/service-sync.ts';
import { ServiceCache } from '../src/servicecache/service-cache.ts';
import { ApiUser } from '../test/k8s/support/api-user.ts';
import { startEtcd } from '../test/kvstore/etcd/support/etcd-process.ts';
import { expect } from './expect.ts';
import { delayCells } from './loop-delay.ts';
import { liveBytes } from './meter.ts';
import { type ClusterSize, NAMESPACE, SLICES } from './operator/kinds.ts';
import { type OwnWork, ownWorkDuring } from './own-work.ts';
import { textTable } from './text-table.ts';

/** The result of {@link benchOperator}. The API server has a separate process; the reader starts after the sync. */
export interface OperatorBenchReport {
  readonly services: number;
  readonly nodes: number;
  /** From the start of the duties until the configuration, all keys and canaries were written. */
  readonly sync: OwnWork;
  readonly writesPerSecond: number;
  /** Growth of heap and buffers by the duties, for each key. */
  readonly bytesPerKey: number;
  /** From the write of a slice to the API server until the cache of a remote agent has it. */
  readonly changeP50: number;
  readonly changeP99: number;
}

const BACKENDS = 10;
const CHANGES = 200;
const RUNTIME = { clock: systemClock, random: Math.random };
const NAMES = { clusterName: 'west', clusterID: 1 };
const API_SERVER = fileURLToPath(new URL('./operator/api-server.js', import.meta.url));

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** Starts an API server in a separate process, with the objects of a cluster. */
export async function startApiServer(
  size: ClusterSize,
): Promise<{ access: ClusterAccess; process: ChildProcess }> {
  const child = spawn(process.execPath, [API_SERVER, JSON.stringify(size)], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  for await (const address of createInterface(child.stdout)) {
    const none = { ca: undefined, serverName: undefined, insecureSkipVerify: false };
    const credentials = fixedCredentials(undefined, undefined);
    return { process: child, access: { server: `http://${address}`, ...none, credentials } };
  }
  throw new Error('the API server has ended');
}

/** Changes slices one after the other, each as soon as the reader has the previous change. */
async function changes(transport: HttpTransport, services: number, cache: ServiceCache): Promise<number[]> {
  const user = new ApiUser(transport, SLICES, NAMESPACE);
  const lags: number[] = [];
  for (let i = 0; i < CHANGES; i++) {
    const index = i % services;
    const address = `10.200.${i >> 8}.${i & 255}`;
    const begun = performance.now();
    await user.patch(`svc-${index}-a`, {
      endpoints: [{ addresses: [address], conditions: { ready: true } }],
    });
    const id = { namespace: NAMESPACE, name: `svc-${index}` };
    while (cache.explain(id)?.backends.some((one) => one.address === address) !== true) await turn();
    lags.push(performance.now() - begun);
  }
  return lags.sort((a, b) => a - b);
}

function render(report: OperatorBenchReport): string {
  const { services, nodes } = report;
  const ms = (value: number): string => `${value.toFixed(value < 10 ? 1 : 0)} ms`;
  return [
    `${services} services of ${BACKENDS} backends and ${nodes} nodes, from an API server in another process into a real etcd\n`,
    textTable(
      [
        '',
        'first sync',
        'loop p50',
        'p99',
        'max',
        'budget',
        'own work p99',
        'max',
        'writes/s',
        'bytes a key',
        'a change, p50 / p99',
      ],
      [
        [
          'operator',
          ...delayCells(report.sync),
          ms(report.sync.ownP99),
          ms(report.sync.ownMax),
          report.writesPerSecond.toFixed(0),
          report.bytesPerKey.toFixed(0),
          `${ms(report.changeP50)} / ${ms(report.changeP99)}`,
        ],
      ],
    ),
  ].join('\n');
}

/** Measures the cost of the producers of a cluster. Prints a table unless `json` is set. */
export async function benchOperator({
  n: services = 10_000,
  json = false,
}: {
  readonly n?: number;
  readonly json?: boolean;
}): Promise<OperatorBenchReport> {
  const nodes = Math.ceil(services / 2);
  const [etcd] = await startEtcd();
  if (etcd === undefined) throw new Error('no etcd');
  const api = await startApiServer({ services, nodes, backends: BACKENDS });
  const transport = new HttpTransport(api.access);
  const gate = processGate(systemClock);
  const source = new KubernetesClient(api.access, { gate });
  const own = new EtcdBackend({ endpoints: [etcd.url] }, RUNTIME);
  const stop = new AbortController();
  const before = await liveBytes();
  const options = { ...RUNTIME, ...NAMES, source, backend: own, gate };
  const objects = new ServiceObjects({ ...options, selection: { headless: true }, producers: 1 });
  const producers = [serviceSync(options, objects), nodeSync(options)];
  const config = new ClusterConfigKeeper({ ...options, promised: producers });
  const running: Promise<void>[] = [];
  const sync = await ownWorkDuring(() => {
    for (const duty of [...producers, config]) running.push(duty.run(stop.signal));
    return config.written;
  });
  const keys = producers.reduce((sum, duty) => sum + (duty.status().published?.keys ?? 0), 0);
  expect('keys', keys, services + nodes);
  const bytesPerKey = ((await liveBytes()) - before) / keys;

  const cache = new ServiceCache({ clusterName: 'reader' });
  const ipcache = new IPCache();
  const engines = {
    ipcache,
    services: cache,
    nodes: new NodeManager({ ipcache, clusterName: 'reader', nodeName: 'me', ...RUNTIME }),
  };
  const mesh = new ClusterMesh({ ...engines, ...RUNTIME, clusterName: 'reader', clusterID: 2, gate });
  await mesh.add(NAMES.clusterName, () => new EtcdBackend({ endpoints: [etcd.url] }, RUNTIME));
  while (cache.explain({ namespace: NAMESPACE, name: `svc-${services - 1}` }) === undefined) await turn();
  const lags = await changes(transport, services, cache);
  const lag = (part: number): number => lags[Math.min(lags.length - 1, Math.floor(part * lags.length))] ?? 0;
  const report = {
    services,
    nodes,
    sync,
    bytesPerKey,
    writesPerSecond: (keys * 1000) / sync.ms,
    changeP50: lag(0.5),
    changeP99: lag(0.99),
  };
  stop.abort();
  await Promise.all(running);
  await mesh.stop();
  await source.close();
  await transport.close();
  api.process.stdin?.end();
  await own.close();
  await etcd.dispose();
  if (!json) console.log(render(report));
  return report;
}
