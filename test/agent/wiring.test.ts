import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { expect, it, vi } from 'vitest';
import { FollowedClusters } from '../../src/agent/followed-clusters.ts';
import type { AgentOptions, KubernetesOptions } from '../../src/agent/options.ts';
import * as stateKeeper from '../../src/agent/state-keeper.ts';
import { unsubscribeOnce } from '../../src/base/subscription.ts';
import * as clusterMesh from '../../src/clustermesh/cluster-mesh.ts';
import * as identityResolver from '../../src/clustermesh/identity-resolver.ts';
import * as localCluster from '../../src/clustermesh/local-cluster.ts';
import * as history from '../../src/history/history.ts';
import * as hostIPs from '../../src/k8s/feed/host-ips.ts';
import * as feed from '../../src/k8s/feed/kubernetes-feed.ts';
import * as layer from '../../src/metadata/metadata-layer.ts';
import * as nodeManager from '../../src/nodemanager/node-manager.ts';
import * as serviceCache from '../../src/servicecache/service-cache.ts';
import * as tape from '../../src/tape/tape.ts';
import { spyOnConstructor } from '../base/support/spy-on-constructor.ts';
import { startAgent } from './support/agent-under-test.ts';
import { NO_KUBERNETES } from './support/kubernetes-options.ts';
import { temporaryFolder } from './support/temporary-folder.ts';

/**
 * The values of plain objects by the path of their names, without undefined ones. Of other objects, only that they
 * exist.
 */
type Leaves = Readonly<Record<string, unknown>>;

function leavesOf(value: unknown, path: string): Leaves {
  if (typeof value === 'function' || value === undefined) return {};
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return { [path]: value };
  if (Object.getPrototypeOf(value) !== Object.prototype) return { [path]: value.constructor.name };
  const fields = Object.entries(value).map(([name, field]) => leavesOf(field, `${path}.${name}`));
  return Object.assign({}, ...fields);
}

/** The parts of an agent by name, each with the first argument of its constructor. */
async function partsOf(options: Partial<AgentOptions>): Promise<Leaves> {
  const parts: Record<string, unknown> = {};
  const spies = [
    spyOnConstructor(serviceCache, 'ServiceCache'),
    spyOnConstructor(nodeManager, 'NodeManager'),
    spyOnConstructor(localCluster, 'LocalCluster'),
    spyOnConstructor(clusterMesh, 'ClusterMesh'),
    spyOnConstructor(identityResolver, 'IdentityResolver'),
    spyOnConstructor(feed, 'KubernetesFeed'),
    spyOnConstructor(layer, 'MetadataLayer'),
    spyOnConstructor(hostIPs, 'HostIPs'),
    spyOnConstructor(history, 'History'),
    spyOnConstructor(tape, 'Tape'),
    spyOnConstructor(stateKeeper, 'StateKeeper'),
  ];
  await startAgent([], '', options);
  for (const spy of spies)
    for (const [given] of spy.mock.calls) Object.assign(parts, leavesOf(given, spy.getMockName()));
  vi.restoreAllMocks();
  return parts;
}

async function* noObjects(): AsyncGenerator<never> {}

const KUBERNETES: KubernetesOptions = {
  ...NO_KUBERNETES,
  watch: ['services', 'endpoints', 'nodes', 'identities', 'policies'],
  objects: noObjects,
};

const NETWORK: AgentOptions['network'] = {
  remoteNodeIdentities: true,
  encryption: false,
  nodeEncryption: false,
  hostFirewall: false,
  underlay: 'ipv4',
};

const TAPED = { tape: { path: '/dev/null/tape', maxBytes: 2 ** 24 }, kubernetes: KUBERNETES };

/** Changed options, what they change in the parts, and the options that they require. */
type Row = readonly [options: Partial<AgentOptions>, changes: Leaves, requires?: Partial<AgentOptions>];

const kubernetes = (changes: Partial<KubernetesOptions>): Partial<AgentOptions> => ({
  kubernetes: { ...KUBERNETES, ...changes },
});

const ROWS: readonly Row[] = [
  [
    { clusterName: 'atlantic' },
    {
      'ServiceCache.clusterName': 'atlantic',
      'NodeManager.clusterName': 'atlantic',
      'LocalCluster.clusterName': 'atlantic',
      'ClusterMesh.clusterName': 'atlantic',
      'KubernetesFeed.clusterName': 'atlantic',
      'Tape.settings.clusterName': 'atlantic',
    },
    TAPED,
  ],
  [
    { clusterID: 7 },
    {
      'ClusterMesh.clusterID': 7,
      'IdentityResolver.clusterID': 7,
      'KubernetesFeed.clusterID': 7,
      'Tape.settings.clusterID': 7,
    },
    TAPED,
  ],
  [
    { maxConnectedClusters: 511 },
    {
      'ClusterMesh.maxConnectedClusters': 511,
      'IdentityResolver.maxConnectedClusters': 511,
      'Tape.settings.maxConnectedClusters': 511,
    },
    TAPED,
  ],
  [
    { nodeName: 'n1' },
    {
      'ServiceCache.nodeName': 'n1',
      'NodeManager.nodeName': 'n1',
      'KubernetesFeed.nodeName': 'n1',
      'Tape.settings.nodeName': 'n1',
    },
    TAPED,
  ],
  [{ serviceTTLMs: 9000 }, { 'ClusterMesh.serviceTTLMs': 9000 }],
  [
    { serviceV2: 'slices' },
    { 'ClusterMesh.serviceV2': 'slices', 'Tape.settings.serviceV2': 'slices' },
    TAPED,
  ],
  [{ failStatic: false }, { 'LocalCluster.failStatic': false }, { failStatic: true }],
  [
    { network: { ...NETWORK, remoteNodeIdentities: false } },
    {
      'NodeManager.remoteNodeIdentities': false,
      'LocalCluster.remoteNodeIdentities': false,
      'ClusterMesh.remoteNodeIdentities': false,
      'Tape.settings.network.remoteNodeIdentities': false,
    },
    TAPED,
  ],
  [
    { network: { ...NETWORK, encryption: true } },
    { 'NodeManager.encryption': true, 'Tape.settings.network.encryption': true },
    TAPED,
  ],
  [{ network: { ...NETWORK, nodeEncryption: true } }, { 'NodeManager.nodeEncryption': true }],
  [{ network: { ...NETWORK, hostFirewall: true } }, { 'NodeManager.hostFirewall': true }],
  [{ network: { ...NETWORK, underlay: 'ipv6' } }, { 'NodeManager.underlay': 'ipv6' }],
  [
    kubernetes({ endpoints: 'pods' }),
    { 'KubernetesFeed.endpoints': 'pods', 'Tape.settings.kubernetes.endpoints': 'pods' },
    TAPED,
  ],
  [
    kubernetes({ identities: 'crd' }),
    { 'KubernetesFeed.identities': 'crd', 'Tape.settings.kubernetes.identities': 'crd' },
    TAPED,
  ],
  [
    kubernetes({ serviceProxyName: 'mine' }),
    { 'KubernetesFeed.selection.proxyName': 'mine', 'Tape.settings.kubernetes.serviceProxyName': 'mine' },
    TAPED,
  ],
  [
    kubernetes({ headlessServices: true }),
    { 'KubernetesFeed.selection.headless': true, 'Tape.settings.kubernetes.headlessServices': true },
    TAPED,
  ],
  [
    kubernetes({ nodeAnnotations: true }),
    { 'KubernetesFeed.nodeAnnotations': true, 'Tape.settings.kubernetes.nodeAnnotations': true },
    TAPED,
  ],
  [
    kubernetes({ encryptKey: 3 }),
    { 'KubernetesFeed.encryptKey': 3, 'Tape.settings.kubernetes.encryptKey': 3 },
    TAPED,
  ],
  [
    kubernetes({ hostIPs: true }),
    { 'HostIPs.world': 'single-stack', 'HostIPs.ipcache': 'IPCache' },
    kubernetes({}),
  ],
  [
    kubernetes({ dualStack: true, hostIPs: true }),
    {
      'KubernetesFeed.world': 'dual-stack',
      'MetadataLayer.world': 'dual-stack',
      'HostIPs.world': 'dual-stack',
    },
    kubernetes({ hostIPs: true }),
  ],
  ...(
    [
      ['services', 'services', undefined],
      ['endpoints', 'ipcache', undefined],
      ['nodes', 'nodes', undefined],
      ['identities', 'identities', 'none'],
      ['policies', 'policies', false],
    ] as const
  ).map(
    ([part, name, none]): Row => [
      kubernetes({ watch: KUBERNETES.watch.filter((one) => one !== part) }),
      { [`KubernetesFeed.${name}`]: none },
      kubernetes({}),
    ],
  ),
  [{ historyMemory: 2 ** 21 }, { 'History.memory': 2 ** 21 }, { historyMemory: 2 ** 20 }],
  [{ tape: { path: '/dev/null/b', maxBytes: 2 ** 25 } }, { 'Tape.maxBytes': 2 ** 25 }, TAPED],
];

it.each(ROWS.map((row) => ({ row, name: JSON.stringify(row[0]) })))(
  'an agent passes $name on, and nothing else changes',
  async ({ row }) => {
    const [options, changes, requires = {}] = row;
    const before = await partsOf(requires);
    const after = await partsOf({ ...requires, ...options });
    const paths = [...new Set([...Object.keys(before), ...Object.keys(after)])];
    const different = paths.filter((path) => !isDeepStrictEqual(before[path], after[path]));
    expect(Object.fromEntries(different.map((path) => [path, after[path]]))).toEqual(changes);
  },
);

it('an agent passes its state folder and the size of its stored history on', async () => {
  const stateDir = temporaryFolder({});
  const importCiliumState = join(stateDir, 'cilium');
  const options = {
    stateDir,
    importCiliumState,
    historyMemory: 2 ** 20,
    historyDisk: 2 ** 22,
    nodeName: 'n1',
  };
  expect(await partsOf(options)).toMatchObject({
    'StateKeeper.path': stateDir,
    'StateKeeper.importFrom': importCiliumState,
    'StateKeeper.clusterName': 'own',
    'StateKeeper.nodeName': 'n1',
    'History.disk.maxBytes': 2 ** 22,
    'History.disk.folder': 'StateFiles',
  });
  for (const none of [{ stateDir: temporaryFolder({}), historyDisk: 0 }, { stateDir: undefined }])
    expect(await partsOf({ ...options, ...none })).not.toHaveProperty(['History.disk.maxBytes']);
});

it('an agent that has stopped listens to no cluster', async () => {
  const { onChange } = FollowedClusters.prototype;
  const subscribed = vi.fn();
  const unsubscribed = vi.fn();
  vi.spyOn(FollowedClusters.prototype, 'onChange').mockImplementation(function (
    this: FollowedClusters,
    callback,
  ) {
    const unsubscribe = onChange.call(this, callback);
    subscribed();
    return unsubscribeOnce(() => {
      unsubscribe();
      unsubscribed();
    });
  });
  const { agent } = await startAgent([], '', { historyMemory: 1 << 20 });
  expect([subscribed, unsubscribed].map(({ mock }) => mock.calls.length)).toEqual([3, 0]);
  await agent.stop();
  expect(unsubscribed).toHaveBeenCalledTimes(3);
});

it('logs a handler that fails for each node once, and then their number (regression: a line with a stack for each node and retry)', async () => {
  const { agent, logged } = await startAgent([], '');
  const fail = (): void => {
    throw new Error('no route');
  };
  agent.nodes.subscribe({ name: 'paths', nodeAdd: fail, nodeUpdate: fail, nodeDelete: fail });
  for (const name of ['n1', 'n2', 'n3'])
    agent.nodes.nodeUpdated({ cluster: 'own', name, source: 'kvstore', addresses: [] });
  expect(logged).toEqual(['error node handler paths failed for own/n1: no route']);
  await agent.stop();
  expect(logged.slice(1)).toEqual([
    expect.stringMatching(
      /^error node handler paths failed [2-9] more times, last for own\/n\d; .*: no route$/,
    ),
  ]);
});
