import { afterAll, beforeAll, expect, it } from 'vitest';
import { KubernetesClient } from '../../src/k8s/kubernetes-client.ts';
import type { ResourceKind } from '../../src/k8s/resource.ts';
import { until } from '../base/support/until.ts';
import { ApiUser } from '../k8s/support/api-user.ts';
import { RecordingSink } from '../k8s/support/recording-sink.ts';
import { RealApiServer } from './support/real-apiserver.ts';

const CONFIG_MAPS: ResourceKind = { group: '', version: 'v1', plural: 'configmaps' };

let server: RealApiServer;
beforeAll(async () => {
  server = await RealApiServer.start();
});
afterAll(() => server.close());

it('a stopped server is detected within a minute, and followed again when it runs', async () => {
  const user = new ApiUser(server.transport, CONFIG_MAPS, 'default');
  const client = new KubernetesClient(server.access, { random: () => 0 });
  const sink = new RecordingSink();
  const followed = client.follow(CONFIG_MAPS, sink);
  await until(
    'it is there',
    async () => (await user.ask({ path: '/api/v1/namespaces/default' })).status === 200,
  );
  await followed.waitForListed({ quietMs: 20_000 });
  await user.create('before');
  const last = await user.create('last');
  await until('both are seen', () => sink.versions.get('default/last') === last.metadata.resourceVersion);
  process.kill(server.pid, 'SIGSTOP');
  await until('it is found dead', () => client.status().resets > 0);
  await until('it is missed', () => followed.status().state === 'waiting');
  expect([...sink.objects.keys()]).toContain('default/before');
  process.kill(server.pid, 'SIGCONT');
  await user.delete('before');
  await user.create('after');
  await until('it goes on', () => sink.objects.has('default/after') && !sink.objects.has('default/before'));
  expect(sink.breaches).toEqual([]);
  // The server has proved that its history is unbroken, so nothing was listed.
  expect(followed.status()).toMatchObject({ state: 'watching', lists: 1 });
  await client.close();
});
