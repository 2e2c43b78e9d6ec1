import { Map as ImmutableMap } from 'immutable';
import { expect, it, onTestFinished, vi } from 'vitest';
import { TurnGate } from '../../../src/base/turn-gate.ts';
import { KubernetesClient } from '../../../src/k8s/kubernetes-client.ts';
import { MemoryApiServer } from '../../../src/k8s/memory/memory-api-server.ts';
import { MemoryApiTransport } from '../../../src/k8s/memory/memory-api-transport.ts';
import * as clusterService from '../../../src/kvstore/codec/cluster-service.ts';
import { MemoryBackend } from '../../../src/kvstore/memory/memory-backend.ts';
import type { Producer } from '../../../src/operator/publish/producer.ts';
import { ServiceObjects } from '../../../src/operator/publish/service-objects.ts';
import { serviceSync } from '../../../src/operator/publish/service-sync.ts';
import { serviceValue } from '../../../src/operator/publish/service-value.ts';
import { createBackend, createEndpointSlice } from '../../../src/servicecache/backend.ts';
import { createService } from '../../../src/servicecache/service.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { ApiUser } from '../../k8s/support/api-user.ts';
import { advance, settle } from '../../kvstore/support/settle.ts';

const SLICES = 100;
const PER_SLICE = 30;
const NAMES = { namespace: 'n', name: 's' };
const HTTP = [{ name: 'http', port: 8080, protocol: 'TCP' }];

const contentOf = (slice: number, version: number, ports: readonly object[] = HTTP): object => ({
  addressType: 'IPv4',
  endpoints: Array.from({ length: PER_SLICE }, (_, at) => ({
    addresses: [`10.${version}.${slice}.${at}`],
    conditions: { ready: true },
  })),
  ports,
});

interface World {
  readonly clock: ManualClock;
  readonly services: ApiUser;
  readonly slices: ApiUser;
  readonly producer: Producer;
  /** Returns the value of the service; empty if it has no key. */
  readonly text: () => Promise<string>;
  readonly stop: () => Promise<void>;
}

/** Publishes global services `s`, `s1`, …, each with these slices, and waits for the canary. */
async function publish(
  slices: readonly object[],
  { names = ['s'], gate }: { readonly names?: readonly string[]; readonly gate?: TurnGate } = {},
): Promise<World> {
  const clock = new ManualClock();
  const runtime = { clock, random: () => 0.5 };
  const transport = new MemoryApiTransport(new MemoryApiServer({ clock }));
  const user = (group: string, plural: string): ApiUser =>
    new ApiUser(transport, { group, version: 'v1', plural }, NAMES.namespace);
  const users = { services: user('', 'services'), slices: user('discovery.k8s.io', 'endpointslices') };
  const annotations = { 'service.cilium.io/global': 'true' };
  const ports = [{ name: 'http', port: 80, protocol: 'TCP' }];
  for (const name of names) {
    await users.services.create(name, { spec: { clusterIP: '172.16.0.1', ports } }, { annotations });
    const labels = { 'kubernetes.io/service-name': name };
    for (const [index, slice] of slices.entries())
      await users.slices.create(`${name}-${index}`, slice, { labels });
  }
  const source = new KubernetesClient(transport, runtime);
  const backend = new MemoryBackend(runtime);
  const options = { ...runtime, source, backend, clusterName: 'a', clusterID: 1, gate };
  const objects = new ServiceObjects({ ...options, selection: {}, producers: 1 });
  const producer = serviceSync(options, objects);
  const end = new AbortController();
  const ended = producer.run(end.signal);
  const text = async (): Promise<string> => {
    const [found] = await backend.listPrefix('cilium/state/services/');
    return new TextDecoder().decode(found?.value);
  };
  const canaries = async (): Promise<number> => (await backend.listPrefix('cilium/synced/')).length;
  await settle(100);
  for (let turn = 0; (await canaries()) === 0 && turn < 100; turn++) await advance(clock, 10);
  const stop = async (): Promise<void> => {
    end.abort();
    await ended;
    await source.close();
    await backend.close();
    expect(clock.pending).toBe(0);
  };
  return { clock, ...users, producer, text, stop };
}

it('a service of 3000 backends is written once a pause, not after each change of a slice, and completely before the canary (regression: each change encoded and wrote the whole value)', async () => {
  const { clock, services, slices, producer, text, stop } = await publish(
    Array.from({ length: SLICES }, (_, slice) => contentOf(slice, 0)),
  );
  expect((await text()).match(/"10\./g)?.length).toBe(SLICES * PER_SLICE);
  await advance(clock, 10_000);
  const before = producer.status().published?.writes ?? 0;
  for (let slice = 0; slice < 20; slice++) {
    await slices.patch(`s-${slice}`, contentOf(slice, 1));
    await advance(clock, 5);
  }
  await advance(clock, 1000);
  expect((producer.status().published?.writes ?? 0) - before).toBeLessThanOrEqual(3);
  expect((await text()).match(/"10\.1\./g)?.length).toBe(20 * PER_SLICE);
  await services.delete('s');
  await advance(clock, 5);
  expect(await text()).toBe('');
  await stop();
});

it('large services whose pauses end together are encoded one per step (regression: up to 256 values of 1 MB in one turn)', async () => {
  let turn = 0;
  const nextTurn = (callback: () => void): unknown =>
    setImmediate(() => {
      turn++;
      callback();
    });
  const gate = new TurnGate({ clock: { now: () => 0 }, nextTurn, weightPerTurn: 1 });
  const names = ['s', 's1', 's2', 's3'];
  const world = await publish(
    Array.from({ length: 60 }, (_, slice) => contentOf(slice, 0)),
    { names, gate },
  );
  const change = async (version: number): Promise<void> => {
    for (const name of names) await world.slices.patch(`${name}-0`, contentOf(0, version));
    await settle(100);
  };
  await advance(world.clock, 10_000);
  await change(1); // written at once, which begins the pauses
  await change(2);
  const { encodeClusterService } = clusterService;
  const turns: number[] = [];
  const encode = vi.spyOn(clusterService, 'encodeClusterService').mockImplementation((...value) => {
    turns.push(turn);
    return encodeClusterService(...value);
  });
  onTestFinished(() => encode.mockRestore());
  world.clock.advance(10_000);
  await settle(100);
  expect(turns).toHaveLength(names.length);
  expect(new Set(turns).size).toBe(names.length);
  await world.stop();
});

it('a service that changes while it waits for its step is encoded once (regression: again after another pause)', async () => {
  const nextTurn = (callback: () => void): unknown => setImmediate(callback);
  const gate = new TurnGate({ clock: { now: () => 0 }, nextTurn, weightPerTurn: 1 });
  const names = Array.from({ length: 12 }, (_, at) => `s${at}`);
  const world = await publish(
    Array.from({ length: 60 }, (_, slice) => contentOf(slice, 0)),
    { names, gate },
  );
  await advance(world.clock, 10_000);
  for (const version of [1, 2]) {
    for (const name of names) await world.slices.patch(`${name}-0`, contentOf(0, version));
    await settle(200);
  }
  const encode = vi.spyOn(clusterService, 'encodeClusterService');
  onTestFinished(() => encode.mockRestore());
  world.clock.advance(10_000);
  await world.slices.patch('s11-0', contentOf(0, 3));
  await settle(200);
  world.clock.advance(10_000);
  await settle(200);
  expect(encode.mock.calls.map(([{ name }]) => name).toSorted()).toEqual(names.toSorted());
  await world.stop();
});

it('a value above the limit is not encoded (regression: encoded completely, 1 s for 100,000 backends, and then rejected)', async () => {
  const encode = vi.spyOn(clusterService, 'encodeClusterService');
  onTestFinished(() => encode.mockRestore());
  const ports = Array.from({ length: 100 }, (_, at) => ({ ...HTTP[0], name: `p${at}`, port: 8000 + at }));
  const slices = Array.from({ length: 20 }, (_, slice) => contentOf(slice, 0, ports));
  const world = await publish(slices);
  expect(world.producer.status().published).toMatchObject({ synced: true, keys: 0 });
  expect(world.producer.status().published?.rejected).toBeGreaterThan(0);
  encode.mockClear();
  await world.slices.patch('s-0', contentOf(0, 1, ports));
  await advance(world.clock, 10_000);
  expect(encode).not.toHaveBeenCalled();
  for (let slice = 5; slice < 20; slice++) await world.slices.delete(`s-${slice}`);
  await advance(world.clock, 10_000);
  expect((await world.text()).match(/"10\./g)?.length).toBe(5 * PER_SLICE);
  await world.stop();
});

it('a value reads the ports that the backends of a slice share once (regression: for each backend)', () => {
  let reads = 0;
  const http = {
    get port() {
      reads++;
      return 8080;
    },
    protocol: 6,
  };
  const ports = ImmutableMap({ http });
  const backends = Array.from({ length: 1000 }, (_, at) =>
    createBackend({ address: `10.0.${at >> 8}.${at & 255}`, ports }),
  );
  const service = createService({ id: NAMES, addressing: 'headless', global: true, shared: true });
  const slice = createEndpointSlice({ service: NAMES, name: 's-1', backends });
  reads = 0;
  const value = serviceValue(service, slice.backends, { clusterName: 'a', clusterID: 1 }, '1.17');
  const text = new TextDecoder().decode(value);
  expect(text.match(/"10[.]0[.]\d+[.]\d+":{"http":{"Protocol":"TCP","Port":8080}}/g)).toHaveLength(1000);
  expect(reads).toBe(1);
});
