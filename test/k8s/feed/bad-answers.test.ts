import { afterEach, expect, it } from 'vitest';
import { KubernetesFeed } from '../../../src/k8s/feed/kubernetes-feed.ts';
import { KubernetesClient } from '../../../src/k8s/kubernetes-client.ts';
import type { ApiFault } from '../../../src/k8s/memory/faults.ts';
import { MemoryApiServer } from '../../../src/k8s/memory/memory-api-server.ts';
import { MemoryApiTransport } from '../../../src/k8s/memory/memory-api-transport.ts';
import { ServiceCache } from '../../../src/servicecache/service-cache.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { advance, settle } from '../../kvstore/support/settle.ts';
import { ApiUser } from '../support/api-user.ts';
import { service } from './support/objects.ts';

const CHECKOUT = { namespace: 'shop', name: 'checkout' };

let ends: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0)) await end();
});

/** Runs a feed of an API server that gives this answer to each request for which `asked` returns true. */
async function follow(
  asked: string,
  fault: ApiFault,
): Promise<{
  readonly api: MemoryApiServer;
  readonly feed: KubernetesFeed;
  readonly clock: ManualClock;
  readonly services: ServiceCache;
}> {
  const clock = new ManualClock();
  const api = new MemoryApiServer({ clock });
  const transport = new MemoryApiTransport(api);
  const { metadata, ...content } = service('checkout');
  const servicesOfShop = { group: '', version: 'v1', plural: 'services' };
  await new ApiUser(transport, servicesOfShop, 'shop').create(metadata.name, content);
  const identities = { group: 'cilium.io', version: 'v2', plural: 'ciliumidentities' };
  await new ApiUser(transport, identities).create('1001', { 'security-labels': { 'k8s:app': 'web' } });
  api.faults.inject(fault, { matches: ({ path }) => path.startsWith(asked), times: 1_000 });
  const client = new KubernetesClient(transport, { clock, random: () => 0.5 });
  const services = new ServiceCache({ clusterName: 'atlantic' });
  services.markSynced();
  const names = { clusterName: 'atlantic', nodeName: 'n1', random: () => 0.5 };
  const feed = new KubernetesFeed({ source: client, clock, services, ...names });
  ends = [() => feed.stop(), () => client.close()];
  feed.start();
  await settle();
  return { api, feed, clock, services };
}

const answer = (body: string): ApiFault => ({ do: 'answer', status: 200, body });
const ITEM =
  '{"metadata":{"name":"checkout","namespace":"shop","uid":"u","resourceVersion":"7"},"spec":{"clusterIP":"10.96.0.7","sessionAffinity":7,"ports":[{"port":80}]}}';

it.each<[string, ApiFault, RegExp]>([
  ['HTML', answer('<html><body>Please log in</body></html>'), /services are not complete \(\w+\): .*<html>/],
  [
    'half a JSON',
    answer(`{"kind":"ServiceList","metadata":{"resourceVersion":"9"},"items":[${ITEM.slice(0, 40)}`),
    /services are not complete \(\w+\): .+/,
  ],
  [
    'something that is no list',
    answer('{"kind":"Table","rows":[]}'),
    /services are not complete \(\w+\): .+/,
  ],
  ['a number', answer('7'), /services are not complete \(\w+\): .+/],
  ['nothing', { do: 'hang' }, /services are not complete \(\w+\): .*no data/],
  ['nothing at all', answer(''), /services are not complete \(\w+\): .+/],
])(
  'an API server that answers %s is reported with its answer; the other kinds continue, and this one after a valid answer',
  async (_, fault, why) => {
    const { api, feed, clock, services } = await follow('/api/v1/services', fault);
    await advance(clock, 120_000);
    expect(feed.blockers()).toEqual([expect.stringMatching(why)]);
    expect(feed.progressOf('services')?.failures).toBeGreaterThan(0);
    expect(feed.identities.size).toBe(1);
    expect(services.get(CHECKOUT)).toBeUndefined();
    api.faults.clear();
    await advance(clock, 120_000);
    expect(feed.blockers()).toEqual([]);
    expect(services.get(CHECKOUT)).toBeDefined();
  },
);

it('an API server with an unusable answer to discovery is reported, and does not block', async () => {
  const { api, feed, clock } = await follow('/apis/discovery', answer('<html>'));
  await advance(clock, 60_000);
  expect(feed.blockers()).toEqual([
    expect.stringMatching(
      /^Kubernetes: endpointslices are not complete \(listing\): .*not a list of resources: <html>/,
    ),
  ]);
  expect(feed.progressOf('endpointslices')?.failures).toBeGreaterThan(3);
  api.faults.clear();
  await advance(clock, 60_000);
  expect(feed.blockers()).toEqual([]);
  expect(feed.progressOf('endpointslices')?.failures).toBe(0);
});

it('objects of another version are read as far as their fields are known', async () => {
  const list = `{"kind":"ServiceList","apiVersion":"v9","metadata":{"resourceVersion":"9"},"items":[${ITEM},{"metadata":{}},7]}`;
  const { feed, clock, services } = await follow('/api/v1/services?', answer(list));
  await advance(clock, 1_000);
  expect(services.get(CHECKOUT)).toBeDefined();
  expect(feed.status().rejections.recent.map(({ field }) => field)).toEqual(['spec.sessionAffinity']);
});
