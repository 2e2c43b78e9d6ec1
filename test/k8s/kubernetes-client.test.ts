import { afterEach, describe, expect, it } from 'vitest';
import { systemClock } from '../../src/base/system-clock.ts';
import { fixedCredentials } from '../../src/k8s/client/cluster-access.ts';
import { KubernetesClient } from '../../src/k8s/kubernetes-client.ts';
import { ApiHttpServer } from '../../src/k8s/memory/api-http-server.ts';
import { MemoryApiServer } from '../../src/k8s/memory/memory-api-server.ts';
import { MemoryApiTransport } from '../../src/k8s/memory/memory-api-transport.ts';
import type { ResourceKind } from '../../src/k8s/resource.ts';
import { until } from '../kvstore/support/until.ts';
import { ApiUser } from './support/api-user.ts';
import { RecordingSink } from './support/recording-sink.ts';

const CONFIG_MAPS: ResourceKind = { group: '', version: 'v1', plural: 'configmaps' };

const closing: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
});

async function serve(): Promise<{
  api: MemoryApiServer;
  user: ApiUser;
  client: KubernetesClient;
  http: ApiHttpServer;
}> {
  const api = new MemoryApiServer({ clock: systemClock });
  const http = new ApiHttpServer(api);
  const address = await http.listen();
  closing.push(() => http.close());
  const client = new KubernetesClient({
    server: `http://${address}`,
    ca: undefined,
    serverName: undefined,
    insecureSkipVerify: false,
    credentials: fixedCredentials(undefined, undefined),
  });
  closing.push(() => client.close());
  return { api, http, client, user: new ApiUser(new MemoryApiTransport(api), CONFIG_MAPS, 'default') };
}

describe('a client over HTTP', () => {
  it('lists, and goes on with what happens', async () => {
    const { user, client } = await serve();
    await user.create('before');
    const sink = new RecordingSink();
    const followed = client.follow(CONFIG_MAPS, sink);
    await followed.waitForListed();
    expect([...sink.objects.keys()]).toEqual(['default/before']);
    await user.create('after');
    await user.delete('before');
    await until('both were heard of', () => sink.log.length === 3);
    expect(sink.log).toEqual(['put default/before', 'put default/after', 'delete default/before']);
    expect(followed.status()).toMatchObject({
      state: 'watching',
      listed: true,
      objects: 1,
      events: 3,
      lists: 1,
    });
    expect(sink.breaches).toEqual([]);
  });

  it('says that nobody listens, and finds the server once it does (regression: waited for ever)', async () => {
    const { user, client, http } = await serve();
    await user.create('one');
    const address = new URL(client.status().server);
    await http.close();
    const sink = new RecordingSink();
    const followed = client.follow(CONFIG_MAPS, sink);
    await until('it has failed', () => followed.status().failures > 0);
    expect(followed.status().lastFailure).toMatchObject({
      code: 'unreachable',
      message: expect.stringContaining('ECONNREFUSED'),
    });
    await http.listen({ host: address.hostname, port: Number(address.port) });
    await until('it has listed', () => sink.objects.size === 1);
  });
});
