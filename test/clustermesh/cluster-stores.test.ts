import { describe, expect, it } from 'vitest';
import { RejectionLog } from '../../src/base/rejection.ts';
import { ClusterStores } from '../../src/clustermesh/cluster-stores.ts';
import { NO_LIMITS } from '../../src/clustermesh/decoders.ts';
import type { MeshEngines } from '../../src/clustermesh/engines.ts';
import type { Writer } from '../../src/ipcache/types.ts';
import type { CopiedResource } from '../../src/kvstore/codec/keys.ts';
import { MemoryBackend } from '../../src/kvstore/memory/memory-backend.ts';
import { IdentityCache } from '../../src/model/identity-cache.ts';
import type { NumericIdentity } from '../../src/model/numeric-identity.ts';
import { ManualClock } from '../base/support/manual-clock.ts';
import { settle } from '../kvstore/support/settle.ts';
import { write, writeIP, writeNode, writeService } from './support/mesh-world.ts';

const WRITER: Writer = { source: 'clustermesh', owner: 'a' };

/** The stores of cluster `a`, with engines that record their calls. */
class World {
  readonly told: string[] = [];
  readonly identities: IdentityCache = new IdentityCache();
  readonly backend: MemoryBackend = new MemoryBackend({ clock: new ManualClock() });
  readonly engines: Required<Pick<MeshEngines, 'ipcache' | 'services' | 'nodes'>>;
  readonly stores: ClusterStores;

  constructor(choose: (engines: World['engines']) => MeshEngines = (engines) => engines) {
    const tell = (what: string, ...said: readonly unknown[]): void =>
      void this.told.push(
        [what, ...said.map((one) => (typeof one === 'string' ? one : JSON.stringify(one)))].join(' '),
      );
    this.engines = {
      ipcache: {
        upsert: (key, { identity }) => tell('ip', key, identity),
        delete: (key) => tell('no ip', key),
        withdraw: (by) => tell('no ips of', by),
        batch: (apply) => apply(),
      },
      services: {
        mergeExternalServiceUpdate: ({ name }) => tell('service', name),
        mergeExternalServiceDelete: ({ name }) => tell('no service', name),
        mergeExternalSliceUpdate: ({ name }) => tell('slice', name),
        mergeExternalSliceDelete: ({ name }) => tell('no slice', name),
        withdrawCluster: (cluster) => tell('no services of', cluster),
      },
      nodes: {
        nodeUpdated: ({ name }) => tell('node', name),
        nodeDeleted: ({ name }) => tell('no node', name),
        withdraw: (by) => tell('no nodes of', by),
      },
    };
    this.stores = new ClusterStores({
      cluster: 'a',
      writer: WRITER,
      engines: choose(this.engines),
      limits: () => NO_LIMITS,
      identities: this.identities,
      rejections: new RejectionLog(),
      onApplied: () => {},
      onFault: () => {},
    });
  }

  /** Reads one of each resource. */
  async read(): Promise<void> {
    const { server } = this.backend;
    writeIP(server, '10.1.0.1', 300);
    writeIP(server, '10.1.0.2', 1);
    writeNode(server, 'a', 'n1', '192.168.1.1');
    writeService(server, 'a', 's0', '10.1.0.1');
    write(server, 'cilium/state/identities/v1/id/300', 'k8s:app=x;');
    const ended = new AbortController();
    const follow = (resource: CopiedResource): Promise<unknown> =>
      this.stores.follow(resource, {
        backend: this.backend,
        signal: ended.signal,
        layout: 'state',
        keepUnlisted: false,
        mayDelete: undefined,
        onListed: () => {},
        onReaderState: () => {},
      });
    const following = Promise.all(this.stores.resources.map(follow));
    await settle(10);
    ended.abort();
    await following;
  }
}

const never = new AbortController().signal;
const TIME = '2026-01-02T03:04:05Z';

describe('the stores of a cluster', () => {
  it('withdraw everything, nodes last, and then the state that remains after faults (I10)', async () => {
    const world = new World();
    await world.read();
    world.identities.upsert(301 as NumericIdentity, []); // as a fault may leave it
    expect(world.stores.size).toBe(5);
    world.told.splice(0);
    await world.stores.withdraw(never);
    expect(world.told).toEqual([
      ...['no service s0', 'no ip 10.1.0.1', 'no ip 10.1.0.2', 'no node n1'],
      ...['no services of a', `no ips of ${JSON.stringify(WRITER)}`],
      'no nodes of {"source":"clustermesh","cluster":"a"}',
    ]);
    expect([world.stores.size, [...world.identities.entries()]]).toEqual([0, []]);
  });

  it('withdraw only the services, and the state that remains after faults', async () => {
    const world = new World();
    await world.read();
    world.told.splice(0);
    await world.stores.withdrawServices(never);
    expect(world.told).toEqual(['no service s0', 'no services of a']);
    expect(world.stores.size).toBe(4);
  });

  it('follow and withdraw only resources with an engine', async () => {
    const world = new World(() => ({}));
    await world.read();
    expect(world.stores.resources).toEqual(['identities']);
    await world.stores.withdrawServices(never);
    await world.stores.withdraw(never);
    expect([world.told, world.stores.size]).toEqual([[], 0]);
  });

  it.each(['failed', 'was interrupted'])(
    'report the end of a withdrawal whose last step %s at first (regression: never reported, so the history stayed uncertain)',
    async (how) => {
      const reports: boolean[] = [];
      const ended = new AbortController();
      let calls = 0;
      const world = new World((engines) => ({
        ...engines,
        onWithdrawal: (_cluster, isRunning) => reports.push(isRunning),
        services: engines.services && {
          ...engines.services,
          withdrawCluster: () => {
            if (++calls > 1) return;
            if (how === 'failed') throw new Error('fault');
            ended.abort();
          },
        },
      }));
      await world.read();
      await world.stores.withdraw(ended.signal).catch(() => {});
      expect([world.stores.size, reports]).toEqual([0, [true]]);
      await world.stores.withdraw(never);
      expect(reports).toEqual([true, true, false]);
      await world.stores.withdraw(never);
      expect(reports).toHaveLength(3);
    },
  );

  it('withdraw exports only if a configuration does not export them, and not while there is none', async () => {
    const withdrawn: string[] = [];
    const world = new World(() => ({
      identities: false,
      exports: { exportUpdated: () => {}, exportDeleted: ({ name }) => withdrawn.push(name) },
    }));
    const fields = { type: 'ClusterSetIP', sessionAffinity: '', ports: [] };
    const value = { cluster: 'a', namespace: 'ns', name: 'e', exportCreationTimestamp: TIME, ...fields };
    write(world.backend.server, 'cilium/state/serviceexports/v1/a/ns/e', value);
    await world.read();
    expect(world.stores.size).toBe(1);
    await world.stores.configure(undefined, never);
    expect([withdrawn, world.stores.size]).toEqual([[], 1]);
    const capabilities = { syncedCanaries: true, cached: false };
    await world.stores.configure({ id: 1, capabilities }, never);
    expect([withdrawn, world.stores.size]).toEqual([['e'], 0]);
  });

  it('stop a withdrawal when their signal fires', async () => {
    const world = new World();
    await world.read();
    world.told.splice(0);
    await world.stores.withdraw(AbortSignal.abort());
    expect([world.told, world.stores.size]).toEqual([[], 5]);
  });

  it.each([
    [undefined, 6],
    [true, 6],
    [false, 1],
  ])(
    'treat an entry that a peer marks as its host as a node of the mesh, with remote-node identities %s: %i',
    async (remoteNodeIdentities, identity) => {
      const world = new World((engines) => ({ ...engines, remoteNodeIdentities }));
      await world.read();
      expect(world.told).toContain(`ip 10.1.0.2 ${identity}`);
    },
  );
});
