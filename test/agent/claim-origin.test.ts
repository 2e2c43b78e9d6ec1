import { describe, expect, it } from 'vitest';
import { claimOrigin, type OriginLookups } from '../../src/agent/claim-origin.ts';
import type { Source } from '../../src/model/source.ts';
import { startAgent } from './support/agent-under-test.ts';

/** The sources that announce the local node, by its name. */
const NODE_SOURCES: Readonly<Record<string, Source>> = {
  'atlantic/of-crd': 'custom-resource',
  'atlantic/of-store': 'kvstore',
  'atlantic/of-checkpoint': 'restored',
};

const sources: OriginLookups = {
  clusterName: 'atlantic',
  isInProcess: (cluster) => cluster === 'recorded',
  versionOf: (cluster, resource, name) =>
    name === 'gone' ? undefined : { key: `cilium/state/${resource}/v1/${cluster}/${name}`, revision: 7 },
  conditionOf: (cluster) => ({
    state: 'ready',
    ready: cluster !== 'caspian',
    connected: cluster !== 'caspian',
    knownAt: cluster === 'caspian' ? '2026-11-20T12:00:00.000Z' : undefined,
    missing: [],
  }),
  sourceOfNode: (fullName) => NODE_SOURCES[fullName],
};

function textOf(source: Source, owner: string, key = '10.0.0.1', podName = ''): string {
  const k8s = podName === '' ? undefined : { namespace: 'shop', podName, namedPorts: new Map() };
  return claimOrigin({ key, source, owner, k8s }, sources).text;
}

describe('claimOrigin', () => {
  it.each<[string, Source, string]>([
    ["atlantic's etcd, cilium/state/ip/v1/atlantic/10.0.0.1, revision 7", 'kvstore', ''],
    ["baltic's etcd, cilium/state/ip/v1/baltic/10.0.0.1, revision 7", 'clustermesh', 'baltic'],
    ["baltic's etcd, cilium/state/nodes/v1/baltic/n1, revision 7", 'clustermesh', 'baltic/n1'],
    [
      "recorded's kvstore in memory, cilium/state/ip/v1/recorded/10.0.0.1, revision 7",
      'clustermesh',
      'recorded',
    ],
    ['Kubernetes of atlantic', 'k8s', ''],
    ['Kubernetes of atlantic, node n1', 'custom-resource', 'atlantic/n1'],
    ['checkpoint of baltic, not confirmed yet', 'restored', 'baltic'],
    ['checkpoint of atlantic, not confirmed yet', 'restored', ''],
    ['this agent (local, host-ips)', 'local', 'host-ips'],
    ['Kubernetes of atlantic, node of-crd', 'local', 'atlantic/of-crd'],
    ["atlantic's etcd, cilium/state/nodes/v1/atlantic/of-store, revision 7", 'local', 'atlantic/of-store'],
    ['checkpoint of atlantic, not confirmed yet', 'local', 'atlantic/of-checkpoint'],
    ['this agent (local, atlantic/deleted)', 'local', 'atlantic/deleted'],
    ['this agent (generated)', 'generated', ''],
  ])('%s', (text, source, owner) => {
    expect(textOf(source, owner)).toBe(text);
  });

  it.each<[Source, string, object]>([
    [
      'kvstore',
      '',
      { cluster: 'atlantic', store: 'etcd', key: 'cilium/state/ip/v1/atlantic/10.0.0.1', revision: 7 },
    ],
    [
      'clustermesh',
      'recorded/n1',
      { cluster: 'recorded', store: 'memory', key: 'cilium/state/nodes/v1/recorded/n1', revision: 7 },
    ],
    ['k8s', '', { cluster: 'atlantic', store: 'kubernetes' }],
    ['custom-resource', 'atlantic/n1', { cluster: 'atlantic', store: 'kubernetes', key: 'node n1' }],
    ['restored', 'baltic', { cluster: 'baltic', store: 'checkpoint' }],
    ['generated', '', { store: 'agent' }],
  ])('has the store and the key of a claim from %s of "%s"', (source, owner, fields) => {
    const { text: _, ...rest } = claimOrigin({ key: '10.0.0.1', source, owner, k8s: undefined }, sources);
    expect(rest).toEqual(fields);
  });

  it('shows that the state of an unreachable cluster is old', () => {
    const claim = { key: '10.0.0.1', source: 'clustermesh', owner: 'caspian', k8s: undefined } as const;
    expect(claimOrigin(claim, sources)).toMatchObject({
      text: "caspian's etcd, cilium/state/ip/v1/caspian/10.0.0.1, revision 7 (unreachable, serving the state of 2026-11-20T12:00:00.000Z)",
      knownAt: '2026-11-20T12:00:00.000Z',
    });
  });

  it('names the pod of a claim of Kubernetes', () => {
    expect(textOf('k8s', '', '10.0.0.1', 'web-1')).toBe('Kubernetes of atlantic, pod shop/web-1');
  });

  it('has no key and no revision if the kvstore does not hold the key any more', () => {
    expect(claimOrigin({ key: 'gone', source: 'kvstore', owner: '', k8s: undefined }, sources)).toEqual({
      text: "atlantic's etcd",
      cluster: 'atlantic',
      store: 'etcd',
    });
  });
});

it('an agent names the kind of the kvstore of the cluster of a claim, not that of its own cluster', async () => {
  const { agent } = await startAgent([]);
  const storeOf = (source: Source, owner: string): string =>
    agent.originOf({ key: '10.0.0.1', source, owner, k8s: undefined }).store;
  expect([storeOf('kvstore', ''), storeOf('clustermesh', 'baltic')]).toEqual(['memory', 'etcd']);
});

it('an agent names the kvstore as the origin of the addresses of its own node', async () => {
  const node = { Name: 'here', Cluster: 'own', IPAddresses: [{ Type: 'InternalIP', IP: '192.168.0.1' }] };
  const { agent } = await startAgent([['own', 'cilium/state/nodes/v1/own/here', node]]);
  const [claim] = agent.ipcache.explain('192.168.0.1')?.claims ?? [];
  expect(claim).toMatchObject({ source: 'local', owner: 'own/here' });
  expect(claim && agent.originOf(claim).text).toMatch(
    /^own's kvstore in memory, cilium\/state\/nodes\/v1\/own\/here, revision \d+$/,
  );
});
