import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { Agent } from '../../src/agent/agent.ts';
import * as datapathKeeper from '../../src/agent/datapath-keeper.ts';
import { MeshFeed } from '../../src/agent/mesh-feed.ts';
import type { AgentOptions } from '../../src/agent/options.ts';
import type { Clock } from '../../src/base/clock.ts';
import { fired } from '../../src/base/follow-signal.ts';
import { systemClock } from '../../src/base/system-clock.ts';
import * as meshes from '../../src/clustermesh/cluster-mesh.ts';
import { ConfigFollower } from '../../src/clustermesh/config-follower.ts';
import * as resolvers from '../../src/clustermesh/identity-resolver.ts';
import * as localClusters from '../../src/clustermesh/local-cluster.ts';
import type { KnownInputs } from '../../src/datapath/linux/known-inputs.ts';
import { bytesOfText } from '../../src/kvstore/codec/bytes.ts';
import { clusterConfigKey } from '../../src/kvstore/codec/keys.ts';
import { MemoryBackend } from '../../src/kvstore/memory/memory-backend.ts';
import { ConfigFolder } from '../../src/process/config-folder.ts';
import * as localEtcd from '../../src/process/local-etcd.ts';
import { createLog } from '../../src/process/log.ts';
import * as remoteEtcdsModule from '../../src/process/remote-etcds.ts';
import { REACH_MS, READ_MS, type Step } from '../../src/process/start-step.ts';
import { Startup } from '../../src/process/startup.ts';
import { RecordedMesh } from '../../src/recording/recorded-mesh.ts';
import { ManualClock } from '../base/support/manual-clock.ts';
import { spyOnConstructor } from '../base/support/spy-on-constructor.ts';
import { NO_INPUTS, startAgent, type TestKey } from './support/agent-under-test.ts';
import { settle } from './support/fake-clock.ts';
import { temporaryFolder } from './support/temporary-folder.ts';
import { config, ip } from './support/test-keys.ts';

afterEach(() => {
  vi.restoreAllMocks();
});

it('waits for the remote clusters of a folder whose first read fails (regression: started without them)', async () => {
  vi.spyOn(ConfigFolder.prototype, 'list').mockRejectedValueOnce(new Error('busy'));
  const clustermeshConfig = temporaryFolder({ baltic: 'endpoints: ["http://127.0.0.1:1"]\n' });
  const { missing } = await startAgent([], '', { clustermeshConfig });
  expect(missing).toEqual([expect.stringMatching(/^cluster baltic is incomplete: not connected/)]);
});

it('names many unreachable clusters in one sentence (regression: one line of the log for each of 249)', async () => {
  const unreachable = ['baltic', 'carib', 'delta', 'egret', 'fjord'].map((name) => [
    name,
    'endpoints: ["http://127.0.0.1:1"]\n',
  ]);
  const clustermeshConfig = temporaryFolder(Object.fromEntries(unreachable));
  const { missing, agent } = await startAgent([], '', { clustermeshConfig });
  expect(missing).toEqual([
    expect.stringMatching(
      /^5 of 5 clusters are incomplete: baltic, carib, delta and 2 more; baltic: not connected.*connection refused/,
    ),
  ]);
  expect(agent.incompleteInputs()).toHaveLength(5);
});

it('is ready after the start although a remote cluster is unreachable (regression: its outage made all agents unready)', async () => {
  const clustermeshConfig = temporaryFolder({ baltic: 'endpoints: ["http://127.0.0.1:1"]\n' });
  const log = createLog('warn', 'text', { write: () => {} });
  const options = { ...NO_INPUTS, clustermeshConfig };
  const agent = new Agent(options, { log, clock: systemClock, random: () => 0.5 });
  onTestFinished(() => agent.stop());
  const started = agent.start(new AbortController().signal);
  await expect.poll(() => agent.blockers().join()).toMatch(/cluster baltic is incomplete/);
  const missing = await started;
  expect(missing).toEqual(agent.incompleteInputs());
  expect([missing.length, agent.blockers()]).toEqual([1, []]);
});

it('logs each unusable configuration of a remote cluster that appears after the initial sync', async () => {
  const clustermeshConfig = temporaryFolder({});
  const { agent, logged } = await startAgent([], '', { clustermeshConfig });
  expect(logged).toEqual([]);
  writeFileSync(join(clustermeshConfig, 'baltic'), 'endpoints: 7\n');
  await expect
    .poll(() => logged)
    .toEqual([expect.stringMatching(/^warn {2}rejected \(unusable-config\) .*baltic/)]);
  expect(agent.rejections().byReason).toEqual({ 'unusable-config': 1 });
});

it('leaves no timer of the time limit of its initial sync behind', async () => {
  const limits: string[] = [];
  const clock: Clock = {
    now: () => systemClock.now(),
    wallTime: () => systemClock.wallTime(),
    after: (ms, callback) => {
      const timer = systemClock.after(ms, callback);
      if (ms !== 123_456) return timer;
      limits.push('set');
      return {
        cancel: () => {
          limits.push('cancelled');
          timer.cancel();
        },
      };
    },
  };
  await startAgent([], '', { timeoutMs: 123_456 }, clock);
  expect(limits).toEqual(['set', 'cancelled']);
});

it('reports the progress of its clusters in the steps of the initial sync (regression: a long one counted as stalled)', async () => {
  const steps: Step[] = [];
  for (const name of ['localSync', 'remoteSync'] as const) {
    const original = MeshFeed.prototype[name];
    vi.spyOn(MeshFeed.prototype, name).mockImplementation(function (this: MeshFeed, timeout) {
      const step = original.call(this, timeout);
      steps.push(step);
      return step;
    });
  }
  const begun = systemClock.now();
  await startAgent([config('own', 1), config('far', 2), ip('far', '10.2.0.1', 131_372)]);
  const times = steps.map((step) => step.progressAt?.() ?? 0);
  expect(times).toHaveLength(2);
  expect(Math.min(...times)).toBeGreaterThan(begun);
});

/** Starts an agent with a datapath that only records its options. Calls `during` when the start has begun. */
async function steered(
  keys: readonly TestKey[],
  options: Partial<AgentOptions> = {},
  during: (inputs: () => KnownInputs | undefined) => Promise<void> = async () => {},
): Promise<{
  readonly agent: Agent;
  readonly inputs: () => KnownInputs | undefined;
  readonly incompleteInputs: () => readonly string[] | undefined;
  readonly syncs: () => number;
}> {
  const initialSyncDone = vi.fn();
  const keeper = {
    step: () => ({ name: 'datapath', start: () => {} }),
    initialSyncDone,
    status: () => undefined,
  };
  const made = spyOnConstructor(datapathKeeper, 'DatapathKeeper', () => keeper);
  const inputs = (): KnownInputs | undefined => made.mock.calls[0]?.[0]?.knownInputs();
  const starting = startAgent(keys, '', { datapath: { dryRun: true } as never, ...options });
  await during(inputs);
  const { agent } = await starting;
  const incompleteInputs = (): readonly string[] | undefined => made.mock.calls[0]?.[0]?.incompleteInputs();
  return { agent, inputs, incompleteInputs, syncs: () => initialSyncDone.mock.calls.length };
}

describe('the inputs of the datapath', () => {
  it('are known when all clusters are complete, and the first sync is reported once', async () => {
    const { inputs, syncs } = await steered([
      config('own', 1),
      config('far', 2),
      ip('far', '10.2.0.1', 131_372),
    ]);
    await expect
      .poll(inputs)
      .toEqual({ areLocalEntriesKnown: true, isLocalComplete: true, areClustersKnown: true, isSynced: true });
    expect(syncs()).toBe(1);
  });

  it('are not known while a remote cluster is unreachable', async () => {
    const clustermeshConfig = temporaryFolder({ far: 'endpoints: ["http://127.0.0.1:1"]\n' });
    const { inputs, incompleteInputs } = await steered([config('own', 1)], { clustermeshConfig }, (before) =>
      expect.poll(before).toMatchObject({ areLocalEntriesKnown: true, isSynced: false }),
    );
    expect(inputs()).toEqual({
      areLocalEntriesKnown: true,
      isLocalComplete: true,
      areClustersKnown: false,
      isSynced: true,
    });
    expect(incompleteInputs()).toHaveLength(1);
  });

  it('are not known while the configuration of a remote cluster is unusable', async () => {
    const clustermeshConfig = temporaryFolder({ far: 'endpoints: 7\n' });
    const { inputs } = await steered([config('own', 1)], { clustermeshConfig });
    expect(inputs()).toMatchObject({ areClustersKnown: false });
  });
});

it('a remote cluster leaves the mesh and joins it again; others cannot', async () => {
  const { agent } = await startAgent([config('own', 1), config('far', 2), ip('far', '10.2.0.1', 131_372)]);
  expect(await agent.leave('nowhere')).toBe(false);
  expect(await agent.join('nowhere')).toBe(false);
  expect([await agent.leave('far'), agent.ipcache.get('10.2.0.1')]).toEqual([true, undefined]);
  expect(await agent.leave('far')).toBe(false);
  expect(await agent.join('far')).toBe(true);
  await expect.poll(() => agent.ipcache.get('10.2.0.1')?.identity).toBe(131_372);
  expect(await agent.join('own')).toBe(false);
  expect(agent.rejections().byReason).toEqual({ 'invalid-cluster': 1 });
});

it('the status has the problems of the local etcd and of each remote configuration', async () => {
  const opened: Parameters<typeof localEtcd.openLocalEtcd>[] = [];
  vi.spyOn(localEtcd, 'openLocalEtcd').mockImplementation(async (...given) => {
    opened.push(given);
    const backend = new MemoryBackend({ clock: systemClock, random: () => 0.5 });
    await backend.update(clusterConfigKey('own'), bytesOfText('{"id": 3, "capabilities": {}}'));
    return Object.assign(backend, { endBootstrap: vi.fn() }) as never;
  });
  const clustermeshConfig = temporaryFolder({ far: 'endpoints: 7\n' });
  const rateLimit = { qps: 9, bootstrapQps: 90 };
  const { agent } = await startAgent([], '', {
    ...{ kvstore: 'etcd', kvstoreConfig: '/etcd', load: [], clustermeshConfig, rateLimit },
  });
  const [path, rates, context] = opened[0] ?? [];
  expect([path, rates]).toEqual(['/etcd', rateLimit]);
  expect(agent.status().clusterID).toBe(3);
  const far = expect.stringContaining(`--clustermesh-config ${join(clustermeshConfig, 'far')}: `);
  expect(agent.status().configProblems).toEqual([far]);
  context?.onProblem?.('--kvstore-config /etcd: no certificate', 'no certificate');
  expect(agent.status().configProblems).toEqual(['--kvstore-config /etcd: no certificate', far]);
  expect(agent.rejections().byReason['unusable-config']).toBeGreaterThan(0);
  context?.onProblem?.(undefined);
  expect(agent.status().configProblems).toEqual([far]);
});

it('starts with an id in the kvstore that requires a mesh of 511 clusters (regression: it ended with a UsageError)', async () => {
  const node: TestKey = ['own', 'cilium/state/nodes/v1/own/n', { Name: 'n', Cluster: 'own', ClusterID: 300 }];
  const { agent } = await startAgent([config('own', 300), config('far', 2), node]);
  expect(agent.status().clusterID).toBe(300);
  expect([...agent.nodes.nodes()].map(({ name }) => name)).toEqual(['n']);
});

it('reports that the id of the local cluster differs from its configuration (regression: the id was 0 until a restart if the agent started before the operator)', async () => {
  const backend = new MemoryBackend({ clock: systemClock, random: () => 0.5 });
  vi.spyOn(localEtcd, 'openLocalEtcd').mockResolvedValue(
    Object.assign(backend, { endBootstrap: vi.fn() }) as never,
  );
  const { agent, logged } = await startAgent([], '', {
    ...{ kvstore: 'etcd', kvstoreConfig: '/etcd', load: [], timeoutMs: 1 },
  });
  const before = logged.length;
  expect([agent.status().clusterID, agent.status().configProblems]).toEqual([0, []]);
  await backend.update(clusterConfigKey('own'), bytesOfText('{"id": 3, "capabilities": {}}'));
  const problem =
    '--cluster-id: the agent uses id 0 for cluster own, but its configuration in the kvstore has id 3; restart the agent, or correct --cluster-id';
  await expect.poll(() => agent.status().configProblems).toEqual([problem]);
  expect(logged.slice(before).filter((line) => line.includes('--cluster-id'))).toEqual([`warn  ${problem}`]);
  // Regression: another id was logged only at the next change of the state.
  await backend.update(clusterConfigKey('own'), bytesOfText('{"id": 4, "capabilities": {}}'));
  await expect.poll(() => logged).toContain(`warn  ${problem.replace('id 3', 'id 4')}`);
});

describe('the parts of a mesh feed', () => {
  const random = (): number => 0.5;

  /** A feed whose clusters, engines and kvstore are fakes. */
  function partsOf(options: Partial<AgentOptions> = {}) {
    const local = { start: vi.fn(), stop: vi.fn(), syncedWithin: vi.fn(), onChange: vi.fn(), names: [] };
    const mesh = { add: vi.fn(async () => 'added'), stop: vi.fn(), clustersSynced: vi.fn(), names: [] };
    const clusters = {
      local: spyOnConstructor(localClusters, 'LocalCluster', () => local),
      mesh: spyOnConstructor(meshes, 'ClusterMesh', () => mesh),
      identities: spyOnConstructor(resolvers, 'IdentityResolver', () => ({})),
    };
    const logged: string[] = [];
    const log = createLog('warn', 'text', { write: (line) => logged.push(line.trimEnd()) });
    const engines = Object.fromEntries(
      ['ipcache', 'nodes', 'services', 'onCause', 'onWithdrawal', 'tap'].map((name) => [name, { name }]),
    );
    const clock = new ManualClock();
    const context = {
      log,
      clock,
      random,
      gate: { name: 'gate', run: () => {} },
      engines,
      onReject: vi.fn(),
      countRejection: vi.fn(),
      onFolderRead: vi.fn(),
      restoredID: vi.fn(() => 0),
    };
    const feed = new MeshFeed({ ...NO_INPUTS, ...options }, context as never);
    const run = { signal: new AbortController().signal, progress: vi.fn() };
    return {
      feed,
      local,
      mesh,
      clusters,
      context,
      engines,
      logged,
      run,
      timeout: new AbortController().signal,
    };
  }

  it('read each recording and the keys of the caller, and name the file that is being read', async () => {
    let loaded = (): void => {};
    const load = vi.spyOn(RecordedMesh.prototype, 'load').mockImplementation(
      () =>
        new Promise<void>((resolve) => {
          loaded = resolve;
        }) as never,
    );
    const store = vi.spyOn(RecordedMesh.prototype, 'store').mockResolvedValue(undefined as never);
    const complete = vi.spyOn(RecordedMesh.prototype, 'complete').mockResolvedValue(undefined as never);
    const close = vi.spyOn(RecordedMesh.prototype, 'close').mockResolvedValue(undefined as never);
    vi.spyOn(RecordedMesh.prototype, 'clusters', 'get').mockReturnValue(['far', 'near']);
    const keys = [] as never;
    const { feed, context, logged, run } = partsOf({ load: ['/mesh.jsonl'], keys: () => keys });
    const step = feed.recordedMesh();
    expect([step.name, step.progressTimeoutMs, step.waitsFor?.()]).toEqual(['recorded mesh', READ_MS, []]);
    const done = step.start(run);
    expect(step.waitsFor?.()).toEqual(['reading --load /mesh.jsonl']);
    loaded();
    await done;
    expect(step.waitsFor?.()).toEqual([]);
    const limits = { onReject: context.onReject, onProgress: run.progress, signal: run.signal };
    expect(load.mock.calls).toEqual([['/mesh.jsonl', { local: 'own', ...limits }]]);
    expect(store.mock.calls).toEqual([[keys, limits]]);
    expect(complete).toHaveBeenCalledWith(context.onReject);
    expect(logged).toEqual(['warn  no keys of the local cluster own (--cluster); found keys of far, near']);
    await step.stop?.();
    expect(close).toHaveBeenCalledOnce();
  });

  it('name the reason why the local etcd does not answer, log it once, and report an unusable configuration', async () => {
    const etcd = { close: vi.fn(), endBootstrap: vi.fn() };
    const open = vi.spyOn(localEtcd, 'openLocalEtcd').mockResolvedValue(etcd as never);
    const read = vi.spyOn(localEtcd, 'readClusterID').mockResolvedValue(3);
    const { feed, context, logged, run, timeout } = partsOf({ kvstore: 'etcd', kvstoreConfig: '/etcd' });
    const step = feed.localKvstore(timeout);
    expect([step.name, step.progressTimeoutMs, step.waitsFor?.()]).toEqual(['local kvstore', REACH_MS, []]);
    await step.start(run);
    const given = open.mock.calls[0]?.[2];
    const { clock, gate, onReject } = context;
    expect(given).toMatchObject({ clock, gate, random });
    expect(read).toHaveBeenCalledWith(etcd, 'own', { ...given, signal: expect.any(AbortSignal) });
    for (const reason of ['refused', 'reset']) given?.onFailure?.(reason);
    const text = (reason: string): string =>
      `the kvstore of cluster own does not answer: ${reason}; check the endpoints and certificates of --kvstore-config`;
    expect(step.waitsFor?.()).toEqual([text('reset')]);
    expect(logged).toEqual([`warn  ${text('refused')}; retrying for ${REACH_MS / 1000} s`]);
    given?.onProblem?.('--kvstore-config /etcd: no certificate', 'no certificate');
    expect(onReject.mock.calls).toMatchObject([[{ reason: 'unusable-config' }]]);
    feed.endInitialSync();
    expect(etcd.endBootstrap).toHaveBeenCalledOnce();
    await step.stop?.();
    expect(etcd.close).toHaveBeenCalledOnce();
  });

  it('use the id of the restored state if the local etcd does not answer or has none (regression: the start failed)', async () => {
    vi.spyOn(localEtcd, 'openLocalEtcd').mockResolvedValue({ close: vi.fn() } as never);
    const read = vi.spyOn(localEtcd, 'readClusterID');
    const idAfter = async (restored: number, ms: number): Promise<unknown> => {
      const { feed, clusters, context, run, timeout } = partsOf({ kvstore: 'etcd', kvstoreConfig: '/etcd' });
      context.restoredID.mockReturnValue(restored);
      const started = feed.localKvstore(timeout).start(run);
      await settle();
      context.clock.advance(ms);
      const isOpen = await Promise.race([Promise.resolve(started).then(() => true), settle()]);
      if (isOpen !== true) return 'waits';
      expect(context.clock.pending).toBe(0);
      await feed.clusters().start(run);
      return clusters.mesh.mock.calls.at(-1)?.[0].clusterID;
    };
    read.mockImplementation(async (_etcd, _name, { signal }) => {
      await fired(signal);
      return 0;
    });
    expect([await idAfter(5, 14_999), await idAfter(5, 15_000), await idAfter(0, REACH_MS)]).toEqual([
      'waits',
      5,
      'waits',
    ]);
    read.mockResolvedValue(0);
    expect(await idAfter(5, 0)).toBe(5);
    read.mockResolvedValue(3);
    expect(await idAfter(5, 0)).toBe(3);
  });

  it('need a configuration of the local etcd', async () => {
    const { feed, run, timeout } = partsOf({ kvstore: 'etcd' });
    await expect(feed.localKvstore(timeout).start(run)).rejects.toThrow('requires --kvstore-config <file>');
  });

  it('receive the engines and the options of the agent, and stop with it', async () => {
    const settings = {
      maxConnectedClusters: 511,
      serviceTTLMs: 9,
      serviceV2: true,
      failStatic: true,
    } as never as object;
    const { feed, local, mesh, clusters, context, engines, run, timeout } = partsOf({
      clusterID: 4,
      ...settings,
    });
    await feed.localKvstore(timeout).start(run);
    const step = feed.clusters();
    await step.start(run);
    const { clock, gate, onReject } = context;
    const { ipcache, nodes, onCause, onWithdrawal, tap } = engines;
    const common = { clusterName: 'own', clock, random, gate, onReject };
    expect(clusters.local.mock.calls[0]?.[0]).toEqual({
      ...common,
      ...{ ipcache, nodes, remoteNodeIdentities: true, onCause, onWithdrawal, tap },
      failStatic: true,
      backend: expect.anything(),
    });
    const { failStatic: _, ...ofMesh } = settings as { failStatic: boolean };
    expect(clusters.mesh.mock.calls[0]?.[0]).toEqual({
      ...{ ...common, ...engines, ...ofMesh },
      clusterID: 4,
      remoteNodeIdentities: true,
    });
    expect(clusters.identities.mock.calls[0]?.[0]).toEqual({
      local,
      clusterID: 4,
      mesh,
      maxConnectedClusters: 511,
    });
    expect(feed.followed).toMatchObject({ local, localID: 4, mesh });
    expect([step.name, local.start.mock.calls.length]).toEqual(['clusters', 1]);
    await step.stop?.();
    expect([local.stop.mock.calls.length, mesh.stop.mock.calls.length]).toEqual([1, 1]);
  });

  it.each([
    ['memory', 5_000, 5_000, 1],
    ['etcd', 180_000, 60_000, 3],
  ] as const)(
    'wait for clusters with the limits of a kvstore of kind %s',
    async (kvstore, deadlineMs, failedDeadlineMs, failures) => {
      vi.spyOn(localEtcd, 'openLocalEtcd').mockResolvedValue({} as never);
      const { feed, local, mesh, run, timeout } = partsOf({ kvstore, kvstoreConfig: '/etcd', clusterID: 4 });
      await feed.localKvstore(timeout).start(run);
      await feed.clusters().start(run);
      for (const [step, wait, name] of [
        [feed.localSync(timeout), local.syncedWithin, 'initial sync of the local cluster'],
        [feed.remoteSync(timeout), mesh.clustersSynced, 'initial sync of the remote clusters'],
      ] as const) {
        await step.start(run);
        expect(step.name).toBe(name);
        expect(wait.mock.calls).toEqual([
          [{ deadlineMs, failedDeadlineMs, failures, signal: expect.any(AbortSignal) }],
        ]);
      }
    },
  );

  it('read the configurations of remote clusters with the clock and the rates of the agent', async () => {
    const made = vi.spyOn(remoteEtcdsModule, 'remoteEtcds');
    const stopped = vi.spyOn(ConfigFollower.prototype, 'stop');
    const clustermeshConfig = temporaryFolder({});
    const { feed, context, run, timeout } = partsOf({ clustermeshConfig, rateLimit: { qps: 9 } });
    await feed.localKvstore(timeout).start(run);
    const step = feed.clusters();
    await step.start(run);
    const { clock, gate } = context;
    const [path, given] = made.mock.calls[0] ?? [];
    expect(path).toBe(clustermeshConfig);
    expect(given).toMatchObject({ clock, random, gate, rateLimit: { qps: 9 } });
    await step.stop?.();
    expect(stopped).toHaveBeenCalledOnce();
  });

  it('wait for an unreadable folder of remote clusters until the time limit of the initial sync', async () => {
    vi.spyOn(ConfigFolder.prototype, 'list').mockRejectedValue(new Error('busy'));
    const { feed, mesh, run, timeout } = partsOf({ clustermeshConfig: temporaryFolder({}) });
    await feed.localKvstore(timeout).start(run);
    const clusters = feed.clusters();
    await clusters.start(run);
    const limit = new AbortController();
    void feed.remoteSync(limit.signal).start(run);
    await settle();
    expect(mesh.clustersSynced).not.toHaveBeenCalled();
    limit.abort();
    await settle();
    expect(mesh.clustersSynced).toHaveBeenCalledOnce();
    await clusters.stop?.();
  });

  it('name the folder of remote clusters while its first read hangs, and stop (regression: no reason, no stop)', async () => {
    const list = vi.spyOn(ConfigFolder.prototype, 'list').mockImplementation(() => new Promise(() => {}));
    const clustermeshConfig = temporaryFolder({});
    const { feed, context, run, timeout } = partsOf({ clustermeshConfig });
    await feed.localKvstore(timeout).start(run);
    const step = feed.clusters();
    const startup = new Startup(context);
    const started = startup.start([[step], [feed.remoteSync(timeout)]], run.signal);
    await vi.waitFor(() => expect(list).toHaveBeenCalledOnce(), 60_000);
    const reason = `--clustermesh-config ${clustermeshConfig}: not read yet`;
    const stateOf = (): unknown => startup.status().map(({ state, waitsFor }) => [state, ...waitsFor]);
    expect(stateOf()).toEqual([['running', reason], ['pending']]);
    context.clock.advance(READ_MS);
    await vi.waitFor(
      () =>
        expect(stateOf()).toEqual([
          ['overdue', reason],
          ['running', reason],
        ]),
      60_000,
    );
    expect(await startup.stop()).toEqual([]);
    expect(await started).toBe(false);
  });

  it('need a folder of remote clusters that can be read', async () => {
    const { feed, run, timeout } = partsOf({ clustermeshConfig: '/nowhere' });
    await feed.localKvstore(timeout).start(run);
    await expect(feed.clusters().start(run)).rejects.toThrow(
      '--clustermesh-config /nowhere: no such file or folder: check the path',
    );
  });

  it('count a problem of the folder before the end of the initial sync, and do not report it twice', async () => {
    const clustermeshConfig = temporaryFolder({ far: 'endpoints: 7\n' });
    const { feed, context, run, timeout } = partsOf({ clustermeshConfig });
    await feed.localKvstore(timeout).start(run);
    const clusters = feed.clusters();
    await clusters.start(run);
    await vi.waitFor(() => expect(feed.folderProblems()).toHaveLength(1), 60_000);
    expect(context.countRejection.mock.calls).toMatchObject([[{ reason: 'unusable-config', field: 'file' }]]);
    expect(context.onReject).not.toHaveBeenCalled();
    await clusters.stop?.();
  });

  it('are in the process if the kvstore is in memory', () => {
    expect(partsOf({ clusterName: 'own', kvstore: 'memory' }).feed.isInProcess('own')).toBe(true);
    const { feed } = partsOf({ clusterName: 'own', kvstore: 'etcd' });
    expect(['own', 'far'].map((name) => feed.isInProcess(name))).toEqual([false, false]);
  });
});
