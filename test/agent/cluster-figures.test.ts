import { expect, it } from 'vitest';
import { clusterMetrics } from '../../src/agent/agent-status.ts';
import { newCluster, OWN } from '../clustermesh/support/mesh-world.ts';
import { agent, agentForEachTest, clock } from '../clustermesh/support/set-up.ts';
import { settle } from '../kvstore/support/settle.ts';

agentForEachTest();

it('measures the own cluster and each remote one, including one that is unreachable', async () => {
  const own = agent.followOwnOn(agent.connect(OWN, newCluster(clock, OWN, 9)));
  await agent.add('a', newCluster(clock, 'a', 1));
  await agent.mesh.add('b', () => Promise.reject(new Error('no such certificate')));
  await settle(8);
  const figures = [...clusterMetrics({ own, mesh: agent.mesh })];
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
