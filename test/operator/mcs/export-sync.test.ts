import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { TurnGate } from '../../../src/base/turn-gate.ts';
import { KubernetesClient } from '../../../src/k8s/kubernetes-client.ts';
import { MemoryApiServer } from '../../../src/k8s/memory/memory-api-server.ts';
import { MemoryApiTransport } from '../../../src/k8s/memory/memory-api-transport.ts';
import { CLUSTER_TYPES } from '../../../src/k8s/memory/resource-types.ts';
import { textOfBytes } from '../../../src/kvstore/codec/bytes.ts';
import { syncedKey } from '../../../src/kvstore/codec/keys.ts';
import { MemoryBackend } from '../../../src/kvstore/memory/memory-backend.ts';
import { exportSync } from '../../../src/operator/mcs/export-sync.ts';
import type { McsListener } from '../../../src/operator/mcs/mcs-objects.ts';
import { GlobalNamespaces } from '../../../src/operator/publish/global-namespaces.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { advance, settle } from '../../kvstore/support/settle.ts';
import { EXPORTS, McsCluster, SERVICES } from './support/mcs-world.ts';

const PREFIX = 'cilium/state/serviceexports/v1/cluster1/';

async function newCluster(): Promise<McsCluster> {
  const cluster = new McsCluster('cluster1', 1);
  onTestFinished(() => cluster.stop());
  await cluster.createNamespace();
  cluster.start();
  return cluster;
}

/** The published values by name. */
async function values(cluster: McsCluster): Promise<Readonly<Record<string, unknown>>> {
  await advance(cluster.clock, 5000);
  const found = [...cluster.published(PREFIX)].map(([key, value]): [string, unknown] => [
    key.slice(PREFIX.length),
    JSON.parse(textOfBytes(value) ?? ''),
  ]);
  return Object.fromEntries(found);
}

describe('serviceexports.txtar', () => {
  const ports = (name: string): readonly object[] => [{ name, protocol: 'TCP', port: 80 }];
  const affinity = {
    sessionAffinity: 'ClientIP',
    sessionAffinityConfig: { clientIP: { timeoutSeconds: 42 } },
  };
  const basic = { type: 'ClusterIP', ports: ports('my-port-1'), selector: { name: 'basic' }, ...affinity };
  const headless = { type: 'ClusterIP', clusterIP: 'None', ports: ports('http') };
  const exportedSpec = (annotation: string): object => ({
    exportedAnnotations: { 'my-annotation': annotation },
    exportedLabels: { 'my-label': 'test' },
  });
  const expected = (annotation: string): object => ({
    'shop/basic': {
      cluster: 'cluster1',
      name: 'basic',
      namespace: 'shop',
      annotations: { 'my-annotation': annotation },
      labels: { 'my-label': 'test' },
      exportCreationTimestamp: expect.stringMatching(/^\d{4}-.*Z$/),
      ports: ports('my-port-1'),
      type: 'ClusterSetIP',
      ...affinity,
    },
    'shop/headless': {
      cluster: 'cluster1',
      name: 'headless',
      namespace: 'shop',
      exportCreationTimestamp: expect.stringMatching(/^\d{4}-.*Z$/),
      ports: ports('http'),
      type: 'Headless',
      sessionAffinity: 'None',
    },
  });

  it('exports are written with their changes, and deleted with their ServiceExport or Service', async () => {
    const cluster = await newCluster();
    const [services, exports] = [cluster.userOf(SERVICES), cluster.userOf(EXPORTS)];
    await services.create('basic', { spec: basic });
    await services.create('headless', { spec: headless });
    await services.create('external-name', { spec: { type: 'ExternalName', externalName: 'example.com' } });
    await exports.create('basic', { spec: exportedSpec('foo') });
    await exports.create('headless');
    await exports.create('external-name');
    expect(await values(cluster)).toEqual(expected('foo'));
    await exports.patch('basic', { spec: exportedSpec('bar') });
    expect(await values(cluster)).toEqual(expected('bar'));
    await services.delete('basic');
    await exports.delete('headless');
    expect(await values(cluster)).toEqual({});
    await services.create('basic', { spec: basic });
    await exports.create('headless');
    expect(await values(cluster)).toEqual(expected('bar'));
    expect(cluster.published(syncedKey('cluster1', 'serviceexports')).size).toBe(1);
  });
});

describe('a key of an export', () => {
  it('of an earlier operator is deleted if nothing exports it any more', async () => {
    const cluster = await newCluster();
    await cluster.export('cart');
    expect(Object.keys(await values(cluster))).toEqual(['shop/cart']);
    await cluster.stop();
    await cluster.unexport('cart');
    const actions: string[] = [];
    cluster.start({ onAction: ({ action }) => actions.push(action) });
    expect(await values(cluster)).toEqual({});
    expect(actions).toContain(`delete 1 key of ${PREFIX}`); // regression: 1 keys
  });

  it('without a port that is invalid is written, and the port is counted', async () => {
    const cluster = await newCluster();
    await cluster.export('cart', {
      ports: [
        { port: 80, protocol: 'ICMP' },
        { port: 81, protocol: 'TCP' },
      ],
    });
    expect(await values(cluster)).toMatchObject({ 'shop/cart': { ports: [{ port: 81 }] } });
    const at = 'cilium/state/serviceexports/v1/cluster1/shop/cart: ports[0].protocol';
    expect(cluster.rejected.filter((message) => message.startsWith(at)).length).toBe(1);
  });
});

it('exports and namespaces are read only while a run publishes them, because each election begins a run', async () => {
  const clock = new ManualClock();
  const runtime = { clock, random: () => 0.5 };
  const backend = new MemoryBackend(runtime);
  const source = new KubernetesClient(new MemoryApiTransport(new MemoryApiServer({ clock })), runtime);
  const listeners = new Set<McsListener>();
  const namespaces = new GlobalNamespaces({ ...runtime, source, globalByDefault: true });
  const members = new Set<object>();
  vi.spyOn(namespaces, 'join').mockImplementation((member) => {
    members.add(member);
    return () => void members.delete(member);
  });
  const objects = {
    complete: true,
    objects: () => new Map(),
    listen: (listener: McsListener) => {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
  };
  const producer = exportSync(
    { ...runtime, clusterName: 'a', clusterID: 1, source, backend, namespaces },
    objects,
  );
  for (let run = 0; run < 2; run++) {
    const ended = new AbortController();
    const running = producer.run(ended.signal);
    expect([listeners.size, members.size]).toEqual([1, 1]);
    ended.abort();
    await running;
    expect([listeners.size, members.size]).toEqual([0, 0]);
  }
  await source.close();
  await backend.close();
});

describe('existing exports', () => {
  /** Runs a producer with 1,000 ServiceExports, which a test reads with `get`, and a gate whose turns it starts. */
  function start(get: (name: string) => undefined): {
    readonly turns: (() => void)[];
    readonly state: () => string;
  } {
    const clock = new ManualClock();
    const runtime = { clock, random: () => 0.5 };
    const backend = new MemoryBackend(runtime);
    const source = new KubernetesClient(new MemoryApiTransport(new MemoryApiServer({ clock })), runtime);
    const turns: (() => void)[] = [];
    const gate = new TurnGate({
      clock: { now: () => 0 },
      nextTurn: (turn) => turns.push(turn),
      weightPerTurn: 1,
    });
    const names = new Map(Array.from({ length: 1000 }, (_, at) => [`shop/e${at}`, undefined]));
    vi.spyOn(names, 'get').mockImplementation(get);
    const objects = {
      complete: true,
      objects: () => names as unknown as ReadonlyMap<string, never>,
      listen: () => () => {},
    };
    const options = { ...runtime, clusterName: 'a', clusterID: 1, source, backend, gate };
    const producer = exportSync(options, objects);
    const ended = new AbortController();
    const running = producer.run(ended.signal);
    onTestFinished(async () => {
      ended.abort();
      await running;
      await source.close();
      await backend.close();
    });
    return { turns, state: () => producer.status().state };
  }

  it('are published in steps, and are complete after the last one (regression: all in one turn)', async () => {
    let calls = 0;
    const { turns, state } = start(() => void calls++);
    let reviewed = 0;
    for (; reviewed < 1000 && turns.length > 0; reviewed = calls) {
      expect(calls - reviewed).toBeLessThan(200);
      expect(state()).toBe('waiting');
      turns.shift()?.();
      await settle();
    }
    expect(reviewed).toBe(1000);
    for (; turns.length > 0; await settle()) turns.shift()?.();
    expect(state()).toBe('running');
  });

  it('are not complete if a step throws (regression: complete, so that keys of earlier runs were deleted)', async () => {
    const { turns, state } = start((name) => expect(name).not.toBe('shop/e500') as undefined);
    for (; turns.length > 0; await settle()) turns.shift()?.();
    expect(state()).toBe('waiting');
  });
});

describe('the keys of an earlier operator', () => {
  it('stay while a starting API server does not serve the CRDs yet, and are deleted after a minute', async () => {
    const cluster = await newCluster();
    await cluster.export('cart');
    expect(Object.keys(await values(cluster))).toEqual(['shop/cart']);
    await cluster.stop();
    const types = CLUSTER_TYPES.filter(({ group }) => group === 'multicluster.x-k8s.io');
    for (const type of types) cluster.api.stopServing(type);
    cluster.start();
    await advance(cluster.clock, 30_000);
    expect(Object.keys(await values(cluster))).toEqual(['shop/cart']);
    for (const type of types) cluster.api.serve(type);
    expect(Object.keys(await values(cluster))).toEqual(['shop/cart']);

    await cluster.stop();
    for (const type of types) cluster.api.stopServing(type);
    cluster.start();
    await advance(cluster.clock, 60_000);
    expect(await values(cluster)).toEqual({});
  });
});
