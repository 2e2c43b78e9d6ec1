import { afterEach, describe, expect, it } from 'vitest';
import { systemClock } from '../../../src/base/system-clock.ts';
import { ClusterMesh } from '../../../src/clustermesh/cluster-mesh.ts';
import { COPIED_RESOURCES, syncedKey } from '../../../src/kvstore/codec/keys.ts';
import { EtcdBackend } from '../../../src/kvstore/etcd/etcd-backend.ts';
import { KvstoreMesh } from '../../../src/operator/kvstoremesh/kvstore-mesh.ts';
import { recordKeys } from '../../../src/recording/record-keys.ts';
import { until } from '../../base/support/until.ts';
import { type EtcdProcess, startEtcd } from '../../kvstore/etcd/support/etcd-process.ts';
import { Agent, OWN, sliceValue } from '../support/mesh-world.ts';

const PASSWORD = 'secret';

/** The ranges that users of Cilium's clustermesh-apiserver may read (pkg/kvstore/etcdinit). `admin` has all rights. */
const READABLE = {
  /** For remote clusters, and their kvstoremesh: `rangesForRemoteRole`. */
  remote: [
    ['cilium/.heartbeat', '--prefix'],
    ['cilium/state/', '--prefix'],
    ['cilium/cluster-config/far'],
    ['cilium/synced/far/', '--prefix'],
  ],
  /** For agents and operators, of copies by kvstoremesh: `rangesForLocalRole`. */
  local: [
    ['cilium/.heartbeat', '--prefix'],
    ['cilium/cache/', '--prefix'],
    ['cilium/cluster-config/', '--prefix'],
    ['cilium/synced/', '--prefix'],
  ],
} as const;
type User = keyof typeof READABLE | 'admin';

const cleanups: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

/** An etcd with the users of Cilium. */
class UsersEtcd {
  readonly #process: EtcdProcess;

  private constructor(process: EtcdProcess) {
    this.#process = process;
  }

  static async start(): Promise<UsersEtcd> {
    const [process] = await startEtcd(1, { flags: ['--bcrypt-cost', '4'] });
    if (process === undefined) throw new Error('no etcd');
    cleanups.push(() => process.dispose());
    await process.ctl(['user', 'add', `root:${PASSWORD}`]);
    await process.ctl(['user', 'grant-role', 'root', 'root']);
    await process.ctl(['user', 'add', `admin:${PASSWORD}`]);
    await process.ctl(['user', 'grant-role', 'admin', 'root']);
    for (const [user, ranges] of Object.entries(READABLE)) {
      await process.ctl(['user', 'add', `${user}:${PASSWORD}`]);
      await process.ctl(['role', 'add', user]);
      for (const range of ranges) await process.ctl(['role', 'grant-permission', user, 'read', ...range]);
      await process.ctl(['user', 'grant-role', user, user]);
    }
    await process.ctl(['auth', 'enable']);
    process.user = `root:${PASSWORD}`;
    return new UsersEtcd(process);
  }

  connect(username: User): EtcdBackend {
    const backend = new EtcdBackend({
      endpoints: [this.#process.url],
      auth: { username, password: PASSWORD },
    });
    cleanups.push(() => backend.close());
    return backend;
  }

  async put(key: string, value: unknown): Promise<void> {
    const text = value instanceof Uint8Array ? value : Buffer.from(JSON.stringify(value));
    await this.#writer.update(key, text);
  }

  async delete(key: string): Promise<void> {
    await this.#writer.delete(key);
  }

  #admin: EtcdBackend | undefined;
  get #writer(): EtcdBackend {
    this.#admin ??= this.connect('admin');
    return this.#admin;
  }
}

/** The capabilities of cluster `far`: of 1.13, of 1.17, and of 1.20 with both formats and with one. */
const MODES = {
  'without canaries': {},
  'with canaries': { syncedCanaries: true, maxConnectedClusters: 255, serviceExportsEnabled: false },
  'with both formats of services': {
    syncedCanaries: true,
    serviceExportsEnabled: true,
    endpointSlicesExportMode: 'services-and-endpointslices',
  },
  'with slices only': {
    syncedCanaries: true,
    serviceExportsEnabled: true,
    endpointSlicesExportMode: 'endpointslices-only',
  },
} as const;
type Mode = keyof typeof MODES;

const NOW = '2026-11-20T12:00:00Z';

async function publish(etcd: UsersEtcd): Promise<void> {
  await etcd.put('cilium/.heartbeat', NOW);
  await etcd.put('cilium/state/ip/v1/default/10.7.0.1', { IP: '10.7.0.1', ID: 7 << 16 });
  await etcd.put('cilium/state/identities/v1/id/458752', 'k8s:app=web;');
  await etcd.put('cilium/state/nodes/v1/far/n1', { Name: 'n1', Cluster: 'far' });
  const named = { cluster: 'far', namespace: 'ns', name: 's0' };
  const backends = { '10.7.0.2': { http: { Port: 80, Protocol: 'TCP' } } };
  await etcd.put('cilium/state/services/v1/far/ns/s0', { ...named, shared: true, backends });
  const slice = { cluster: 'far', clusterID: 7, service: 's0', name: 's0-x' };
  await etcd.put('cilium/state/endpointslices/v1/far/ns/s0-x', sliceValue(slice, ['10.7.0.2']));
  const exported = { exportCreationTimestamp: NOW, ports: [], type: 'ClusterSetIP', sessionAffinity: 'None' };
  await etcd.put('cilium/state/serviceexports/v1/far/ns/s0', { ...named, ...exported });
  for (const resource of COPIED_RESOURCES) await etcd.put(syncedKey('far', resource), NOW);
}

function configure(etcd: UsersEtcd, mode: Mode, id: number): Promise<void> {
  return etcd.put('cilium/cluster-config/far', { id, capabilities: MODES[mode] });
}

/** An agent and an operator that follow cluster `far` with the rights of a user. */
class Readers {
  readonly agent: Agent;
  readonly exports = new Set<string>();
  readonly meshes: readonly ClusterMesh[];

  constructor(serviceV2: 'auto' | 'slices') {
    this.agent = new Agent(systemClock, (options) => new ClusterMesh({ ...options, serviceV2 }));
    const exports = {
      exportUpdated: ({ name }: { name: string }) => this.exports.add(name),
      exportDeleted: ({ name }: { name: string }) => this.exports.delete(name),
    };
    const own = { clusterName: OWN, clusterID: 9, clock: systemClock };
    const operator = new ClusterMesh({ ...own, exports, identities: false, needsConfig: true });
    cleanups.push(
      () => this.agent.stop(),
      () => operator.stop(),
    );
    this.meshes = [this.agent.mesh, operator];
  }

  async follow(etcd: UsersEtcd, user: User): Promise<void> {
    for (const mesh of this.meshes) await mesh.add('far', () => etcd.connect(user));
  }

  /** Waits until all readers are ready with this content, and checks that no read was refused. */
  async expectReady(address: string | undefined, exports: readonly string[]): Promise<void> {
    const { agent } = this;
    const found = (): unknown => ({
      states: this.meshes.map((mesh) => mesh.statusOf('far')?.state),
      heartbeats: this.meshes.map((mesh) => mesh.statusOf('far')?.heartbeat),
      address: agent.ipcache.get('10.7.0.1')?.owner,
      backends: [...(agent.services.get({ namespace: 'ns', name: 's0' })?.endpoints.backends.keys() ?? [])],
      exports: [...this.exports],
    });
    const expected = {
      states: ['ready', 'ready'],
      heartbeats: ['fresh', 'fresh'],
      address,
      backends: address === undefined ? [] : ['10.7.0.2'],
      exports,
    };
    const isSame = (): boolean => JSON.stringify(found()) === JSON.stringify(expected);
    await until('the readers have it', isSame).catch(() => {}); // the difference is more useful
    expect(found()).toEqual(expected);
  }

  expectNoRefusals(): void {
    for (const mesh of this.meshes)
      expect(mesh.statusOf('far')?.lastFailure?.message ?? '').not.toContain('permission');
  }
}

async function expectFollowed(far: UsersEtcd, mode: Mode, readers: readonly Readers[]): Promise<void> {
  const exported = mode === 'with both formats of services' || mode === 'with slices only' ? ['s0'] : [];
  for (const each of readers) await each.expectReady('far', exported);
  // A delete is applied after a read of the configuration.
  await far.delete('cilium/state/services/v1/far/ns/s0');
  await far.delete('cilium/state/endpointslices/v1/far/ns/s0-x');
  await far.delete('cilium/state/ip/v1/default/10.7.0.1');
  await far.delete('cilium/state/serviceexports/v1/far/ns/s0');
  for (const each of readers) await each.expectReady(undefined, []);
  for (const each of readers) each.expectNoRefusals();
}

describe.each(Object.keys(MODES) as Mode[])(
  'with the rights of the users of Cilium, a cluster %s',
  (mode) => {
    it('is followed by agents and operators as user `remote`', async () => {
      const far = await UsersEtcd.start();
      await publish(far);
      await configure(far, mode, 7);
      const readers = [new Readers('auto'), new Readers('slices')];
      for (const each of readers) await each.follow(far, 'remote');
      await expectFollowed(far, mode, readers);
    });

    it('is copied by kvstoremesh as users `remote` and `admin`, and the copy is followed as user `local`', async () => {
      const far = await UsersEtcd.start();
      const copy = await UsersEtcd.start();
      await publish(far);
      await configure(far, mode, 7);
      await copy.put('cilium/.heartbeat', NOW);
      const runtime = { clock: systemClock, random: Math.random };
      const local = copy.connect('admin');
      const kvstoreMesh = new KvstoreMesh({ ...runtime, clusterName: OWN, clusterID: 9, local });
      cleanups.push(() => kvstoreMesh.stop());
      await kvstoreMesh.add('far', () => far.connect('remote'));
      await until('the copy has a configuration', async () => {
        const config = await local.get('cilium/cluster-config/far');
        return config !== undefined;
      });
      const readers = [new Readers('auto'), new Readers('slices')];
      for (const each of readers) await each.follow(copy, 'local');
      await expectFollowed(far, mode, readers);
      expect(kvstoreMesh.statusOf('far')?.lastFailure?.message ?? '').not.toContain('permission');
    });
  },
);

it('a cluster without a configuration is followed when it exists, and again when its id changes, as user `remote` (regression: no right to watch its configuration)', async () => {
  const far = await UsersEtcd.start();
  await publish(far);
  const { agent } = new Readers('auto');
  await agent.mesh.add('far', () => far.connect('remote'));
  const state = (): string | undefined => agent.mesh.statusOf('far')?.state;
  await until('it has no configuration', () => state() === 'no-configuration');
  await configure(far, 'with canaries', 7);
  await until('it is ready', () => state() === 'ready');
  expect(agent.ipcache.get('10.7.0.1')).toMatchObject({ identity: 7 << 16, owner: 'far' });
  // Another id: the identity is not one of the cluster any more.
  await configure(far, 'with canaries', 8);
  await until('it is withdrawn', () => agent.ipcache.get('10.7.0.1') === undefined);
  await until('it is ready again', () => state() === 'ready');
});

it.each([
  ['remote', 'cilium/state/ip/v1/default/10.7.0.1'],
  ['local', 'cilium/cache/ip/v1/far/10.7.0.1'],
] as const)('user `%s` can record all keys that it may read (regression: refused)', async (user, key) => {
  const etcd = await UsersEtcd.start();
  await publish(etcd);
  await configure(etcd, 'with canaries', 7);
  await etcd.put(key, { IP: '10.7.0.1', ID: 7 << 16 });
  let recorded = '';
  const write = (lines: string): Promise<void> => {
    recorded += lines;
    return Promise.resolve();
  };
  await recordKeys(etcd.connect(user), { store: 'far', write, signal: new AbortController().signal });
  for (const readable of ['cilium/.heartbeat', 'cilium/cluster-config/far', syncedKey('far', 'ip'), key])
    expect(recorded).toContain(`"${readable}"`);
});
