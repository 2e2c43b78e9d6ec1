import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { parse, parseAllDocuments } from 'yaml';
import { Agent } from '../../src/agent/agent.ts';
import type { KubernetesOptions } from '../../src/agent/options.ts';
import { systemClock } from '../../src/base/system-clock.ts';
import { LinuxDatapath } from '../../src/datapath/linux/linux-datapath.ts';
import { KubernetesFeed } from '../../src/k8s/feed/kubernetes-feed.ts';
import { ApiHttpServer } from '../../src/k8s/memory/api-http-server.ts';
import { MemoryApiServer } from '../../src/k8s/memory/memory-api-server.ts';
import { MetadataLayer } from '../../src/metadata/metadata-layer.ts';
import { createLog } from '../../src/process/log.ts';
import { play } from '../../src/recording/play.ts';
import { readPlayScript } from '../../src/recording/play-script.ts';
import { KUBERNETES_PARTS } from '../../src/tape/tape-settings.ts';
import { until } from '../base/support/until.ts';
import { dpcache, example } from '../cli/support/run.ts';
import { FakeCluster } from '../k8s/feed/support/fake-cluster.ts';
import { FeedWorld } from '../k8s/feed/support/feed-world.ts';
import { RecordingMetadata } from '../k8s/feed/support/recording-metadata.ts';
import { type AgentUnderTest, NO_INPUTS, startAgent, type TestKey } from './support/agent-under-test.ts';
import { FakeClock } from './support/fake-clock.ts';
import { NO_KUBERNETES } from './support/kubernetes-options.ts';
import { temporaryFolder } from './support/temporary-folder.ts';

const KUBERNETES: KubernetesOptions = {
  ...NO_KUBERNETES,
  load: [example('kubernetes/cluster.yaml')],
  watch: KUBERNETES_PARTS,
};

function start(
  options: Partial<KubernetesOptions> = {},
  keys: readonly TestKey[] = [],
): Promise<AgentUnderTest> {
  return startAgent(keys, '', {
    kubernetes: { ...KUBERNETES, ...options },
    nodeName: 'node-1',
    clusterName: 'default',
  });
}

describe('an agent that follows Kubernetes', () => {
  it('contains the state of a recorded cluster, and reports the state of each kind', async () => {
    const { agent, missing } = await start();
    expect(missing).toEqual([]);
    expect(agent.ipcache.get('10.10.2.11')).toMatchObject({
      identity: 4101,
      source: 'custom-resource',
      encryptKey: 3,
    });
    expect([...agent.nodes.nodes()].map(({ name }) => name).sort()).toEqual(['node-1', 'node-2', 'node-3']);
    expect(agent.ipcache.get('10.10.1.1')).toMatchObject({ identity: 1, source: 'local' }); // the router of this node
    expect(agent.ipcache.get('10.10.1.99')).toMatchObject({ identity: 4, source: 'local' });
    expect(agent.labelsOf(4102)?.find(({ key }) => key === 'app')?.value).toBe('cart');
    const { kubernetes } = agent.status();
    expect(kubernetes).toMatchObject({ server: 'memory', synced: true });
    expect(kubernetes?.kinds.map(({ name, state, objects }) => `${name} ${state} ${objects}`)).toEqual([
      'pods watching 1',
      'ciliumendpoints watching 5',
      'ciliumnodes watching 3',
      'nodes watching 1',
      'services watching 2',
      'endpointslices watching 2',
      'endpoints resting 0',
      'networkpolicies watching 0',
      'ciliumnetworkpolicies watching 0',
      'ciliumclusterwidenetworkpolicies watching 0',
      'ciliumcidrgroups watching 0',
      'ciliumidentities watching 3',
    ]);
  });

  it('lists an identity of both the kvstore and Kubernetes once, with the labels of the kvstore', async () => {
    const labels = 'k8s:app=checkout-of-kvstore;';
    const { agent } = await start({}, [['default', 'cilium/state/identities/v1/id/4101', labels]]);
    const listed = [...agent.identities()].filter(({ identity }) => identity === 4101);
    expect(listed.map((known) => known.labels.map(({ value }) => value))).toEqual([['checkout-of-kvstore']]);
  });

  it('plays the script of the demo: the late delete of a job leaves its address with the new pod', async () => {
    const { agent } = await start();
    const clock = new FakeClock();
    const said: string[] = [];
    const listener = {
      onStep: (): void => {},
      onFailure: (action: { readonly kind: string }, why: string): void =>
        void said.push(`${action.kind}: ${why}`),
    };
    const steps = await readPlayScript(example('kubernetes/changes.yaml'));
    const done = play(steps, agent, listener, clock, new AbortController().signal);
    for (const { after } of steps) await clock.advance(after * 1000);
    await done;
    expect(said).toEqual([]);
    await until('the invalid object is rejected', () => agent.rejections().total === 1);
    expect(agent.rejections().recent.map(({ field }) => field)).toEqual(['status.identity.id']);
    expect(agent.ipcache.get('10.10.2.30')?.k8s?.podName).toBe('checkout-7f9c4-new42');
    expect(agent.services.get({ namespace: 'shop', name: 'cart' })).toBeUndefined();
    const checkout = agent.services.get({ namespace: 'shop', name: 'checkout' });
    expect(checkout?.endpoints.backends.size).toBe(3);
  });

  it('lets the kvstore take precedence once it is complete: entries that only Kubernetes has are deleted (K 52)', async () => {
    const key = 'cilium/state/ip/v1/default/10.10.2.11';
    const { agent } = await start({}, [
      ['default', key, { IP: '10.10.2.11', ID: 4101, HostIP: '192.168.10.2' }],
    ]);
    await until('the kvstore has taken over', () => agent.status().kubernetes?.handover.ip === 'resting');
    expect(agent.ipcache.get('10.10.2.11')?.source).toBe('kvstore');
    expect(agent.ipcache.get('10.10.2.12')).toBeUndefined();
    expect(agent.services.get({ namespace: 'shop', name: 'cart' })).toBeDefined();
  });

  it('applies node identities, annotations of the local Node and its key, if configured (K 18, 40, 51)', async () => {
    const { agent } = await start({
      hostIPs: true,
      dualStack: true,
      nodeAnnotations: true,
      encryptKey: 7,
    });
    expect(agent.ipcache.get('0.0.0.0/0')?.identity).toBe(9);
    expect(agent.ipcache.get('::/0')?.identity).toBe(10);
    const node = {
      metadata: { name: 'node-1', annotations: { 'network.cilium.io/ipv6-cilium-host': 'fd00::77' } },
    };
    await agent.recordedKubernetes?.apply({
      apiVersion: 'v1',
      kind: 'Node',
      ...node,
      status: { addresses: [] },
    });
    await until('the annotated address is known', () => agent.ipcache.get('fd00::77') !== undefined);
    const status = { phase: 'Running', hostIP: '192.168.10.1', podIP: '10.10.1.200' };
    const pod = { metadata: { name: 'keyed', namespace: 'shop' }, spec: { nodeName: 'node-1' }, status };
    await agent.recordedKubernetes?.apply({ apiVersion: 'v1', kind: 'Pod', ...pod });
    await until('the pod has the key', () => agent.ipcache.get('10.10.1.200')?.encryptKey === 7);
  });

  it('allocates identities for CIDRs of policies, and gives the API server its reserved one (K 43, 49)', async () => {
    const { agent } = await start();
    const spec = { egress: [{ toCIDRSet: [{ cidr: '203.0.113.0/24', except: ['203.0.113.128/25'] }] }] };
    const cilium = { apiVersion: 'cilium.io/v2', kind: 'CiliumNetworkPolicy' };
    const policy = { ...cilium, metadata: { name: 'out', namespace: 'shop' }, spec };
    expect(await agent.recordedKubernetes?.apply(policy)).toBeUndefined();
    const labels = { 'kubernetes.io/service-name': 'kubernetes' };
    const slice = {
      apiVersion: 'discovery.k8s.io/v1',
      kind: 'EndpointSlice',
      addressType: 'IPv4',
      metadata: { name: 'kubernetes', namespace: 'default', labels },
      endpoints: [{ addresses: ['192.168.10.2'] }, { addresses: ['198.51.100.7'] }],
    };
    expect(await agent.recordedKubernetes?.apply(slice)).toBeUndefined();
    await until('the exception has an identity', () => agent.ipcache.get('203.0.113.128/25') !== undefined);
    expect(agent.ipcache.get('203.0.113.0/24')).toMatchObject({ source: 'generated' });
    expect(agent.ipcache.lookup('203.0.113.200')?.identity).not.toBe(
      agent.ipcache.lookup('203.0.113.100')?.identity,
    );
    await until('the API server has its identity', () => agent.ipcache.get('192.168.10.2')?.identity === 7);
    expect(agent.ipcache.get('192.168.10.2')?.source).toBe('kube-apiserver');
    await until('the other address is known', () => agent.ipcache.lookup('198.51.100.7') !== undefined);
    // regression: the address kept the identity of a CIDR, because its node was held back
    const node = {
      apiVersion: 'cilium.io/v2',
      kind: 'CiliumNode',
      metadata: { name: 'node-9' },
      spec: { addresses: [{ type: 'InternalIP', ip: '198.51.100.7' }] },
    };
    expect(await agent.recordedKubernetes?.apply(node)).toBeUndefined();
    await until('it is an API server on a node', () => agent.ipcache.get('198.51.100.7')?.identity === 7);
  });

  it('lets the datapath delete found prefixes when the prefixes with labels have identities (regression: did not wait for these)', async () => {
    const clock = new FakeClock();
    const allowed = vi.spyOn(LinuxDatapath.prototype, 'allowDeletes').mockReturnValue();
    const set = vi.spyOn(LinuxDatapath.prototype, 'setInputs');
    const applied = vi.spyOn(MetadataLayer.prototype, 'applied', 'get').mockReturnValue(-1);
    const { agent } = await startAgent(
      [],
      '',
      {
        kubernetes: { ...KUBERNETES, watch: ['policies'] },
        datapath: { pinFolder: '/none', routing: 'off', services: 'off', layout: '1.17', dryRun: true },
      },
      clock,
    );
    await clock.advance(60_000);
    expect(allowed).not.toHaveBeenCalled();
    expect(set.mock.lastCall).toMatchObject([{ areLocalEntriesKnown: false, isSynced: true }]);
    expect([agent.datapath?.status().waitsFor, agent.blockers()]).toEqual([
      ['Kubernetes: prefixes with labels have no identity yet'],
      [],
    ]);
    applied.mockRestore();
    await clock.advance(1_000);
    expect(allowed).toHaveBeenCalledOnce();
    expect(set.mock.lastCall).toMatchObject([{ areLocalEntriesKnown: true }]);
  });

  it('gives CIDRs the same identities after a restart, and reuses none of them (A 19)', async () => {
    const stateDir = temporaryFolder({});
    const policy = (name: string, cidr: string): string =>
      [
        'apiVersion: cilium.io/v2',
        'kind: CiliumNetworkPolicy',
        `metadata: { name: ${name}, namespace: shop }`,
        `spec: { egress: [{ toCIDR: [${cidr}] }] }`,
      ].join('\n');
    const run = (first: string, second: string): Promise<AgentUnderTest> => {
      const [a, b] = [policy('a', first), policy('b', second)];
      const load = [join(temporaryFolder({ 'all.yaml': `${a}\n---\n${b}\n` }), 'all.yaml')];
      const kubernetes = { ...KUBERNETES, load };
      return startAgent([], '', { kubernetes, stateDir, nodeName: 'node-1', clusterName: 'default' });
    };
    const numberOf = ({ agent }: AgentUnderTest, cidr: string): number | undefined =>
      agent.ipcache.get(cidr)?.source === 'generated' ? agent.ipcache.get(cidr)?.identity : undefined;
    const before = await run('203.0.113.0/24', '198.51.100.0/24');
    await until('the CIDR has a number', () => numberOf(before, '198.51.100.0/24') !== undefined);
    const had = numberOf(before, '198.51.100.0/24') ?? 0;
    expect(before.agent.labelsOf(had)?.map(({ key }) => key)).toContain('198.51.100.0/24');
    await before.agent.stop();
    const after = await run('192.0.2.0/24', '198.51.100.0/24');
    await until('the CIDR has its number again', () => numberOf(after, '198.51.100.0/24') !== undefined);
    expect(numberOf(after, '198.51.100.0/24')).toBe(had);
    expect(numberOf(after, '192.0.2.0/24')).toBeGreaterThan(had);
    await until(
      'nothing is restored any longer',
      () => after.agent.status().checkpoint?.restored.length === 0,
    );
    expect(after.agent.ipcache.get('203.0.113.0/24')).toBeUndefined();
  });

  it('watches only the configured kinds', async () => {
    const { agent } = await start({ watch: ['services'] });
    expect(agent.status().kubernetes?.kinds.map(({ name }) => name)).toEqual([
      'services',
      'endpointslices',
      'endpoints',
    ]);
    expect(agent.nodes.size).toBe(0);
  });

  it('follows the API server of a kubeconfig over HTTP, names the missing right, and continues without it; logs its loss', async () => {
    const server = new MemoryApiServer({ clock: systemClock });
    server.deny('list', 'ciliumnodes');
    const http = new ApiHttpServer(server);
    const address = await http.listen();
    onTestFinished(() => http.close());
    const service = { metadata: { name: 'cart' }, spec: { clusterIP: '10.96.0.22', ports: [{ port: 80 }] } };
    const made = await fetch(`http://${address}/api/v1/namespaces/shop/services`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(service),
    });
    expect(made.status).toBe(201);
    const kubeconfig = join(temporaryFolder({ config: kubeconfigOf(`http://${address}`) }), 'config');
    const kubernetes = { ...KUBERNETES, load: [], kubeconfig, context: 'here' };
    const options = {
      ...NO_INPUTS,
      kubernetes,
      clusterName: 'default',
      timeoutMs: 6_000,
      historyMemory: 1 << 20,
    };
    const clock = new FakeClock();
    const logged: string[] = [];
    const log = createLog('warn', 'text', { write: (line) => logged.push(line) });
    const agent = new Agent(options, { log, clock, random: () => 0.5 });
    onTestFinished(() => agent.stop());
    const started = agent.start(new AbortController().signal);
    await until('every kind is synced or forbidden', () => {
      const kinds = agent.status().kubernetes?.kinds ?? [];
      const settled = kinds.filter(({ state }) => ['watching', 'resting', 'forbidden'].includes(state));
      return kinds.length > 0 && settled.length === kinds.length;
    });
    await clock.advance(6_000); // the start waits for all retries, because the permission is never granted
    const missing = await started;
    expect(missing.filter((sentence) => sentence.startsWith('Kubernetes: '))).toEqual([
      expect.stringMatching(/^Kubernetes: ciliumnodes are not complete \(forbidden\): .*list.*ciliumnodes/),
    ]);
    expect(agent.services.get({ namespace: 'shop', name: 'cart' })).toBeDefined();
    expect(agent.blockers()).toEqual(missing);
    const known = agent.history?.at('10.0.0.1', clock.wallTime());
    expect(known).toMatchObject({ certain: false, reason: 'cluster-incomplete' });
    await http.close();
    const states = (): readonly string[] => agent.status().kubernetes?.kinds.map(({ state }) => state) ?? [];
    await until('no kind is watched', () => !states().includes('watching'));
    await clock.advance(10_000);
    expect(logged.join('')).toContain(
      'warn  Kubernetes: unreachable, serving the state of 2026-11-20T12:00:0',
    );
  });

  it('fails to start with an invalid kubeconfig, and reports the reason', async () => {
    const folder = temporaryFolder({ config: 'current-context: nowhere\ncontexts: []\n' });
    await expect(start({ load: [], kubeconfig: join(folder, 'config') })).rejects.toThrow(/nowhere/);
    await expect(start({ load: [], kubeconfig: join(folder, 'missing') })).rejects.toThrow(/missing/);
  });
});

describe('examples/kubernetes', () => {
  it('--k8s-node-name selects the local node if the host has another name: its addresses are host', async () => {
    const words = [
      'ipcache',
      'get',
      '192.168.10.1',
      '--k8s-load',
      example('kubernetes/cluster.yaml'),
      '-o',
      'json',
    ];
    const identityWith = async (...names: readonly string[]): Promise<unknown> =>
      JSON.parse((await dpcache(...words, '--node-name', 'ip-10-0-0-1', ...names)).stdout).identity;
    expect(await identityWith()).not.toBe(1);
    expect(await identityWith('--k8s-node-name', 'node-1')).toBe(1);
  });

  it('grants exactly what the agent requests from an API server', async () => {
    const text = readFileSync(new URL('../../deploy/base/agent.yaml', import.meta.url), 'utf8');
    const documents = parseAllDocuments(text).map((document): { kind: string; rules?: readonly Rule[] } =>
      document.toJS(),
    );
    const optional: readonly Rule[] = [...text.matchAll(/^ {2}# - (\{.*)$/gm)].map(([, rule]) =>
      parse(rule ?? ''),
    );
    const rules = documents.find(({ kind }) => kind === 'ClusterRole')?.rules ?? [];
    const rightsOf = (those: readonly Rule[]): readonly string[] =>
      those.flatMap(({ apiGroups, resources, verbs }) =>
        apiGroups.flatMap((group) => resources.map((plural) => `${group}/${plural} ${verbs.join(',')}`)),
      );
    // Optional permissions: for API servers without EndpointSlices.
    expect(rightsOf(optional)).toEqual(['/endpoints list,watch']);
    const granted = [...rightsOf(rules), ...rightsOf(optional)];
    // With slices and without them: an API server may have either.
    const asked = new Set<string>();
    for (const missing of [[], ['endpointslices']]) {
      const cluster = new FakeCluster();
      for (const plural of missing) cluster.missing.add(plural);
      const makeFeed = (made: ConstructorParameters<typeof KubernetesFeed>[0]): KubernetesFeed =>
        new KubernetesFeed(made);
      await new FeedWorld({ makeFeed, metadata: new RecordingMetadata() }, cluster).started();
      for (const { kind } of cluster.followers) asked.add(`${kind.group}/${kind.plural} list,watch`);
    }
    expect([...granted].sort()).toEqual([...asked].sort());
  });

  it.each([
    ['--context without a kubeconfig', ['--context', 'a'], '--context requires --kubeconfig'],
    [
      'two API servers',
      ['--kubeconfig', 'a', '--k8s-load', 'b'],
      '--k8s-load and --kubeconfig cannot be combined',
    ],
    ['one that is off', ['--k8s', 'off', '--kubeconfig', 'a'], '--k8s off'],
    [
      'services from two sides',
      ['--kubeconfig', 'a', '--manifests', 'b'],
      'remove services from --k8s-watch',
    ],
    ['parts that there are not', ['--k8s-watch', 'services,clouds'], "'clouds'"],
  ])('the command line is rejected with %s', async (_, words, why) => {
    const { status, stderr } = await dpcache('agent', '--once', ...words);
    expect(stderr).toContain(why);
    expect(status).toBe(2);
  });
});

function kubeconfigOf(server: string): string {
  return JSON.stringify({
    apiVersion: 'v1',
    kind: 'Config',
    'current-context': 'elsewhere',
    clusters: [{ name: 'c', cluster: { server } }],
    users: [{ name: 'u', user: {} }],
    contexts: [{ name: 'here', context: { cluster: 'c', user: 'u' } }],
  });
}

interface Rule {
  readonly apiGroups: readonly string[];
  readonly resources: readonly string[];
  readonly verbs: readonly string[];
}
