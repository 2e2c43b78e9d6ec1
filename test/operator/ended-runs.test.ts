import { expect, it } from 'vitest';
import { RejectionLog } from '../../src/base/rejection.ts';
import { unsubscribeOnce } from '../../src/base/subscription.ts';
import { KubernetesClient } from '../../src/k8s/kubernetes-client.ts';
import { MemoryApiServer } from '../../src/k8s/memory/memory-api-server.ts';
import { MemoryApiTransport } from '../../src/k8s/memory/memory-api-transport.ts';
import type { ObjectWrite } from '../../src/k8s/rest/object-writer.ts';
import { IdentityAllocator } from '../../src/kvstore/allocator/identity-allocator.ts';
import { MemoryBackend } from '../../src/kvstore/memory/memory-backend.ts';
import type { LeaseLostListener } from '../../src/kvstore/session/backend.ts';
import { SyncStore } from '../../src/kvstore/stores/sync-store.ts';
import type { Duty } from '../../src/operator/duty.ts';
import { McsObjects } from '../../src/operator/mcs/mcs-objects.ts';
import { SliceWriter } from '../../src/operator/mirrored-slices/slice-writer.ts';
import { ClusterConfigKeeper } from '../../src/operator/publish/cluster-config.ts';
import { HeartbeatDuty } from '../../src/operator/publish/heartbeat.ts';
import { RemoteClusters } from '../../src/operator/remote-clusters.ts';
import { ManualClock } from '../base/support/manual-clock.ts';
import { FakeDirectory } from '../clustermesh/support/fake-directory.ts';
import { advance } from '../kvstore/support/settle.ts';

/** A kvstore that records who is told about lost leases. */
class ObservedBackend extends MemoryBackend {
  readonly listeners = new Set<LeaseLostListener>();

  override onLeaseLost(listener: LeaseLostListener): ReturnType<MemoryBackend['onLeaseLost']> {
    const unsubscribe = super.onLeaseLost(listener);
    this.listeners.add(listener);
    return unsubscribeOnce(() => {
      this.listeners.delete(listener);
      unsubscribe();
    });
  }
}

interface Options {
  readonly backend: MemoryBackend;
  readonly clock: ManualClock;
  readonly random: () => number;
}

it.each([
  ['a sync store', (options: Options) => new SyncStore({ ...options, prefix: 'own/' })],
  [
    'an allocator of identities',
    (options: Options) => {
      const range = { min: 256, max: 300 };
      return new IdentityAllocator({ ...options, range, nodeSuffix: 'n1', rejections: new RejectionLog() });
    },
  ],
  [
    'the keeper of the configuration',
    (options: Options) => new ClusterConfigKeeper({ ...options, clusterName: 'a', clusterID: 1 }),
  ],
])(
  '%s is told about lost leases only during a run, because each election begins one',
  async (_name, make) => {
    const clock = new ManualClock();
    const random = (): number => 0.5;
    const backend = new ObservedBackend({ clock, random });
    const runner = make({ backend, clock, random });
    for (let run = 0; run < 2; run++) {
      const ended = new AbortController();
      const running = runner.run(ended.signal);
      await advance(clock, 1000);
      expect(backend.listeners.size).toBe(1);
      ended.abort();
      await running;
      expect(backend.listeners.size).toBe(0);
    }
    await backend.close();
  },
);

it.each<[string, (options: Options) => Duty]>([
  ['a heartbeat', ({ backend, clock, random }) => new HeartbeatDuty({ backend, clock, random })],
  [
    'the objects of the multi-cluster services API',
    ({ clock, random }) => {
      const transport = new MemoryApiTransport(new MemoryApiServer({ clock }));
      return new McsObjects({ source: new KubernetesClient(transport, { clock, random }), clock, random });
    },
  ],
  [
    'the remote clusters',
    ({ clock, random }) =>
      new RemoteClusters({
        clusterName: 'a',
        clusterID: 1,
        maxConnectedClusters: 255,
        source: new FakeDirectory(),
        clock,
        random,
        onReject: () => expect.fail(),
      }),
  ],
])('%s has ended after its run, and not before', async (_name, make) => {
  const clock = new ManualClock();
  const random = (): number => 0.5;
  const backend = new MemoryBackend({ clock, random });
  const duty = make({ backend, clock, random });
  expect(duty.status().state).toBe('waiting');
  const ended = new AbortController();
  const running = duty.run(ended.signal);
  await advance(clock, 60_000);
  expect(duty.status().state).not.toBe('ended');
  ended.abort();
  await running;
  expect(duty.status().state).toBe('ended');
  await backend.close();
});

it('remote clusters notify their readers when an empty directory of configurations has been listed', async () => {
  const clock = new ManualClock();
  const clusters = new RemoteClusters({
    clusterName: 'a',
    clusterID: 1,
    maxConnectedClusters: 255,
    source: new FakeDirectory(),
    clock,
    random: () => 0.5,
    onReject: () => expect.fail(),
  });
  const seen: unknown[] = [];
  clusters.onChange((cluster) => seen.push([cluster, clusters.names]));
  const ended = new AbortController();
  const running = clusters.run(ended.signal);
  await advance(clock, 0);
  expect(seen).toEqual([['', []]]);
  ended.abort();
  await running;
});

it('a remote cluster is gone if it has no file, whatever its name (regression: `constructor` never was)', async () => {
  const clock = new ManualClock();
  const directory = new FakeDirectory();
  for (const name of ['a', 'ca.crt', 'b']) directory.write(name, { kind: 'other' });
  const clusters = new RemoteClusters({
    clusterName: 'a',
    clusterID: 1,
    maxConnectedClusters: 255,
    source: directory,
    clock,
    random: () => 0.5,
    onReject: () => expect.fail(),
  });
  const ended = new AbortController();
  const running = clusters.run(ended.signal);
  expect(clusters.stateOf('constructor')).toBe('incomplete');
  await advance(clock, 0);
  expect(clusters.names).toEqual([]); // waiting for all named clusters does not wait for certificates
  expect(['a', 'b', 'constructor'].map((name) => clusters.stateOf(name))).toEqual([
    'gone',
    'incomplete',
    'gone',
  ]);
  ended.abort();
  await running;
});

it('remote clusters end although the list of the configurations hangs (regression: the operator did not end)', async () => {
  const clock = new ManualClock();
  const source = { list: () => new Promise<never>(() => {}), watch: () => unsubscribeOnce(() => {}) };
  const clusters = new RemoteClusters({
    clusterName: 'a',
    clusterID: 1,
    maxConnectedClusters: 255,
    source,
    clock,
    random: () => 0.5,
    onReject: () => expect.fail(),
  });
  const ended = new AbortController();
  let isOver = false;
  const running = clusters.run(ended.signal).then(() => {
    isOver = true;
  });
  await advance(clock, 1000);
  expect(isOver).toBe(false);
  ended.abort();
  await advance(clock, 1000);
  expect(isOver).toBe(true);
  await running;
});

it('a slice that was deleted between two runs is created again in the second', async () => {
  const clock = new ManualClock();
  const writes: ObjectWrite[] = [];
  const wanted = {
    namespace: 'shop',
    name: 'web-1',
    labels: {},
    owner: { name: 'web', uid: 'u' },
    content: '{"addressType":"IPv4","endpoints":[],"ports":[]}',
    reason: 'a remote cluster has it',
  };
  const duty = new SliceWriter({
    clock,
    random: () => 0.5,
    slices: { objects: new Map(), notReadyReason: () => undefined, follow: () => {}, listen: () => {} },
    source: {
      name: 'slices',
      start: (changed) => changed('shop/web-1'),
      notReadyReason: () => undefined,
      wantedSlice: () => wanted,
      unwantedReason: () => undefined,
      rejected: 0,
    },
    writer: {
      write: async (write) => {
        writes.push(write);
        return { outcome: 'done', object: undefined };
      },
    },
  });
  for (let run = 1; run <= 2; run++) {
    const ended = new AbortController();
    const running = duty.run(ended.signal);
    await advance(clock, 10_000);
    expect(writes.map(({ verb }) => verb)).toEqual(Array.from({ length: run }, () => 'create'));
    ended.abort();
    await running;
  }
});
