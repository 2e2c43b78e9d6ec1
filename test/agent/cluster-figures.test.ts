import { expect, it } from 'vitest';
import { FollowedClusters } from '../../src/agent/followed-clusters.ts';
import { IdentityResolver } from '../../src/clustermesh/identity-resolver.ts';
import type { LocalCluster } from '../../src/clustermesh/local-cluster.ts';
import { newCluster, OWN, write, writeIP } from '../clustermesh/support/mesh-world.ts';
import { agent, agentForEachTest, clock } from '../clustermesh/support/set-up.ts';
import { settle } from '../kvstore/support/settle.ts';

agentForEachTest();

function followedClusters(local: LocalCluster): FollowedClusters {
  return new FollowedClusters(local, 9, agent.mesh, new IdentityResolver({ local, mesh: agent.mesh }));
}

it('measures the local cluster and each remote one, including one that is unreachable', async () => {
  const own = agent.followOwnOn(agent.connect(OWN, newCluster(clock, OWN, 9)));
  await agent.add('a', newCluster(clock, 'a', 1));
  await agent.mesh.add('b', () => Promise.reject(new Error('no such certificate')));
  await settle(8);
  const figures = [...followedClusters(own).metrics()];
  expect(
    figures.map(({ name, watches, firstSyncMs, lastSyncMs }) => [
      ...[name, watches.length, firstSyncMs, lastSyncMs],
    ]),
  ).toEqual([
    [OWN, 3, 0, 0],
    ['a', 4, 0, 0],
    ['b', 0, undefined, undefined],
  ]);
  const requests = [OWN, 'a'].map((name) => agent.links.get(name)?.status().requests);
  expect(figures.map(({ kvstore }) => kvstore?.requests)).toEqual([...requests, undefined]);
  expect(requests[0]?.ok).toBeGreaterThan(0);
});

it('shows the progress of each store of a cluster, and its configuration', async () => {
  const own = agent.followOwnOn(agent.connect(OWN, newCluster(clock, OWN, 9)));
  const server = newCluster(clock, 'a', 1);
  await agent.add('a', server);
  await agent.mesh.add('b', () => Promise.reject(new Error('no such certificate')));
  await settle(8);
  const followed = followedClusters(own);
  expect(followed.detailOf(OWN)).toMatchObject({ local: true, id: 9 });
  expect([OWN, 'a'].map((name) => followed.detailOf(name)?.servicesExpired)).toEqual([undefined, false]);
  expect(followed.detailOf('nobody')).toBeUndefined();
  expect(followed.detailOf('b')?.config).toBeUndefined();
  expect(followed.detailOf('b')?.stores[0]).toMatchObject({ state: 'stopped', complete: false });

  const { revision = 0 } = followed.detailOf('a') ?? {};
  expect(revision).toBeGreaterThan(0);
  writeIP(server, '10.1.0.1', 65_792);
  write(server, 'cilium/state/ip/v1/default/10.1.0.2', 'no JSON');
  await settle(8);
  const detail = followed.detailOf('a');
  expect(detail?.config).toMatchObject({ id: 1, capabilities: { cached: false } });
  const ip = detail?.stores.find(({ resource }) => resource === 'ip');
  expect(ip).toMatchObject({
    state: 'watching',
    complete: true,
    rejected: 1,
    lists: 1,
    failures: 0,
    keys: 1,
    queuedBytes: 0,
    p99Ms: 1,
  });
  expect(ip?.revision).toBe(revision + 2);
  expect(detail).toMatchObject({ revision: revision + 2, queuedBytes: 0, p99Ms: 1 });
});
