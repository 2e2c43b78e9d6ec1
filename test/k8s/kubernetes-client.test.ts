import { afterEach, describe, expect, it } from 'vitest';
import { systemClock } from '../../src/base/system-clock.ts';
import { KubernetesClient } from '../../src/k8s/kubernetes-client.ts';
import { ApiHttpServer } from '../../src/k8s/memory/api-http-server.ts';
import { MemoryApiServer } from '../../src/k8s/memory/memory-api-server.ts';
import { MemoryApiTransport } from '../../src/k8s/memory/memory-api-transport.ts';
import type { ResourceKind } from '../../src/k8s/resource.ts';
import { fixedCredentials } from '../../src/k8s/rest/cluster-access.ts';
import { freePort } from '../base/support/free-port.ts';
import { until } from '../base/support/until.ts';
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
  const address = await http.listen({ host: '127.0.0.1', port: await freePort() });
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
  it('lists, and continues with the changes', async () => {
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

  it('reads answers in single bytes, compressed or not, and continues after an interruption', async () => {
    const { api, user, client } = await serve();
    for (let i = 0; i < 20; i++) await user.create(`map-${i}`, { data: { text: `ä${i}` } });
    const isWatch = ({ path }: { readonly path: string }): boolean => path.includes('watch=');
    api.faults.inject({ do: 'cut', afterBytes: 1000 }, { matches: (request) => !isWatch(request) });
    api.faults.inject({ do: 'pieces', bytes: 1 }, { times: 2 });
    const sink = new RecordingSink();
    const followed = client.follow(CONFIG_MAPS, sink);
    await followed.waitForListed();
    expect(followed.status()).toMatchObject({ failures: 1, lists: 1, objects: 20 });
    await until('it watches', () => followed.status().state === 'watching');
    await user.create('late', { data: { text: 'ö' } });
    await until('all are there', () => sink.objects.size === 21);
    expect(sink.objects.get('default/late')?.['data']).toEqual({ text: 'ö' });
    expect(sink.breaches).toEqual([]);
  });

  it('leaves no connection open', async () => {
    const { client, http } = await serve();
    for (const plural of ['configmaps', 'pods', 'nodes'])
      client.follow({ ...CONFIG_MAPS, plural }, new RecordingSink());
    await until('all watch', () => client.status().resources.every(({ state }) => state === 'watching'));
    expect(http.connections).toBeGreaterThanOrEqual(3);
    await client.close();
    await until('all are closed', () => http.connections === 0);
    expect(client.status().resources).toEqual([]);
  });

  it('reports that no server listens, and finds the server when it does (regression: waited for ever)', async () => {
    const { user, client, http } = await serve();
    await user.create('one');
    const address = new URL(client.status().server);
    await http.close();
    const sink = new RecordingSink();
    const followed = client.follow(CONFIG_MAPS, sink);
    await until('it has failed', () => followed.status().failures > 0);
    expect(followed.status().lastFailure).toMatchObject({
      code: 'unreachable',
      message: expect.stringContaining('connection refused'),
    });
    await http.listen({ host: address.hostname, port: Number(address.port) });
    await until('it has listed', () => sink.objects.size === 1);
  });
});
