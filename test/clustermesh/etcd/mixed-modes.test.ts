import { afterAll, beforeAll, expect, it } from 'vitest';
import { systemClock } from '../../../src/base/system-clock.ts';
import { ClusterMesh } from '../../../src/clustermesh/cluster-mesh.ts';
import type { ServiceFormat } from '../../../src/clustermesh/service-format.ts';
import { textOfBytes } from '../../../src/kvstore/codec/bytes.ts';
import {
  clusterConfigKey,
  endpointSliceKey,
  MESH_RESOURCES,
  serviceKey,
  syncedKey,
} from '../../../src/kvstore/codec/keys.ts';
import { EtcdBackend } from '../../../src/kvstore/etcd/etcd-backend.ts';
import { KvstoreMesh } from '../../../src/operator/kvstoremesh/kvstore-mesh.ts';
import { until } from '../../base/support/until.ts';
import { type EtcdProcess, startEtcd } from '../../kvstore/etcd/support/etcd-process.ts';
import { ClusterEtcd } from '../support/cluster-etcd.ts';
import { Agent, OWN, sliceValue } from '../support/mesh-world.ts';

/** The clusters with their ids and modes: of before 1.20, of 1.20, and of 1.22. */
const CLUSTERS = {
  a: { id: 1, mode: undefined },
  b: { id: 2, mode: 'services-and-endpointslices' },
  c: { id: 3, mode: 'endpointslices-only' },
} as const;
type Name = keyof typeof CLUSTERS;
const NAMES: readonly Name[] = ['a', 'b', 'c'];
const NOW = '2026-01-01T00:00:00Z';

const etcds = new Map<Name, ClusterEtcd>();
const backends: EtcdBackend[] = [];
let local: EtcdProcess;
let mesh: KvstoreMesh;
let copy: EtcdBackend;
const agents = new Map<ServiceFormat, Agent>();

function connect(url: string): EtcdBackend {
  const backend = new EtcdBackend({ endpoints: [url] });
  backends.push(backend);
  return backend;
}

function etcdOf(name: Name): ClusterEtcd {
  return etcds.get(name) ?? expect.fail(name);
}

function startCopying(): void {
  const runtime = { clock: systemClock, random: Math.random };
  copy = connect(local.url);
  mesh = new KvstoreMesh({ ...runtime, clusterName: OWN, clusterID: 9, local: copy });
  for (const name of NAMES) void mesh.add(name, () => connect(etcdOf(name).url));
}

/** Exports the service `s0` in the formats of a mode; the last part of the address of its backends names the format. */
async function exportServices(name: Name, mode: string | undefined): Promise<void> {
  const { id } = CLUSTERS[name];
  const etcd = etcdOf(name);
  if (mode !== 'endpointslices-only') {
    const backend = { [`10.${id}.0.1`]: { http: { Port: 80, Protocol: 'TCP' } } };
    const value = { cluster: name, namespace: 'ns', name: 's0', clusterID: id, shared: true };
    await etcd.write(serviceKey({ cluster: name, namespace: 'ns', name: 's0' }), {
      ...value,
      backends: backend,
    });
  }
  if (mode !== undefined) {
    await writeSlice(name, [`10.${id}.0.2`]);
    await etcd.write(syncedKey(name, 'endpointslices'), NOW);
  }
  const capabilities = { syncedCanaries: true, endpointSlicesExportMode: mode };
  await etcd.write(clusterConfigKey(name), { id, capabilities });
}

function writeSlice(name: Name, addresses: readonly string[]): Promise<void> {
  const named = { cluster: name, clusterID: CLUSTERS[name].id, service: 's0', name: 's0-x' };
  return etcdOf(name).write(
    endpointSliceKey({ cluster: name, namespace: 'ns', name: 's0-x' }),
    sliceValue(named, addresses),
  );
}

beforeAll(async () => {
  local = (await startEtcd())[0] ?? expect.fail('no etcd');
  for (const name of NAMES) {
    etcds.set(name, await ClusterEtcd.start(name, CLUSTERS[name].id));
    await exportServices(name, CLUSTERS[name].mode);
  }
  // The canary of services/v1 is never written.
  await etcdOf('c').write(syncedKey('c', 'services'), undefined);
  startCopying();
  for (const serviceV2 of ['auto', 'slices', 'legacy'] as const) {
    const agent = new Agent(systemClock, (options) => new ClusterMesh({ ...options, serviceV2 }));
    agents.set(serviceV2, agent);
    for (const name of NAMES) await agent.mesh.add(name, () => connect(local.url));
  }
});

afterAll(async () => {
  for (const agent of agents.values()) await agent.stop();
  await mesh.stop();
  for (const backend of backends) await backend.close();
  for (const etcd of etcds.values()) await etcd.dispose();
  await local.dispose();
});

/** Waits until the agents have these backends of `s0`, and are synced with all clusters. */
async function expectBackends(expected: Readonly<Record<ServiceFormat, readonly string[]>>): Promise<void> {
  const found = (): Readonly<Record<string, readonly string[]>> =>
    Object.fromEntries(
      [...agents].map(([setting, { services }]) => [
        setting,
        [...(services.get({ namespace: 'ns', name: 's0' })?.endpoints.backends.keys() ?? [])].sort(),
      ]),
    );
  const areReady = (): boolean =>
    [...agents.values()].every((agent) =>
      NAMES.every((name) => agent.mesh.statusOf(name)?.state === 'ready'),
    );
  const isSame = (): boolean => areReady() && JSON.stringify(found()) === JSON.stringify(expected);
  await until('the agents have them', isSame).catch(() => {}); // the difference is more useful
  expect(found()).toEqual(expected);
  expect(areReady()).toBe(true);
}

it('three clusters of different modes behind a kvstoremesh on real etcds are read in the format of each', async () => {
  await expectBackends({
    auto: ['10.1.0.1', '10.2.0.1', '10.3.0.2'],
    slices: ['10.1.0.1', '10.2.0.2', '10.3.0.2'],
    legacy: ['10.1.0.1', '10.2.0.1'],
  });
  expect(agents.get('auto')?.rejections).toEqual([]);
  for (const name of NAMES) {
    const { id, mode } = CLUSTERS[name];
    const config = await copy.get(clusterConfigKey(name));
    expect(JSON.parse(textOfBytes(config?.value ?? new Uint8Array()) ?? '')).toEqual({
      id,
      capabilities: { syncedCanaries: true, cached: true, endpointSlicesExportMode: mode },
    });
    for (const resource of MESH_RESOURCES)
      expect(await copy.get(syncedKey(name, resource, 'cache')), `${name} ${resource}`).toBeDefined();
  }
  const slices = await copy.listPrefix('cilium/cache/endpointslices/v1/');
  expect(slices.map(({ key }) => key)).toEqual(
    (['b', 'c'] as const).map((name) => `cilium/cache/endpointslices/v1/${name}/ns/s0-x`),
  );
  const named = { cluster: 'c', clusterID: 3, service: 's0', name: 's0-x' };
  expect(Buffer.from(slices[1]?.value ?? [])).toEqual(Buffer.from(sliceValue(named, ['10.3.0.2'])));
});

it('changes arrive, and what a restarted kvstoremesh cannot reach stays', async () => {
  await writeSlice('c', ['10.3.0.2', '10.3.0.3']);
  await etcdOf('b').write(endpointSliceKey({ cluster: 'b', namespace: 'ns', name: 's0-x' }), undefined);
  const expected = {
    auto: ['10.1.0.1', '10.2.0.1', '10.3.0.2', '10.3.0.3'],
    slices: ['10.1.0.1', '10.3.0.2', '10.3.0.3'],
    legacy: ['10.1.0.1', '10.2.0.1'],
  };
  await expectBackends(expected);
  await etcdOf('c').strike('down', Math.random);
  await mesh.stop();
  await copy.close({ keepLeases: true });
  startCopying();
  await writeSlice('b', ['10.2.0.4']);
  const next = { ...expected, slices: ['10.1.0.1', '10.2.0.4', '10.3.0.2', '10.3.0.3'] };
  await expectBackends(next);
  etcdOf('c').heal();
  await exportServices('a', 'endpointslices-only');
  await etcdOf('a').write(serviceKey({ cluster: 'a', namespace: 'ns', name: 's0' }), undefined);
  await expectBackends({
    auto: ['10.1.0.2', '10.2.0.1', '10.3.0.2', '10.3.0.3'],
    slices: ['10.1.0.2', '10.2.0.4', '10.3.0.2', '10.3.0.3'],
    legacy: ['10.2.0.1'],
  });
});
