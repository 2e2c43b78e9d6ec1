import { expect, it } from 'vitest';
import { KubernetesClient } from '../../../src/k8s/kubernetes-client.ts';
import { MemoryApiServer } from '../../../src/k8s/memory/memory-api-server.ts';
import { MemoryApiTransport } from '../../../src/k8s/memory/memory-api-transport.ts';
import { MemoryBackend } from '../../../src/kvstore/memory/memory-backend.ts';
import { ServiceObjects } from '../../../src/operator/publish/service-objects.ts';
import { serviceSync } from '../../../src/operator/publish/service-sync.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { ApiUser } from '../../k8s/support/api-user.ts';
import { advance, settle } from '../../kvstore/support/settle.ts';

const SLICES = 100;
const PER_SLICE = 30;
const NAMES = { namespace: 'n', name: 's' };

const contentOf = (slice: number, version: number): object => ({
  addressType: 'IPv4',
  endpoints: Array.from({ length: PER_SLICE }, (_, at) => ({
    addresses: [`10.${version}.${slice}.${at}`],
    conditions: { ready: true },
  })),
  ports: [{ name: 'http', port: 8080, protocol: 'TCP' }],
});

it('a service of 3000 backends is written once a pause, not after each change of a slice, and completely before the canary (regression: each change encoded and wrote the whole value)', async () => {
  const clock = new ManualClock();
  const runtime = { clock, random: () => 0.5 };
  const transport = new MemoryApiTransport(new MemoryApiServer({ clock }));
  const users = {
    services: new ApiUser(transport, { group: '', version: 'v1', plural: 'services' }, NAMES.namespace),
    slices: new ApiUser(
      transport,
      { group: 'discovery.k8s.io', version: 'v1', plural: 'endpointslices' },
      NAMES.namespace,
    ),
  };
  const annotations = { 'service.cilium.io/global': 'true' };
  const ports = [{ name: 'http', port: 80, protocol: 'TCP' }];
  await users.services.create('s', { spec: { clusterIP: '172.16.0.1', ports } }, { annotations });
  const labels = { 'kubernetes.io/service-name': 's' };
  for (let slice = 0; slice < SLICES; slice++)
    await users.slices.create(`s-${slice}`, contentOf(slice, 0), { labels });
  const source = new KubernetesClient(transport, runtime);
  const backend = new MemoryBackend(runtime);
  const options = { ...runtime, source, backend, clusterName: 'a', clusterID: 1 };
  const objects = new ServiceObjects({ ...options, selection: {}, producers: 1 });
  const producer = serviceSync(options, objects);
  const stop = new AbortController();
  const ended = producer.run(stop.signal);
  const text = async (): Promise<string> => {
    const [found] = await backend.listPrefix('cilium/state/services/');
    return new TextDecoder().decode(found?.value);
  };
  const canaries = async (): Promise<number> => (await backend.listPrefix('cilium/synced/')).length;
  await settle(100);
  for (let turn = 0; (await canaries()) === 0 && turn < 100; turn++) await advance(clock, 10);
  expect((await text()).match(/"10\./g)?.length).toBe(SLICES * PER_SLICE);
  await advance(clock, 10_000);
  const before = producer.status().published?.writes ?? 0;
  for (let slice = 0; slice < 20; slice++) {
    await users.slices.patch(`s-${slice}`, contentOf(slice, 1));
    await advance(clock, 5);
  }
  await advance(clock, 1000);
  expect((producer.status().published?.writes ?? 0) - before).toBeLessThanOrEqual(3);
  expect((await text()).match(/"10\.1\./g)?.length).toBe(20 * PER_SLICE);
  await users.services.delete('s');
  await advance(clock, 5);
  expect(await text()).toBe('');
  stop.abort();
  await ended;
  await source.close();
  await backend.close();
  expect(clock.pending).toBe(0);
});
