import { afterEach, expect, it } from 'vitest';
import { IPCache } from '../../../src/ipcache/ipcache.ts';
import { MISSING_LIMIT_MS } from '../../../src/k8s/feed/followed-kind.ts';
import { KubernetesFeed } from '../../../src/k8s/feed/kubernetes-feed.ts';
import { KubernetesClient } from '../../../src/k8s/kubernetes-client.ts';
import { MemoryApiServer } from '../../../src/k8s/memory/memory-api-server.ts';
import { MemoryApiTransport } from '../../../src/k8s/memory/memory-api-transport.ts';
import { CLUSTER_TYPES } from '../../../src/k8s/memory/resource-types.ts';
import { NodeManager } from '../../../src/nodemanager/node-manager.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { advance, settle } from '../../kvstore/support/settle.ts';
import { ApiUser } from '../support/api-user.ts';
import type { SaidObject } from './support/fake-cluster.ts';
import { ciliumEndpoint, ciliumNode, pod } from './support/objects.ts';

const TYPES = CLUSTER_TYPES.map((type) => ({ ...type, hasStatus: false }));
const CRDS = TYPES.filter(({ plural }) => ['ciliumendpoints', 'ciliumnodes'].includes(plural));
const ENDPOINT_ONLY = '10.1.0.20';

const ends: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0)) await end();
});

/** An agent's feed of the endpoints and nodes of an API server. */
class Follower {
  readonly ipcache: IPCache = new IPCache();
  readonly forgotten: string[] = [];
  readonly feed: KubernetesFeed;
  readonly nodes: NodeManager;

  constructor(api: MemoryApiServer, clock: ManualClock) {
    const { ipcache } = this;
    const client = new KubernetesClient(new MemoryApiTransport(api), { clock, random: () => 0.5 });
    this.nodes = new NodeManager({ ipcache, clock, clusterName: 'atlantic', nodeName: 'n1' });
    this.feed = new KubernetesFeed({
      source: client,
      clock,
      ipcache,
      nodes: this.nodes,
      clusterName: 'atlantic',
      nodeName: 'n1',
      onForget: (kind, objects) => this.forgotten.push(`${kind} ${objects}`),
    });
    ends.push(
      () => this.feed.stop(),
      () => client.close(),
    );
    this.feed.start();
  }

  /** Everything that must equal a cold start. */
  get state(): unknown {
    const { synced, kinds } = this.feed.status();
    return {
      entries: [...this.ipcache.entries()].map((entry) => JSON.stringify(entry)).sort(),
      nodes: [...this.nodes.nodes()].map(({ name }) => name).sort(),
      synced,
      kinds: kinds.map(({ name, state, complete, objects }) => `${name} ${state} ${complete} ${objects}`),
      followed: kinds.map(({ resource }) => resource?.fieldSelector),
    };
  }
}

async function cluster(): Promise<{ readonly api: MemoryApiServer; readonly clock: ManualClock }> {
  const clock = new ManualClock();
  const api = new MemoryApiServer({ clock, types: TYPES });
  const create = async (plural: string, object: SaidObject): Promise<void> => {
    const { name, namespace } = object.metadata;
    const { metadata: _, ...content } = object;
    const { group = '', version = 'v1' } = TYPES.find((type) => type.plural === plural) ?? {};
    const transport = new MemoryApiTransport(api);
    await new ApiUser(transport, { group, version, plural }, namespace).create(name, content);
  };
  await create('pods', pod('far', { nodeName: 'n2' }));
  await create('ciliumendpoints', ciliumEndpoint('far', { node: '192.0.2.2' }));
  await create('ciliumendpoints', ciliumEndpoint('left', { ips: [ENDPOINT_ONLY], node: '192.0.2.2' }));
  await create('ciliumnodes', ciliumNode('n2'));
  return { api, clock };
}

function uninstall(api: MemoryApiServer): void {
  for (const type of CRDS) api.stopServing(type);
  api.endWatches();
}

it('an agent equals its cold start after the CiliumEndpoint CRD was deleted (regression: entries stayed without limit)', async () => {
  const { api, clock } = await cluster();
  const agent = new Follower(api, clock);
  await settle(20);
  expect(agent.ipcache.get(ENDPOINT_ONLY)?.source).toBe('custom-resource');
  expect(agent.nodes.size).toBe(1);
  uninstall(api);
  await advance(clock, MISSING_LIMIT_MS - 5_000);
  expect(agent.ipcache.get(ENDPOINT_ONLY)).toBeDefined();
  expect(agent.forgotten).toEqual([]);
  await advance(clock, 120_000);
  expect(agent.forgotten.sort()).toEqual(['ciliumendpoints 2', 'ciliumnodes 1']);
  expect(agent.ipcache.get(ENDPOINT_ONLY)).toBeUndefined();
  const cold = new Follower(api, clock);
  await advance(clock, 60_000);
  expect(agent.state).toEqual(cold.state);
  expect(agent.ipcache.get('10.1.0.10')).toMatchObject({ source: 'k8s', k8s: { podName: 'far' } });
  for (const type of CRDS) api.serve(type);
  await advance(clock, 120_000);
  expect(agent.ipcache.get(ENDPOINT_ONLY)?.source).toBe('custom-resource');
  expect(agent.state).toEqual(cold.state);
});

it('a short 404 of a kind keeps its entries, however often it occurs', async () => {
  const { api, clock } = await cluster();
  const agent = new Follower(api, clock);
  await settle(20);
  for (let round = 0; round < 4; round++) {
    uninstall(api);
    await advance(clock, MISSING_LIMIT_MS / 2);
    for (const type of CRDS) api.serve(type);
    await advance(clock, 120_000);
    expect(agent.ipcache.get(ENDPOINT_ONLY)?.source).toBe('custom-resource');
  }
  expect(agent.forgotten).toEqual([]);
});
