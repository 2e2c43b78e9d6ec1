import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { Agent } from '../../src/agent/agent.ts';
import { AgentApi } from '../../src/agent/agent-api.ts';
import { KubernetesFollower } from '../../src/agent/kubernetes-follower.ts';
import type { KubernetesOptions } from '../../src/agent/options.ts';
import { StateFiles } from '../../src/agent/state-files.ts';
import { StateKeeper } from '../../src/agent/state-keeper.ts';
import { deferred } from '../../src/base/sleep.ts';
import { systemClock } from '../../src/base/system-clock.ts';
import { TurnGate } from '../../src/base/turn-gate.ts';
import { IPCache } from '../../src/ipcache/ipcache.ts';
import { encodeClusterEndpointSlice } from '../../src/kvstore/codec/cluster-endpoint-slice.ts';
import type { ClusterIdentity } from '../../src/model/identity-cache.ts';
import { NodeManager } from '../../src/nodemanager/node-manager.ts';
import { ConfigFolder } from '../../src/process/config-folder.ts';
import { createLog } from '../../src/process/log.ts';
import { PROCESS_STOP_MS } from '../../src/process/start-step.ts';
import { Restoration } from '../../src/restore/restoration.ts';
import { ServiceCache } from '../../src/servicecache/service-cache.ts';
import { ManualClock } from '../base/support/manual-clock.ts';
import { until } from '../base/support/until.ts';
import { NO_INPUTS, startAgent, type TestKey } from './support/agent-under-test.ts';
import { FakeClock, settle } from './support/fake-clock.ts';
import { NO_KUBERNETES } from './support/kubernetes-options.ts';
import { temporaryFolder } from './support/temporary-folder.ts';
import { config, ip } from './support/test-keys.ts';

const node = (cluster: string, name: string, address: string): TestKey => [
  cluster,
  `cilium/state/nodes/v1/${cluster}/${name}`,
  { Name: name, Cluster: cluster, IPAddresses: [{ Type: 'InternalIP', IP: address }] },
];
const identity = (cluster: string, number: number): TestKey => [
  cluster,
  `cilium/state/identities/v1/id/${number}`,
  `k8s:app=${cluster};`,
];
const offer = (cluster: string): TestKey => [
  cluster,
  `cilium/state/services/v1/${cluster}/shop/cart`,
  {
    cluster,
    namespace: 'shop',
    name: 'cart',
    clusterID: 2,
    shared: true,
    includeExternal: true,
    frontends: {},
    labels: {},
    selector: {},
    backends: { '10.2.0.1': { http: { Port: 8080, Protocol: 'TCP' } } },
  },
];

const OWN: readonly TestKey[] = [
  config('own', 1),
  ip('own', '10.1.0.1', 66_000),
  identity('own', 66_000),
  node('own', 'n1', '192.168.0.1'),
];
const BALTIC: readonly TestKey[] = [
  config('baltic', 2),
  ip('baltic', '10.2.0.1', 131_500),
  identity('baltic', 131_500),
  node('baltic', 'n1', '192.168.2.1'),
  offer('baltic'),
];
const CART = `
apiVersion: v1
kind: Service
metadata: { namespace: shop, name: cart, annotations: { service.cilium.io/global: 'true' } }
spec: { clusterIP: 172.16.0.10, ports: [{ name: http, port: 80 }] }
`;

/** A folder of a mesh whose one remote cluster is out of reach. */
function unreachable(): string {
  return temporaryFolder({ baltic: 'endpoints:\n- http://127.0.0.1:1\n' });
}

/** Options to follow an API server that is out of reach. */
function unreachableKubernetes(): KubernetesOptions {
  const kubeconfig = {
    clusters: [{ name: 'c', cluster: { server: 'http://127.0.0.1:1' } }],
    users: [{ name: 'u', user: {} }],
    contexts: [{ name: 'x', context: { cluster: 'c', user: 'u' } }],
    'current-context': 'x',
  };
  return {
    ...NO_KUBERNETES,
    kubeconfig: join(temporaryFolder({ config: JSON.stringify(kubeconfig) }), 'config'),
  };
}

async function ask(agent: Agent, path: string): Promise<unknown> {
  const log = createLog('error', 'text', { write: () => {} });
  const api = new AgentApi(agent, { log, clock: systemClock });
  try {
    return await api.ask(path);
  } finally {
    await api.stop();
  }
}

/** Runs an agent until it has seen both clusters, and stops it. */
async function firstRun(stateDir: string): Promise<void> {
  const { agent, missing } = await startAgent([...OWN, ...BALTIC], CART, { stateDir });
  expect(missing).toEqual([]);
  await agent.stop();
  expect(readdirSync(stateDir)).toEqual(['checkpoint']);
}

describe('a state folder', () => {
  it('of a running agent rejects a second agent until the first has ended (regression: both wrote checkpoints)', async () => {
    const stateDir = temporaryFolder({});
    const { agent } = await startAgent(OWN, CART, { stateDir });
    await expect(startAgent(OWN, CART, { stateDir })).rejects.toThrow(
      `--state-dir ${stateDir}: in use by the process with pid ${process.pid}: stop it, or set another folder`,
    );
    await agent.stop();
    expect(readdirSync(stateDir)).toEqual(['checkpoint']);
    expect((await startAgent(OWN, CART, { stateDir })).missing).toEqual([]);
  });

  it('on a full disk does not prevent the start because of its lock', async () => {
    const stateDir = join(temporaryFolder({}), 'x'.repeat(100));
    const { agent, logged } = await startAgent(OWN, CART, { stateDir });
    expect(logged).toEqual([expect.stringContaining(`--state-dir ${stateDir}: cannot lock the folder: `)]);
    await agent.stop();
    expect(readdirSync(stateDir)).toEqual(['checkpoint']);
  });

  it('whose checkpoint is a FIFO does not block the agent (regression: it neither started nor ended)', async () => {
    const stateDir = temporaryFolder({});
    execFileSync('mkfifo', [join(stateDir, 'checkpoint')]);
    const { agent, logged } = await startAgent(OWN, CART, { stateDir });
    expect(logged).toEqual([
      `warn  --state-dir ${stateDir}: cannot read the checkpoint: is a FIFO, not a file; the agent starts without it`,
    ]);
    await agent.stop();
    expect(statSync(join(stateDir, 'checkpoint')).isFile()).toBe(true);
  });
});

/** Returns a keeper of a folder, with new engines. */
function keeperOf(
  stateDir: string,
  clock: ManualClock,
  identities: () => readonly ClusterIdentity[] = () => [],
  staleClusters: () => readonly (readonly [string, number])[] = () => [],
  clusterID: () => number = () => 0,
): { readonly keeper: StateKeeper; readonly ipcache: IPCache; readonly logged: readonly string[] } {
  const ipcache = new IPCache();
  const logged: string[] = [];
  const keeper = new StateKeeper({
    path: stateDir,
    clusterName: 'own',
    nodeName: 'here',
    clusterID,
    clock,
    onReject: () => {},
    engines: {
      ipcache,
      nodes: new NodeManager({ ipcache, clock, clusterName: 'own', nodeName: 'here' }),
      services: new ServiceCache({ clusterName: 'own' }),
    },
    gate: new TurnGate({ clock, nextTurn: setImmediate }),
    log: createLog('error', 'text', { write: (line) => logged.push(line.trimEnd()) }),
    identities,
    identityVersion: () => String(identities().length),
    staleClusters,
  });
  return { keeper, ipcache, logged };
}

describe('a start that is interrupted while it restores', () => {
  it('keeps the whole checkpoint, even if something changes before the stop', async () => {
    const stateDir = temporaryFolder({});
    await firstRun(stateDir);
    const whole = readFileSync(join(stateDir, 'checkpoint'));
    const clock = new ManualClock();
    const { keeper, ipcache } = keeperOf(stateDir, clock);
    const step = keeper.step();
    await step.start({ signal: AbortSignal.abort(), progress: () => {} });
    ipcache.upsert('10.9.9.9', { identity: 7, source: 'kvstore' });
    await step.stop?.();
    expect(readFileSync(join(stateDir, 'checkpoint')).equals(whole)).toBe(true);
    expect(clock.pending).toBe(0);
  });
});

it('restored services that are not removed are an error in the log', async () => {
  const release = vi.spyOn(Restoration.prototype, 'releaseOffers').mockRejectedValue(new Error('busy'));
  const { keeper, logged } = keeperOf(temporaryFolder({}), new ManualClock());
  keeper.releaseRestoredOffers('baltic');
  await settle();
  expect(release).toHaveBeenCalledWith('baltic');
  expect(logged).toEqual(['error cluster baltic: cannot remove the restored services: busy']);
});

describe('a checkpoint', () => {
  it('may take longer to write at the stop than a read takes to be abandoned', async () => {
    const step = keeperOf(temporaryFolder({}), new ManualClock()).keeper.step();
    const { stopMs } = step;
    await step.start({ signal: new AbortController().signal, progress: () => {} });
    expect(step.stopMs).toBeGreaterThan(Number(stopMs));
    await step.stop?.();
  });

  it('that is not written before the process ends is reported (regression: the process ended first, without a message)', async () => {
    const step = keeperOf(temporaryFolder({}), new ManualClock()).keeper.step();
    await step.start({ signal: new AbortController().signal, progress: () => {} });
    expect(step.stopMs).toBeLessThan(PROCESS_STOP_MS);
    await step.stop?.();
  });

  it('has the age of its state in wall time', async () => {
    const stateDir = temporaryFolder({});
    const clock = new ManualClock();
    const context = { signal: new AbortController().signal, progress: () => {} };
    const first = keeperOf(stateDir, clock);
    const step = first.keeper.step();
    await step.start(context);
    first.ipcache.upsert('10.2.0.1', { identity: 7, source: 'clustermesh', owner: 'baltic' });
    const knownAt = new Date(clock.wallTime()).toISOString();
    await step.stop?.();
    clock.advance(90_000);
    const { keeper } = keeperOf(stateDir, clock);
    const second = keeper.step();
    await second.start(context);
    expect(keeper.restored('baltic')).toEqual({ knownAt, ageSeconds: 90 });
    await second.stop?.();
  });

  it('is written again when a cluster becomes stale or ready, or the id of its own changes (regression: only after another change)', async () => {
    const clock = new ManualClock();
    let id = 0;
    let stale: readonly (readonly [string, number])[] = [];
    const { keeper } = keeperOf(
      temporaryFolder({}),
      clock,
      undefined,
      () => stale,
      () => id,
    );
    const step = keeper.step();
    await step.start({ signal: new AbortController().signal, progress: () => {} });
    const written = async (): Promise<number> => {
      clock.advance(60_000);
      await until('the next timer is set', () => clock.pending === 1);
      return keeper.status().written;
    };
    const before = await written();
    stale = [['baltic', clock.wallTime()]];
    expect(await written()).toBe(before + 1);
    expect(await written()).toBe(before + 1);
    stale = [];
    expect(await written()).toBe(before + 2);
    id = 5;
    expect(await written()).toBe(before + 3);
    await step.stop?.();
  });

  it('is not written at a stop without changes (regression: closed clusters counted as stale)', async () => {
    const clock = new ManualClock();
    const { agent } = await startAgent([...OWN, ...BALTIC], CART, { stateDir: temporaryFolder({}) }, clock);
    clock.advance(60_000);
    const written = (): number | undefined => agent.status().checkpoint?.written;
    await until('the checkpoint is written', () => written() === 1);
    await agent.stop();
    expect(written()).toBe(1);
  });

  it('keeps the age of a cluster that was unreachable when it was written', async () => {
    const stateDir = temporaryFolder({});
    const clock = new ManualClock();
    const context = { signal: new AbortController().signal, progress: () => {} };
    const readyUntil = clock.wallTime();
    const first = keeperOf(stateDir, clock, undefined, () => [['baltic', readyUntil]]);
    const step = first.keeper.step();
    await step.start(context);
    first.ipcache.upsert('10.2.0.1', { identity: 7, source: 'clustermesh', owner: 'baltic' });
    clock.advance(90_000);
    await step.stop?.();
    const { keeper } = keeperOf(stateDir, clock);
    const second = keeper.step();
    await second.start(context);
    expect(keeper.restored('baltic')).toMatchObject({ ageSeconds: 90 });
    await second.stop?.();
  });

  it('is written at the stop while the folder is still locked', async () => {
    const stateDir = temporaryFolder({});
    const { keeper, ipcache } = keeperOf(stateDir, new ManualClock());
    const step = keeper.step();
    await step.start({ signal: new AbortController().signal, progress: () => {} });
    ipcache.upsert('10.9.9.9', { identity: 7, source: 'kvstore' });
    const locked: boolean[] = [];
    const { rename } = StateFiles.prototype;
    vi.spyOn(StateFiles.prototype, 'rename').mockImplementation(async function (this: StateFiles, ...names) {
      await rename.apply(this, names);
      locked.push(existsSync(join(stateDir, 'lock')));
    });
    onTestFinished(() => void vi.restoreAllMocks());
    await step.stop?.();
    expect([locked, readdirSync(stateDir)]).toEqual([[true], ['checkpoint']]);
  });

  it('is written again after a release that changes no engine, and no longer contains the cluster', async () => {
    const stateDir = temporaryFolder({});
    const clock = new ManualClock();
    const context = { signal: new AbortController().signal, progress: () => {} };
    const had: ClusterIdentity[] = [];
    const first = keeperOf(stateDir, clock, () => had).keeper.step();
    await first.start(context);
    had.push({ identity: 131_500, labels: [], cluster: 'baltic' });
    await first.stop?.();

    const { keeper } = keeperOf(stateDir, clock);
    const second = keeper.step();
    await second.start(context);
    expect(keeper.restoration.clusters).toEqual(['baltic']);
    await keeper.releaseRestored('baltic');
    await second.stop?.();

    const { keeper: third } = keeperOf(stateDir, clock);
    const step = third.step();
    await step.start(context);
    const { restoration } = third;
    expect([restoration.clusters, [...restoration.identities()]]).toEqual([[], []]);
    await step.stop?.();
  });
});

describe('an agent that is restarted', () => {
  it('answers from the last known state of an unreachable cluster, and reports its age', async () => {
    const stateDir = temporaryFolder({});
    await firstRun(stateDir);
    const { agent, missing } = await startAgent(OWN, CART, { stateDir, clustermeshConfig: unreachable() });
    expect(missing.join(' ')).toContain('cluster baltic is incomplete');
    const restored = { knownAt: expect.any(String), ageSeconds: expect.any(Number) };
    const entry = {
      identity: 131_500,
      labels: ['k8s:app=baltic'],
      source: 'restored',
      owner: 'baltic',
      restored,
    };
    expect(await ask(agent, '/v1/ipcache/lookup/10.2.0.1')).toMatchObject(entry);
    expect(await ask(agent, '/v1/ipcache/explain/10.2.0.1')).toMatchObject({ claims: [{ restored }] });
    expect(await ask(agent, '/v1/ipcache/lookup/192.168.2.1')).toMatchObject({
      owner: 'baltic/n1',
      restored,
    });
    expect(await ask(agent, '/v1/nodes/baltic/n1')).toMatchObject({ source: 'restored', restored });
    expect(await ask(agent, '/v1/identities/131500')).toMatchObject({ restored });
    expect(await ask(agent, '/v1/services/shop/cart')).toMatchObject({
      backends: [{ address: '10.2.0.1', cluster: 'baltic' }],
      restored,
    });
    const own = await ask(agent, '/v1/ipcache/lookup/10.1.0.1');
    expect(own).toMatchObject({ source: 'kvstore' });
    expect(own).not.toHaveProperty('restored');
    const awaited = [{ cluster: 'baltic', ...restored }];
    await expect.poll(() => agent.status().checkpoint?.restored).toEqual(awaited);
  });

  it('keeps restored entries of a cluster until the cluster is complete, and no longer', async () => {
    const stateDir = temporaryFolder({});
    await firstRun(stateDir);
    const changed = [config('own', 1), ip('own', '10.1.0.9', 66_000), ...BALTIC.slice(0, 2)];
    const { agent, missing, state } = await startAgent(changed, '', { stateDir });
    expect(missing).toEqual([]);
    await expect.poll(() => agent.status().checkpoint?.restored).toEqual([]);
    expect(Object.keys(state().ipcache)).toEqual(['10.1.0.9/32', '10.2.0.1/32']);
    expect(state()).toMatchObject({ nodes: [], services: {} });
    expect([...agent.identities()]).toEqual([]);
    expect(Array.from(agent.ipcache.entries(), ({ source }) => source)).not.toContain('restored');
  });

  it('keeps restored entries of a complete cluster until the initial sync is done, because another source may have them', async () => {
    const stateDir = temporaryFolder({});
    await firstRun(stateDir);
    const lines = [config('own', 1), ip('own', '10.1.0.9', 66_000)].map(([store, key, value]) =>
      JSON.stringify({ store, key, value: JSON.stringify(value) }),
    );
    const load = [join(temporaryFolder({ 'mesh.jsonl': lines.join('\n') }), 'mesh.jsonl')];
    const log = createLog('silent', 'text', { write: () => {} });
    const silent = createServer((socket) => socket.on('error', () => {})).listen(0, '127.0.0.1');
    onTestFinished(() => void silent.close());
    await once(silent, 'listening');
    const { port } = silent.address() as AddressInfo;
    const clustermeshConfig = temporaryFolder({ baltic: `endpoints: ["http://127.0.0.1:${port}"]\n` });
    const agent = new Agent(
      { ...NO_INPUTS, load, stateDir, clustermeshConfig },
      { log, clock: systemClock, random: () => 0.5 },
    );
    onTestFinished(() => agent.stop());
    const started = agent.start(new AbortController().signal);
    const stateOf = (name: string): string | undefined =>
      agent.status().steps.find((step) => step.name === name)?.state;
    await expect.poll(() => stateOf('initial sync of the local cluster')).toBe('done');
    await settle();
    expect(stateOf('initial sync of the remote clusters')).toBe('running');
    expect(agent.ipcache.lookup('10.1.0.1')).toMatchObject({ source: 'restored' });
    await agent.stop();
    await started;
  });

  describe('with endpoint slices of a remote cluster', () => {
    const slice = (name: string, addresses: readonly string[], terminating = false): TestKey => [
      'baltic',
      `cilium/state/endpointslices/v1/baltic/shop/${name}`,
      encodeClusterEndpointSlice({
        cluster: 'baltic',
        clusterID: 2,
        namespace: 'shop',
        name,
        addressType: 'IPv4',
        labels: new Map([['kubernetes.io/service-name', 'cart']]),
        annotations: new Map(),
        endpoints: addresses.map((address) => ({
          addresses: [address],
          conditions: { ready: !terminating, serving: true, terminating },
          nodeName: 'n1',
          zone: 'z1',
          forZones: ['z1'],
          deprecatedTopology: new Map(),
        })),
        ports: [{ name: 'http', port: 8080, protocol: 6 }],
      }),
    ];
    const only: TestKey = [
      'baltic',
      'cilium/cluster-config/baltic',
      { id: 2, capabilities: { endpointSlicesExportMode: 'endpointslices-only' } },
    ];
    const sliced = [only, slice('cart-a', ['10.2.0.1', '10.2.0.2']), slice('cart-b', ['10.2.0.3'], true)];

    async function backendsOf(agent: Agent): Promise<readonly unknown[]> {
      const { backends } = (await ask(agent, '/v1/services/shop/cart')) as { readonly backends: unknown[] };
      return backends;
    }

    it('keeps their backends while the cluster is unreachable, with zones and states', async () => {
      const stateDir = temporaryFolder({});
      const first = await startAgent([...OWN, ...sliced], CART, { stateDir });
      const known = await backendsOf(first.agent);
      expect(known).toMatchObject([
        { address: '10.2.0.1', cluster: 'baltic', nodeName: 'n1', zone: 'z1' },
        { address: '10.2.0.2', cluster: 'baltic' },
        { address: '10.2.0.3', cluster: 'baltic', state: 'terminating' },
      ]);
      await first.agent.stop();
      const { agent } = await startAgent(OWN, CART, { stateDir, clustermeshConfig: unreachable() });
      expect(await backendsOf(agent)).toEqual(known);
      expect(agent.services.explain({ namespace: 'shop', name: 'cart' })?.origins).toEqual([
        { cluster: 'baltic', slice: 'cart-a', backends: 2 },
        { cluster: 'baltic', slice: 'cart-b', backends: 1 },
      ]);
    });

    it.each<[string, readonly TestKey[], readonly object[]]>([
      ['without a slice', sliced.slice(0, 2), [{ address: '10.2.0.1' }, { address: '10.2.0.2' }]],
      ['with services/v1', [config('baltic', 2), offer('baltic')], [{ address: '10.2.0.1' }]],
      ['without services', [config('baltic', 2)], []],
    ])('releases what a cluster that returns %s no longer has', async (_how, returned, expected) => {
      const stateDir = temporaryFolder({});
      await (await startAgent([...OWN, ...sliced], CART, { stateDir })).agent.stop();
      const { agent } = await startAgent([...OWN, ...returned], CART, { stateDir });
      await expect.poll(() => agent.status().checkpoint?.restored).toEqual([]);
      const backends = await backendsOf(agent);
      expect(backends).toMatchObject(expected);
      expect(backends).toHaveLength(expected.length);
    });
  });

  it('releases the restored state of a cluster that is no longer in the mesh', async () => {
    const stateDir = temporaryFolder({});
    await firstRun(stateDir);
    const { agent, state } = await startAgent(OWN, CART, { stateDir });
    await expect.poll(() => agent.status().checkpoint?.restored).toEqual([]);
    expect(Object.keys(state().ipcache)).toEqual(['10.1.0.1/32', '192.168.0.1/32']);
    expect(state().services).toEqual({ 'shop/cart': {} });
  });

  it('keeps the restored state of a cluster with an unusable configuration until its file is deleted (regression: released)', async () => {
    const stateDir = temporaryFolder({});
    await firstRun(stateDir);
    const clustermeshConfig = temporaryFolder({ baltic: 'endpoints: 7\n' });
    const { agent } = await startAgent(OWN, CART, { stateDir, clustermeshConfig });
    const clusters = (): readonly string[] =>
      agent.status().checkpoint?.restored.map(({ cluster }) => cluster) ?? [];
    await expect.poll(clusters).toEqual(['baltic']);
    expect(agent.ipcache.get('10.2.0.1')).toMatchObject({ source: 'restored', owner: 'baltic' });
    rmSync(join(clustermeshConfig, 'baltic'));
    await expect.poll(clusters).toEqual([]);
    expect(agent.ipcache.get('10.2.0.1')).toBeUndefined();
  });

  it('keeps the restored state of a cluster whose configuration is being rewritten at the start (regression: released)', async () => {
    const stateDir = temporaryFolder({});
    await firstRun(stateDir);
    const clustermeshConfig = temporaryFolder({ baltic: '' });
    const { agent } = await startAgent(OWN, CART, { stateDir, clustermeshConfig });
    const clusters = (): readonly string[] =>
      agent.status().checkpoint?.restored.map(({ cluster }) => cluster) ?? [];
    await expect.poll(clusters).toEqual(['baltic']);
    rmSync(join(clustermeshConfig, 'baltic'));
    await expect.poll(clusters).toEqual([]);
  });

  it('withdraws the restored services of a cluster with an unusable configuration after the service TTL (regression: never)', async () => {
    const stateDir = temporaryFolder({});
    await firstRun(stateDir);
    const clustermeshConfig = temporaryFolder({ baltic: 'endpoints: 7\n' });
    const { agent, state } = await startAgent(OWN, CART, { stateDir, clustermeshConfig, serviceTTLMs: 50 });
    await expect.poll(() => state().services).toEqual({ 'shop/cart': {} });
    expect(agent.ipcache.get('10.2.0.1')).toMatchObject({ source: 'restored', owner: 'baltic' });
  });

  it('keeps the restored services of a cluster that is followed late until its own service TTL ends', async () => {
    const stateDir = temporaryFolder({});
    await firstRun(stateDir);
    const clustermeshConfig = temporaryFolder({ baltic: '' });
    const clock = new FakeClock();
    const begun = clock.now();
    const options = { stateDir, clustermeshConfig, serviceTTLMs: 60_000 };
    const { agent, state } = await startAgent(OWN, CART, options, clock);
    writeFileSync(join(clustermeshConfig, 'baltic'), 'endpoints:\n- http://127.0.0.1:1\n');
    await until('the cluster is followed', async () => {
      await clock.advance(100);
      return agent.cluster('baltic') !== undefined;
    });
    await clock.advance(begun + 60_000 - clock.now());
    expect(state().services).toEqual({ 'shop/cart': { '10.2.0.1': expect.anything() } });
    await clock.advance(60_000);
    await expect.poll(() => state().services).toEqual({ 'shop/cart': {} });
  });

  it('that is stopped does not wait for the service TTL of clusters that are not followed', async () => {
    const clock = new FakeClock();
    const options = { stateDir: temporaryFolder({}), serviceTTLMs: 60_000 };
    const { agent } = await startAgent(OWN, CART, options, clock);
    await agent.stop();
    expect(clock.pending).toBe(0);
  });

  it('keeps the restored state of remote clusters if their folder cannot be read at the start (regression: released)', async () => {
    vi.spyOn(ConfigFolder.prototype, 'list').mockRejectedValue(new Error('busy'));
    onTestFinished(() => void vi.restoreAllMocks());
    const stateDir = temporaryFolder({});
    await firstRun(stateDir);
    const options = { stateDir, clustermeshConfig: unreachable(), timeoutMs: 1 };
    const { agent } = await startAgent(OWN, CART, options);
    await expect.poll(() => agent.status().checkpoint?.restored).toMatchObject([{ cluster: 'baltic' }]);
    expect(agent.ipcache.get('10.2.0.1')).toMatchObject({ source: 'restored', owner: 'baltic' });
  });

  it('releases a complete remote cluster although Kubernetes is out of reach, and keeps the local one', async () => {
    const stateDir = temporaryFolder({});
    await firstRun(stateDir);
    const kubernetes = { ...unreachableKubernetes(), watch: ['services'] } as const; // no kvstore has them
    const options = { stateDir, timeoutMs: 1, kubernetes };
    const { agent } = await startAgent([...OWN, ...BALTIC.slice(0, 2)], CART, options);
    const clusters = (): readonly string[] =>
      agent.status().checkpoint?.restored.map(({ cluster }) => cluster) ?? [];
    await expect.poll(clusters).toEqual(['own']);
    expect(agent.nodes.get('baltic/n1')).toBeUndefined();
    // The local kvstore has the identity, so it is not only restored, and is listed once.
    expect([...agent.identities()].map(({ identity }) => identity)).toEqual([66_000]);
    expect(await ask(agent, '/v1/identities/66000')).not.toHaveProperty('restored');
  });

  it('keeps restored entries of the local cluster until the labels of all received prefixes are claims', async () => {
    const stateDir = temporaryFolder({});
    await firstRun(stateDir);
    const { promise: waiting, resolve: labelled } = deferred();
    vi.spyOn(KubernetesFollower.prototype, 'waitForLabels').mockReturnValue(waiting);
    const kubernetes = unreachableKubernetes();
    const changed = [config('own', 1), ip('own', '10.1.0.9', 66_000)];
    const { agent } = await startAgent(changed, '', { stateDir, kubernetes });
    await settle();
    expect(agent.ipcache.get('10.1.0.1')).toMatchObject({ source: 'restored' });
    labelled();
    await expect.poll(() => agent.status().checkpoint?.restored).toEqual([]);
    expect(agent.ipcache.get('10.1.0.1')).toBeUndefined();
  });

  it('keeps restored entries over the next restart, with their age', async () => {
    const stateDir = temporaryFolder({});
    await firstRun(stateDir);
    const clustermeshConfig = unreachable();
    const second = await startAgent(OWN, CART, { stateDir, clustermeshConfig });
    await expect.poll(() => second.agent.status().checkpoint?.restored).toHaveLength(1);
    const age = second.agent.status().checkpoint?.restored[0]?.knownAt;
    await second.agent.stop();
    const third = await startAgent(OWN, CART, { stateDir, clustermeshConfig });
    expect(third.agent.ipcache.lookup('10.2.0.1')).toMatchObject({ source: 'restored', owner: 'baltic' });
    const kept = [{ cluster: 'baltic', knownAt: age }];
    await expect.poll(() => third.agent.status().checkpoint?.restored).toMatchObject(kept);
  });

  it('starts without its etcd if the checkpoint has no other node (regression: the id of its cluster was unknown)', async () => {
    const stateDir = temporaryFolder({});
    const first = await startAgent([config('own', 1), ip('own', '10.1.0.1', 66_000)], '', { stateDir });
    await first.agent.stop();
    const kvstoreConfig = join(unreachable(), 'baltic');
    const options = { stateDir, kvstore: 'etcd', kvstoreConfig, timeoutMs: 1 } as const;
    const { agent } = await startAgent([], '', options);
    expect(agent.status().clusterID).toBe(1);
    agent.ipcache.upsert('10.9.9.9', { identity: 7, source: 'kvstore' });
    await agent.stop();
    expect((await startAgent([], '', options)).agent.status().clusterID).toBe(1);
  });

  it('starts without a damaged checkpoint, and reports it', async () => {
    const stateDir = temporaryFolder({});
    await firstRun(stateDir);
    const path = join(stateDir, 'checkpoint');
    writeFileSync(path, readFileSync(path).subarray(0, 100));
    const { agent, logged } = await startAgent(OWN, CART, { stateDir, clustermeshConfig: unreachable() });
    expect(agent.ipcache.lookup('10.2.0.1')).toBeUndefined();
    expect(logged.join('\n')).toContain('renamed to checkpoint.torn; the agent starts without it');
    expect(readdirSync(stateDir)).toEqual(['checkpoint.torn', 'lock']);
  });

  it('answers from the state of a Cilium agent until it has a checkpoint of its own', async () => {
    const stateDir = temporaryFolder({});
    const label = { app: { key: 'app', value: 'web', source: 'k8s' } };
    const endpoint = { ID: 7, IPv4: '10.1.0.7', K8sNamespace: 'shop', K8sPodName: 'web-7' };
    const left = (name: string, ip: string): object => ({
      Name: name,
      Cluster: 'own',
      IPAddresses: [{ Type: 'InternalIP', IP: ip }],
    });
    const local = { id: 16_777_217, labels: ['cidr:203.0.113.0/24='] };
    const importCiliumState = temporaryFolder({
      'state/7/ep_config.json': JSON.stringify({ ...endpoint, SecLabel: { id: 66_007, labels: label } }),
      'state/8/ep_config.json': '{',
      'state/nodes.json': JSON.stringify([left('n9', '192.168.0.9'), left('here', '192.168.0.1')]),
      'state/local_allocator_state.json': JSON.stringify([local]),
      'state/globals/node_config.h': ' cilium.v4.internal.raw 0xa, 0x1, 0x0, 0x1\n',
    });
    const kubernetes: KubernetesOptions = { ...unreachableKubernetes(), watch: ['nodes', 'endpoints'] };
    const options = { kubernetes, timeoutMs: 1, stateDir, importCiliumState }; // the API server is out of reach
    const { agent } = await startAgent([], '', options);
    const restored = { knownAt: expect.any(String), ageSeconds: expect.any(Number) };
    const pod = {
      namespace: 'shop',
      podName: 'web-7',
      source: 'restored',
      labels: ['k8s:app=web'],
      restored,
    };
    expect(await ask(agent, '/v1/ipcache/lookup/10.1.0.7')).toMatchObject({ identity: 66_007, ...pod });
    expect(await ask(agent, '/v1/ipcache/lookup/10.1.0.1')).toMatchObject({ identity: 1, restored });
    expect(await ask(agent, '/v1/nodes/own/n9')).toMatchObject({ source: 'restored', restored });
    expect([agent.nodes.size, agent.rejections().total]).toEqual([1, 1]);
    expect(await ask(agent, '/v1/identities/16777217')).toMatchObject({ restored });
    agent.ipcache.upsert('10.9.9.9', { identity: 9, source: 'local' }); // so that there is something to write
    await agent.stop();
    writeFileSync(
      join(importCiliumState, 'state/7/ep_config.json'),
      JSON.stringify({ ...endpoint, IPv4: '10.1.0.99' }),
    );
    const second = await startAgent([], '', options);
    expect(second.agent.ipcache.get('10.1.0.7')).toMatchObject({ identity: 66_007, source: 'restored' });
    expect(second.agent.ipcache.get('10.1.0.99')).toBeUndefined();
    await second.agent.stop();
    const missing = { ...options, stateDir: temporaryFolder({}), importCiliumState: '/nowhere' };
    const third = await startAgent([], '', missing);
    expect(third.logged.join('\n')).toMatch(
      /--import-cilium-state \/nowhere: .*; the agent starts without this state/,
    );
    expect([...third.agent.ipcache.entries()]).toEqual([]);
  });

  it('releases the imported state of a Cilium agent when the sources are complete', async () => {
    const endpoint = { ID: 7, IPv4: '10.1.0.7', SecLabel: { id: 66_007, labels: {} } };
    const importCiliumState = temporaryFolder({ '7/ep_config.json': JSON.stringify(endpoint) });
    const { agent } = await startAgent(OWN, '', { stateDir: temporaryFolder({}), importCiliumState });
    await expect.poll(() => agent.status().checkpoint?.restored).toEqual([]);
    expect(agent.ipcache.get('10.1.0.7')).toBeUndefined();
    expect(agent.ipcache.get('10.1.0.1')?.source).toBe('kvstore');
  });

  it('continues if the folder is not writable, and reports it', async () => {
    const stateDir = join(temporaryFolder({ file: '' }), 'file');
    const { agent, missing, logged } = await startAgent(OWN, CART, { stateDir });
    expect(missing).toEqual([]);
    await agent.stop();
    expect(logged.join('\n')).toContain('cannot write a checkpoint');
    expect(agent.status().checkpoint?.failure).toContain('file already exists');
  });
});
