import { afterEach, describe, expect, it } from 'vitest';
import { mirroredName } from '../../../src/operator/mirrored-slices/slice-content.ts';
import type { ApiUser } from '../../k8s/support/api-user.ts';
import { settle } from '../../kvstore/support/settle.ts';
import { mostPerSecond, remote, SELECTED, SliceWorld } from './support/slice-world.ts';

let world: SliceWorld;

async function newWorld(...clusters: readonly string[]): Promise<SliceWorld> {
  world = new SliceWorld();
  world.start();
  for (const cluster of clusters) world.clusters.set(cluster, 'complete');
  await world.settle();
  return world;
}

afterEach(() => world.stop());

describe('slices of remote backends', () => {
  it('writes one local slice for a remote slice, with labels, owner, conditions, zone, hints and hostname, without the node', async () => {
    const { clusters, services } = await newWorld('baltic');
    await world.putService('checkout');
    const endpoint = {
      addresses: ['10.2.0.10'],
      conditions: { ready: false, serving: true, terminating: true },
      hostname: 'checkout-0',
      nodeName: 'node-1',
      zone: 'eu-1a',
      forZones: ['eu-1a', 'eu-1b'],
      deprecatedTopology: new Map(),
    };
    const old = { ...endpoint, addresses: ['10.2.0.11'], hostname: undefined, zone: undefined, forZones: [] };
    const topology = new Map([['topology.kubernetes.io/zone', 'eu-1c']]);
    clusters.sink?.mergeExternalSliceUpdate(
      remote('baltic', 'checkout', 'checkout-abc', [], {
        endpoints: [endpoint, { ...old, deprecatedTopology: topology }],
      }),
    );
    await world.pass(2000);
    const { body } = await services.ask({ path: services.path('checkout') });
    const { uid } = (body as { readonly metadata: { readonly uid: string } }).metadata;
    const [slice, ...others] = await world.slices();
    expect(others).toEqual([]);
    // SHA-256 of `baltic/checkout-abc`.
    expect(slice?.metadata.name).toBe('checkout-2b96251788d959cd7a60ddf9');
    expect(slice?.metadata.labels).toEqual({
      'kubernetes.io/service-name': 'checkout',
      'multicluster.kubernetes.io/source-cluster': 'baltic',
      'endpointslice.kubernetes.io/managed-by': 'endpointslice-mesh-controller.cilium.io',
    });
    expect(slice?.metadata.ownerReferences).toEqual([
      { apiVersion: 'v1', kind: 'Service', name: 'checkout', uid },
    ]);
    const { addressType, endpoints, ports } = slice ?? {};
    expect({ addressType, endpoints, ports }).toEqual({
      addressType: 'IPv4',
      endpoints: [
        {
          addresses: ['10.2.0.10'],
          conditions: { ready: false, serving: true, terminating: true },
          hostname: 'checkout-0',
          zone: 'eu-1a',
          hints: { forZones: [{ name: 'eu-1a' }, { name: 'eu-1b' }] },
        },
        {
          addresses: ['10.2.0.11'],
          conditions: { ready: false, serving: true, terminating: true },
          zone: 'eu-1c',
        },
      ],
      ports: [{ name: 'http', port: 8080, protocol: 'TCP' }],
    });
    expect(world.writes.map(({ method }) => method)).toEqual(['POST']);
  });

  it.each([
    ['global and selected', SELECTED, '10.96.0.1', true],
    [
      'selected in capitals',
      { ...SELECTED, 'service.cilium.io/global-sync-endpoint-slices': 'True' },
      '10.96.0.1',
      true,
    ],
    ['global', { 'service.cilium.io/global': 'true' }, '10.96.0.1', false],
    [
      'selected, but not global',
      { 'service.cilium.io/global-sync-endpoint-slices': 'true' },
      '10.96.0.1',
      false,
    ],
    ['headless and global', { 'service.cilium.io/global': 'true' }, 'None', true],
    [
      'headless, global and not selected',
      { ...SELECTED, 'service.cilium.io/global-sync-endpoint-slices': 'false' },
      'None',
      false,
    ],
    [
      // Cilium: doesServiceSyncEndpointSlice of pkg/clustermesh/endpointslicesync (regression: only `false` deselected)
      'headless and global, with another word',
      { ...SELECTED, 'service.cilium.io/global-sync-endpoint-slices': 'no' },
      'None',
      false,
    ],
    [
      'headless and selected',
      { ...SELECTED, 'service.cilium.io/global-sync-endpoint-slices': 'TRUE' },
      'None',
      true,
    ],
    ['headless', {}, 'None', false],
  ])('a service that is %s', async (_name, annotations, clusterIP, hasSlices) => {
    const { clusters } = await newWorld('baltic');
    clusters.sink?.mergeExternalSliceUpdate(remote('baltic', 'db', 'db-1', ['10.2.0.1']));
    await world.putService('db', annotations, { clusterIP });
    await world.pass(2000);
    const slices = await world.slices();
    expect(slices.length).toBe(hasSlices ? 1 : 0);
    const isMarked = slices[0]?.metadata.labels?.['service.kubernetes.io/headless'] === '';
    expect(isMarked).toBe(hasSlices && clusterIP === 'None');
  });

  it('have the labels of their service (regression: CoreDNS did not find slices of derived Services without them)', async () => {
    const { clusters, services } = await newWorld('baltic');
    clusters.sink?.mergeExternalSliceUpdate(remote('baltic', 'db', 'db-1', ['10.2.0.1']));
    await world.putService('db');
    const written = {
      'kubernetes.io/service-name': 'db',
      'multicluster.kubernetes.io/source-cluster': 'baltic',
      'endpointslice.kubernetes.io/managed-by': 'endpointslice-mesh-controller.cilium.io',
    };
    for (const origin of ['exported-db', 'other-db']) {
      const labels = { 'multicluster.kubernetes.io/service-name': origin };
      const reserved = {
        'kubernetes.io/service-name': 'other',
        'multicluster.kubernetes.io/source-cluster': 'other',
        'endpointslice.kubernetes.io/managed-by': 'other',
        'service.kubernetes.io/headless': '',
      };
      await services.patch('db', { metadata: { labels: { ...labels, ...reserved } } });
      await world.pass(2000);
      expect((await world.slices()).map(({ metadata }) => metadata.labels)).toEqual([
        { ...labels, ...written },
      ]);
    }
  });

  it('follows changes of the annotations, and of the remote slice', async () => {
    const { clusters } = await newWorld('baltic');
    const name = mirroredName('db', 'baltic', 'db-1');
    clusters.sink?.mergeExternalSliceUpdate(remote('baltic', 'db', 'db-1', ['10.2.0.1']));
    await world.putService('db');
    await world.pass(2000);
    expect(await world.addresses()).toEqual({ [name]: '10.2.0.1' });
    clusters.sink?.mergeExternalSliceUpdate(remote('baltic', 'db', 'db-1', ['10.2.0.1', '10.2.0.2']));
    await world.pass(2000);
    expect(await world.addresses()).toEqual({ [name]: '10.2.0.1 10.2.0.2' });
    await world.putService('db', {});
    await world.pass(2000);
    expect(await world.addresses()).toEqual({});
    await world.putService('db');
    await world.pass(2000);
    expect(await world.addresses()).toEqual({ [name]: '10.2.0.1 10.2.0.2' });
    clusters.sink?.mergeExternalSliceDelete({
      cluster: 'baltic',
      id: { namespace: 'shop', name: 'db' },
      name: 'db-1',
    });
    await world.pass(2000);
    expect(await world.addresses()).toEqual({});
  });

  it('writes only families of the service, and no IPv4-mapped address', async () => {
    const { clusters } = await newWorld('baltic');
    await world.putService('db', SELECTED, { ipFamilies: ['IPv6'] });
    clusters.sink?.mergeExternalSliceUpdate(remote('baltic', 'db', 'db-1', ['10.2.0.1']));
    clusters.sink?.mergeExternalSliceUpdate(
      remote('baltic', 'db', 'db-2', ['fd00::1', '10.9.9.9'], { addressType: 'IPv6' }),
    );
    await world.pass(2000);
    expect(await world.addresses()).toEqual({ [mirroredName('db', 'baltic', 'db-2')]: 'fd00::1' });
  });

  it('writes only the families of the import of a derived Service, which itself has all families of the cluster', async () => {
    const { clusters } = await newWorld('baltic');
    const annotations = { ...SELECTED, 'clustermesh.cilium.io/supported-ip-families': 'IPv6' };
    await world.putService('db', annotations, { ipFamilies: ['IPv4', 'IPv6'] });
    clusters.sink?.mergeExternalSliceUpdate(remote('baltic', 'db', 'db-1', ['10.2.0.1']));
    const other = remote('baltic', 'db', 'db-2', ['fd00::1'], { addressType: 'IPv6' });
    clusters.sink?.mergeExternalSliceUpdate(other);
    await world.pass(2000);
    expect(await world.addresses()).toEqual({ [mirroredName('db', 'baltic', 'db-2')]: 'fd00::1' });
  });

  it('splits a remote slice with more endpoints than a slice may have', async () => {
    world = new SliceWorld();
    world.start({ endpointsPerSlice: 2 });
    world.clusters.set('baltic', 'complete');
    await world.putService('db');
    const name = mirroredName('db', 'baltic', 'db-1');
    world.clusters.sink?.mergeExternalSliceUpdate(
      remote('baltic', 'db', 'db-1', ['10.2.0.1', '10.2.0.2', '10.2.0.3', '10.2.0.4', '10.2.0.5']),
    );
    await world.pass(2000);
    const split = {
      [name]: '10.2.0.1 10.2.0.2',
      [`${name}-1`]: '10.2.0.3 10.2.0.4',
      [`${name}-2`]: '10.2.0.5',
    };
    expect(await world.addresses()).toEqual(split);
    world.clusters.sink?.mergeExternalSliceUpdate(remote('baltic', 'db', 'db-1', []));
    await world.pass(2000);
    expect(await world.addresses()).toEqual({ [name]: '' });
  });

  it('leaves slices of other programs alone, even with its label or name', async () => {
    world = new SliceWorld();
    const name = mirroredName('db', 'baltic', 'db-1');
    const labels = { 'endpointslice.kubernetes.io/managed-by': 'endpointslice-mesh-controller.cilium.io' };
    await world.slicesUser.create('theirs', { addressType: 'IPv4', endpoints: [] }, { labels });
    await world.slicesUser.create(name, { addressType: 'IPv4', endpoints: [] });
    world.start();
    world.clusters.set('baltic', 'complete');
    await world.putService('db');
    world.clusters.sink?.mergeExternalSliceUpdate(remote('baltic', 'db', 'db-1', ['10.2.0.1']));
    await world.pass(5000);
    expect(await world.addresses()).toEqual({ [name]: '', theirs: '' });
    expect(world.failures.join()).toContain(`endpointslices "${name}" already exists`);
    await world.slicesUser.delete(name);
    await world.pass(200_000);
    expect(await world.addresses()).toEqual({ [name]: '10.2.0.1', theirs: '' });
    expect(world.duty?.status().published?.synced).toBe(true);
  });

  it.each([
    ['deletes', (user: ApiUser, name: string) => user.delete(name)],
    ['changes', (user: ApiUser, name: string) => user.patch(name, { endpoints: [] })],
  ] as const)(
    'repairs a slice that somebody %s before the answer of its write arrives (regression: it stayed so)',
    async (_, change) => {
      const { clusters } = await newWorld('baltic');
      clusters.sink?.mergeExternalSliceUpdate(remote('baltic', 'db', 'db-1', ['10.2.0.1']));
      world.onWritten = async (slice) => {
        world.onWritten = () => Promise.resolve();
        await change(world.slicesUser, slice);
        await world.settle();
      };
      await world.putService('db');
      await world.pass(1000);
      await settle(20); // the clock must not advance before the answer
      await world.pass(5000);
      expect(await world.addresses()).toEqual({ [mirroredName('db', 'baltic', 'db-1')]: '10.2.0.1' });
      expect([world.writes.length, world.failures]).toEqual([2, []]);
    },
  );

  it('creates a slice again that was deleted before a list, without an event (regression: it stayed deleted)', async () => {
    const { clusters } = await newWorld('baltic');
    const name = mirroredName('db', 'baltic', 'db-1');
    clusters.sink?.mergeExternalSliceUpdate(remote('baltic', 'db', 'db-1', ['10.2.0.1']));
    await world.pass(3000);
    const isWatch = ({ path }: { readonly path: string }): boolean => /slices.*watch/.test(path);
    world.api.faults.inject({ do: 'hang' }, { matches: isWatch, times: 3 });
    world.api.endWatches();
    await world.pass(100);
    await world.putService('db');
    await world.pass(2000);
    expect(world.writes.map(({ method }) => method)).toEqual(['POST']);
    await world.slicesUser.delete(name);
    world.api.compact();
    world.api.endWatches();
    await world.pass(120_000);
    expect(await world.addresses()).toEqual({ [name]: '10.2.0.1' });
  });

  it('repairs a slice that somebody has changed or deleted', async () => {
    const { clusters } = await newWorld('baltic');
    const name = mirroredName('db', 'baltic', 'db-1');
    await world.putService('db');
    clusters.sink?.mergeExternalSliceUpdate(remote('baltic', 'db', 'db-1', ['10.2.0.1']));
    await world.pass(2000);
    await world.slicesUser.patch(name, { endpoints: [] });
    await world.pass(2000);
    expect(await world.addresses()).toEqual({ [name]: '10.2.0.1' });
    await world.slicesUser.delete(name);
    await world.pass(2000);
    expect(await world.addresses()).toEqual({ [name]: '10.2.0.1' });
  });

  it('keeps annotations and finalizers of other clients when it updates a slice (regression: removed by each update)', async () => {
    const { clusters } = await newWorld('baltic');
    const name = mirroredName('db', 'baltic', 'db-1');
    await world.putService('db');
    clusters.sink?.mergeExternalSliceUpdate(remote('baltic', 'db', 'db-1', ['10.2.0.1']));
    await world.pass(2000);
    const others = { annotations: { note: 'x' }, finalizers: ['example.com/wait'] };
    const local = 'service.cilium.io/local-endpointslice'; // is written only for copies of local slices
    await world.slicesUser.patch(name, {
      metadata: { ...others, annotations: { ...others.annotations, [local]: 'y' } },
    });
    for (const address of ['10.2.0.2', '10.2.0.3']) {
      clusters.sink?.mergeExternalSliceUpdate(remote('baltic', 'db', 'db-1', [address]));
      await world.pass(2000);
      expect(await world.addresses()).toEqual({ [name]: address });
      const [slice] = await world.slices();
      expect(slice?.metadata.finalizers).toEqual(others.finalizers);
      expect(slice?.metadata.annotations).toEqual(others.annotations);
    }
    const written = await world.slices();
    await world.pass(20_000);
    expect(await world.slices()).toEqual(written);
  });

  it('restores a label without value that another client has removed (regression: it stayed removed)', async () => {
    const { clusters } = await newWorld('baltic');
    const headless = 'service.kubernetes.io/headless';
    await world.putService('db', SELECTED, { clusterIP: 'None' });
    clusters.sink?.mergeExternalSliceUpdate(remote('baltic', 'db', 'db-1', ['10.2.0.1']));
    await world.pass(2000);
    await world.slicesUser.patch(mirroredName('db', 'baltic', 'db-1'), {
      metadata: { labels: { [headless]: null } },
    });
    await world.pass(2000);
    const [slice] = await world.slices();
    expect(slice?.metadata.labels).toHaveProperty([headless], '');
  });

  it('after a restart, deletes nothing of a cluster before it is complete, and nothing of a cluster without a readable configuration', async () => {
    const { clusters } = await newWorld('baltic', 'celtic');
    await world.putService('db');
    for (const cluster of ['baltic', 'celtic'])
      for (const slice of ['db-1', 'db-2'])
        clusters.sink?.mergeExternalSliceUpdate(remote(cluster, 'db', slice, ['10.2.0.1']));
    await world.pass(2000);
    await world.stop();
    clusters.states.set('baltic', 'incomplete');
    clusters.states.set('celtic', 'incomplete');
    world.writes.length = 0;
    world.start();
    clusters.sink?.mergeExternalSliceUpdate(remote('baltic', 'db', 'db-1', ['10.2.0.1']));
    await world.pass(60_000);
    expect(world.writes).toEqual([]);
    clusters.set('baltic', 'complete');
    await world.pass(2000);
    expect(world.writes.map(({ method, slice }) => `${method} ${slice}`)).toEqual([
      `DELETE ${mirroredName('db', 'baltic', 'db-2')}`,
    ]);
    clusters.set('celtic', 'gone');
    await world.pass(2000);
    expect(Object.keys(await world.addresses())).toEqual([mirroredName('db', 'baltic', 'db-1')]);
  });

  it('creates slices before it deletes those that they replace (regression: without endpoints for the time of the writes)', async () => {
    const { clusters } = await newWorld('baltic');
    await world.putService('db');
    const share = (name: string): void => {
      for (let n = 0; n < 10; n++)
        clusters.sink?.mergeExternalSliceUpdate(remote('baltic', 'db', `${name}-${n}`, ['10.2.0.1']));
    };
    share('old');
    await world.pass(2000);
    await world.stop();
    world.writes.length = 0;
    world.start();
    share('new');
    await world.pass(5000);
    expect(world.writes.map(({ method }) => method)).toEqual(
      Array.from({ length: 20 }, (_, n) => (n < 10 ? 'POST' : 'DELETE')),
    );
    expect((await world.slices()).length).toBe(10);
  });

  it('deletes the slices of a deselected service even if its cluster is incomplete', async () => {
    const { clusters } = await newWorld('baltic');
    await world.putService('db');
    clusters.sink?.mergeExternalSliceUpdate(remote('baltic', 'db', 'db-1', ['10.2.0.1']));
    await world.pass(2000);
    await world.stop();
    clusters.states.set('baltic', 'incomplete');
    world.start();
    await world.pass(2000);
    expect((await world.slices()).length).toBe(1);
    await world.services.delete('db');
    await world.pass(2000);
    expect((await world.slices()).length).toBe(0);
  });

  it('gathers changes: a slice is written at most once a second, whatever its rate of changes', async () => {
    const { clusters } = await newWorld('baltic');
    await world.putService('db');
    for (let n = 0; n < 100; n++) {
      clusters.sink?.mergeExternalSliceUpdate(remote('baltic', 'db', 'db-1', [`10.2.0.${n}`]));
      await world.pass(100);
    }
    expect(world.writes.length).toBeLessThanOrEqual(11);
    await world.pass(2000);
    expect(await world.addresses()).toEqual({ [mirroredName('db', 'baltic', 'db-1')]: '10.2.0.99' });
    const times = world.writes.map(({ at }) => at);
    for (const [n, at] of times.entries())
      if (n > 0) expect(at - (times[n - 1] ?? 0)).toBeGreaterThanOrEqual(1000);
  });

  it('writes at most 20 slices in any second', async () => {
    const { clusters } = await newWorld('baltic');
    await world.putService('db');
    await world.pass(10_000); // unused time must not accumulate
    for (let n = 0; n < 100; n++)
      clusters.sink?.mergeExternalSliceUpdate(remote('baltic', 'db', `db-${n}`, ['10.2.0.1']));
    await world.pass(3000);
    expect(mostPerSecond(world.writes)).toBe(20);
    await world.pass(4000);
    expect((await world.slices()).length).toBe(100);
    expect(world.writes.length).toBe(100);
  });

  it('prints what it would write and why, once', async () => {
    world = new SliceWorld();
    world.start({ dryRun: true });
    world.clusters.set('baltic', 'complete');
    await world.putService('db');
    world.clusters.sink?.mergeExternalSliceUpdate(remote('baltic', 'db', 'db-1', ['10.2.0.1']));
    await world.pass(10_000);
    // Regression: each list of the slices printed the creates again.
    world.api.compact();
    world.api.endWatches();
    await world.pass(60_000);
    const id = { namespace: 'shop', name: 'db' };
    world.clusters.sink?.mergeExternalSliceDelete({ cluster: 'baltic', id, name: 'db-1' });
    await world.pass(10_000);
    const slice = `endpointslices.discovery.k8s.io/v1 shop/${mirroredName('db', 'baltic', 'db-1')}`;
    expect(world.lines).toEqual([
      `create ${slice}: cluster baltic shares shop/db in slice db-1`,
      `delete ${slice}: cluster baltic does not share this slice of shop/db`,
    ]);
    expect(world.writes).toEqual([]);
  });

  it('writes two slices whose digests have the same first 32 bits (regression: another cluster could hide a slice)', async () => {
    const { clusters } = await newWorld('baltic');
    await world.putService('db');
    for (const [at, name] of COLLISION.entries())
      clusters.sink?.mergeExternalSliceUpdate(remote('baltic', 'db', name, [`10.2.0.${at}`]));
    await world.pass(2000);
    expect(Object.values(await world.addresses()).sort()).toEqual(['10.2.0.0', '10.2.0.1']);
  });

  it('names a missing right, and goes on when it is granted', async () => {
    const { clusters, api } = await newWorld('baltic');
    api.deny('create', 'endpointslices');
    await world.putService('db');
    clusters.sink?.mergeExternalSliceUpdate(remote('baltic', 'db', 'db-1', ['10.2.0.1']));
    await world.pass(2000);
    expect(world.failures.join()).toContain('grant the verb "create" on the resource "endpointslices"');
    expect(world.actions).toEqual([]); // regression: a log line for each refused write
    expect(world.duty?.status()).toMatchObject({
      state: 'running',
      published: { synced: false, pending: 1 },
    });
    api.allow('create', 'endpointslices');
    await world.pass(100_000);
    expect((await world.slices()).length).toBe(1);
  });

  it('reports a cluster without slices once', async () => {
    const { clusters } = await newWorld('baltic');
    const service = { cluster: 'baltic', namespace: 'shop', name: 'db' } as never;
    clusters.sink?.mergeExternalServiceUpdate(service);
    clusters.sink?.mergeExternalServiceUpdate(service);
    expect(world.rejections).toEqual([
      'cluster "baltic": publishes its services without endpoint slices, so its backends get none here',
    ]);
  });
});

/** Two names whose digests of `baltic/<name>` begin with the same 8 digits. */
const COLLISION = ['db-36674', 'db-45764'] as const;
