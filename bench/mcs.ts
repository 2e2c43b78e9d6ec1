import { processGate } from '../src/base/node/process-gate.ts';
import { systemClock } from '../src/base/system-clock.ts';
import { KubernetesClient } from '../src/k8s/kubernetes-client.ts';
import type { ResourceKind } from '../src/k8s/resource.ts';
import { HttpTransport } from '../src/k8s/rest/http-transport.ts';
import { encodeClusterConfig } from '../src/kvstore/codec/cluster-config.ts';
import { encodeClusterEndpointSlice } from '../src/kvstore/codec/cluster-endpoint-slice.ts';
import {
  type CopiedResource,
  clusterConfigKey,
  endpointSliceKey,
  serviceExportKey,
  syncedKey,
} from '../src/kvstore/codec/keys.ts';
import { encodeServiceExport } from '../src/kvstore/codec/service-export.ts';
import { MemoryBackend } from '../src/kvstore/memory/memory-backend.ts';
import { MemoryServer } from '../src/kvstore/memory/memory-server.ts';
import { SERVICE_NAME_LABEL } from '../src/model/cluster-endpoint-slice.ts';
import { McsDuty } from '../src/operator/mcs/mcs-duty.ts';
import { McsObjects } from '../src/operator/mcs/mcs-objects.ts';
import { derivedName, mcsKind } from '../src/operator/mcs/names.ts';
import { FIELD_MANAGER, mirroredName } from '../src/operator/mirrored-slices/slice-content.ts';
import { endpointSliceSync } from '../src/operator/mirrored-slices/slice-duties.ts';
import { RemoteClusters } from '../src/operator/remote-clusters.ts';
import { FakeDirectory } from '../test/clustermesh/support/fake-directory.ts';
import { ApiUser } from '../test/k8s/support/api-user.ts';
import { expect } from './expect.ts';
import { nameOf, put } from './mesh.ts';
import { liveBytes } from './meter.ts';
import { NAMESPACE, SLICES } from './operator/kinds.ts';
import { startApiServer } from './operator.ts';
import { type OwnWork, ownWorkDuring } from './own-work.ts';
import { textTable } from './text-table.ts';

/**
 * The result of {@link benchMcs}. The API server has a separate process; the kvstores of the other clusters are in this
 * one.
 */
export interface McsBenchReport {
  readonly exports: number;
  /** From the start of the duties until every import, derived Service and slice was written. */
  readonly sync: OwnWork;
  readonly writes: number;
  /** Writes per second without the usual limit of 20. */
  readonly writesPerSecond: number;
  /** Growth of heap and buffers by the duties, for each export. */
  readonly bytesPerExport: number;
  /**
   * From the write of a key in the kvstore of another cluster until the API server has the slice, and until it has the
   * import.
   */
  readonly sliceP50: number;
  readonly sliceP99: number;
  readonly importP50: number;
  readonly importP99: number;
}

const CLUSTERS = 10;
const CHANGES = 100;
const RUNTIME = { clock: systemClock, random: Math.random };
const RESOURCES: readonly CopiedResource[] = [
  ...(['nodes', 'services', 'endpointslices', 'identities', 'ip', 'serviceexports'] as const),
];
const CREATED = Date.UTC(2026, 0, 1);
const NAMESPACES: ResourceKind = { group: '', version: 'v1', plural: 'namespaces' };
const IMPORTS = mcsKind('serviceimports', 'v1beta1');

function exported(cluster: string, name: string, port: number): Uint8Array {
  return encodeServiceExport({
    cluster,
    namespace: NAMESPACE,
    name,
    createdAt: CREATED,
    labels: new Map(),
    annotations: new Map([['service.cilium.io/global-sync-endpoint-slices', 'true']]),
    ports: [{ name: 'http', port, protocol: 6 }],
    type: 'ClusterSetIP',
    sessionAffinity: 'None',
    ipFamilies: ['IPv4'],
  });
}

function slice(cluster: string, clusterID: number, name: string, address: string): Uint8Array {
  const service = derivedName(NAMESPACE, name);
  return encodeClusterEndpointSlice({
    cluster,
    clusterID,
    namespace: NAMESPACE,
    name: `${service}-x`,
    labels: new Map([[SERVICE_NAME_LABEL, service]]),
    annotations: new Map(),
    addressType: 'IPv4',
    ports: [{ name: 'http', port: 8080, protocol: 6 }],
    endpoints: [
      { addresses: [address], conditions: { ready: true }, forZones: [], deprecatedTopology: new Map() },
    ],
  });
}

/** The kvstores of the other clusters. Cluster `i % 10` exports service `i`, which has one slice. */
class Exporters {
  readonly directory: FakeDirectory = new FakeDirectory();
  readonly #servers: readonly MemoryServer[] = Array.from(
    { length: CLUSTERS },
    () => new MemoryServer({ clock: systemClock }),
  );

  constructor(exports: number) {
    this.#servers.forEach((server, at) => {
      const name = nameOf(at + 1);
      const config = encodeClusterConfig({
        id: at + 1,
        capabilities: {
          syncedCanaries: true,
          maxConnectedClusters: 255,
          cached: false,
          endpointSlicesExportMode: 'endpointslices-only',
          serviceExportsEnabled: true,
        },
      });
      put(server, clusterConfigKey(name), config);
      for (const resource of RESOURCES) put(server, syncedKey(name, resource), 'x');
      const connect = (): MemoryBackend => new MemoryBackend({ ...RUNTIME, server });
      this.directory.write(name, { kind: 'config', hash: name, connect });
    });
    for (let i = 0; i < exports; i++) {
      this.export(i, 80);
      this.serve(i, `10.${i >> 16}.${(i >> 8) & 255}.${i & 255}`);
    }
  }

  export(i: number, port: number): void {
    const { server, name } = this.#of(i);
    put(
      server,
      serviceExportKey({ cluster: name, namespace: NAMESPACE, name: `svc-${i}` }),
      exported(name, `svc-${i}`, port),
    );
  }

  serve(i: number, address: string): void {
    const { server, name, id } = this.#of(i);
    const sliceName = `${derivedName(NAMESPACE, `svc-${i}`)}-x`;
    const key = endpointSliceKey({ cluster: name, namespace: NAMESPACE, name: sliceName });
    put(server, key, slice(name, id, `svc-${i}`, address));
  }

  /** Returns the name of the slice that the importing cluster gets. */
  imported(i: number): string {
    const service = derivedName(NAMESPACE, `svc-${i}`);
    return mirroredName(service, this.#of(i).name, `${service}-x`);
  }

  #of(i: number): { readonly server: MemoryServer; readonly name: string; readonly id: number } {
    const id = (i % CLUSTERS) + 1;
    const server = this.#servers[id - 1];
    if (server === undefined) throw new Error('no server');
    return { server, name: nameOf(id), id };
  }
}

/** Makes changes one after the other, each when the previous one has arrived. Returns their sorted delays. */
async function lags(change: (i: number) => void, has: (i: number) => Promise<boolean>): Promise<number[]> {
  const times: number[] = [];
  for (let i = 0; i < CHANGES; i++) {
    const begun = performance.now();
    change(i);
    while (!(await has(i))) await new Promise((resolve) => setTimeout(resolve, 2));
    times.push(performance.now() - begun);
  }
  return times.sort((a, b) => a - b);
}

function render(report: McsBenchReport): string {
  const { exports, sync } = report;
  const ms = (value: number): string => `${value.toFixed(0)} ms`;
  return [
    `${exports} services exported by ${CLUSTERS} clusters, imported into an API server in another process, without the limit of 20 writes a second\n`,
    textTable(
      [
        ...[
          '',
          'complete',
          'CPU',
          'loop p99',
          'own work p99',
          'max',
          'writes',
          'writes/s',
          'bytes an export',
        ],
        ...['peak memory', 'key → slice, p50 / p99', 'key → import, p50 / p99'],
      ],
      [
        [
          ...['imports', `${(sync.ms / 1000).toFixed(1)} s`, `${(sync.cpuMs / 1000).toFixed(1)} s`],
          ...[ms(sync.delay.p99), ms(sync.ownP99), ms(sync.ownMax)],
          ...[String(report.writes), report.writesPerSecond.toFixed(0), report.bytesPerExport.toFixed(0)],
          `${(sync.peakBytes / 2 ** 20).toFixed(0)} MiB`,
          `${ms(report.sliceP50)} / ${ms(report.sliceP99)}`,
          `${ms(report.importP50)} / ${ms(report.importP99)}`,
        ],
      ],
    ),
  ].join('\n');
}

/** Measures the import of services. Prints a table unless `json` is set. */
export async function benchMcs({
  n: exports = 5000,
  json = false,
}: {
  readonly n?: number;
  readonly json?: boolean;
}): Promise<McsBenchReport> {
  const exporters = new Exporters(exports);
  const api = await startApiServer({ services: 0, nodes: 0, backends: 0 });
  const transport = new HttpTransport(api.access);
  await new ApiUser(transport, NAMESPACES).create(NAMESPACE);
  const gate = processGate(systemClock);
  const source = new KubernetesClient(api.access, { gate });
  const stop = new AbortController();
  const before = await liveBytes();
  const onReject = ({ message }: { readonly message: string }): never => {
    throw new Error(message);
  };
  const options = { ...RUNTIME, gate, source, kubernetes: source, onReject, clusterName: 'importer' };
  const clusters = new RemoteClusters({
    ...options,
    source: exporters.directory,
    clusterID: 200,
    maxConnectedClusters: 255,
  });
  const objects = new McsObjects(options);
  const writer = source.writer({ fieldManager: FIELD_MANAGER });
  const imports = new McsDuty({
    ...options,
    clusters,
    objects,
    writer,
    reader: source.reader(),
    families: ['IPv4'],
    hasSliceSync: true,
  });
  const slices = endpointSliceSync({ ...options, clusters, writer });
  const duties = [clusters, objects, imports, slices];
  const isComplete = (): boolean =>
    imports.status().published?.synced === true && (slices.status().published?.keys ?? 0) === exports;
  const running: Promise<void>[] = [];
  const sync = await ownWorkDuring(async () => {
    for (const duty of duties) running.push(duty.run(stop.signal));
    while (!isComplete()) await new Promise((resolve) => setTimeout(resolve, 10));
  });
  const writes = [imports, slices].reduce((sum, duty) => sum + (duty.status().published?.writes ?? 0), 0);
  expect('imports', imports.counts().imports, exports);
  const bytesPerExport = ((await liveBytes()) - before) / exports;

  const has = async (kind: ResourceKind, name: string, text: string): Promise<boolean> => {
    const user = new ApiUser(transport, kind, NAMESPACE);
    const { body } = await user.ask({ path: user.path(name) });
    return JSON.stringify(body).includes(text);
  };
  const ofSlices = await lags(
    (i) => exporters.serve(i % exports, `10.99.0.${i}`),
    (i) => has(SLICES, exporters.imported(i % exports), `"10.99.0.${i}"`),
  );
  const ofImports = await lags(
    (i) => exporters.export(i % exports, 9000 + i),
    (i) => has(IMPORTS, `svc-${i % exports}`, `"port":${9000 + i}`),
  );
  const at = (times: readonly number[], part: number): number =>
    times[Math.min(times.length - 1, Math.floor(part * times.length))] ?? 0;
  const report: McsBenchReport = {
    exports,
    sync,
    writes,
    bytesPerExport,
    writesPerSecond: (writes * 1000) / sync.ms,
    sliceP50: at(ofSlices, 0.5),
    sliceP99: at(ofSlices, 0.99),
    importP50: at(ofImports, 0.5),
    importP99: at(ofImports, 0.99),
  };
  stop.abort();
  await Promise.all(running);
  await source.close();
  await transport.close();
  api.process.stdin?.end();
  if (!json) console.log(render(report));
  return report;
}
