import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, it, vi } from 'vitest';
import type { Agent } from '../../src/agent/agent.ts';
import * as datapathKeeper from '../../src/agent/datapath-keeper.ts';
import { MeshFeed } from '../../src/agent/mesh-feed.ts';
import type { AgentOptions } from '../../src/agent/options.ts';
import type { Clock } from '../../src/base/clock.ts';
import { systemClock } from '../../src/base/system-clock.ts';
import type { ServiceInputs } from '../../src/datapath/linux/services/desired-services.ts';
import { bytesOfText } from '../../src/kvstore/codec/bytes.ts';
import { clusterConfigKey } from '../../src/kvstore/codec/keys.ts';
import { MemoryBackend } from '../../src/kvstore/memory/memory-backend.ts';
import { ConfigFolder } from '../../src/process/config-folder.ts';
import * as localEtcd from '../../src/process/local-etcd.ts';
import type { Step } from '../../src/process/start-step.ts';
import { spyOnConstructor } from '../base/support/spy-on-constructor.ts';
import { startAgent, type TestKey } from './support/agent-under-test.ts';
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
  expect(agent.blockers()).toHaveLength(5);
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

/** Starts an agent with a datapath that only records its options. */
async function steered(
  keys: readonly TestKey[],
  options: Partial<AgentOptions> = {},
): Promise<{
  readonly agent: Agent;
  readonly inputs: () => ServiceInputs | undefined;
  readonly syncs: () => number;
}> {
  const initialSyncDone = vi.fn();
  const keeper = {
    step: () => ({ name: 'datapath', start: () => {} }),
    initialSyncDone,
    status: () => undefined,
  };
  const made = spyOnConstructor(datapathKeeper, 'DatapathKeeper', () => keeper);
  const { agent } = await startAgent(keys, '', { datapath: { dryRun: true } as never, ...options });
  const inputs = (): ServiceInputs | undefined => made.mock.calls[0]?.[0]?.serviceInputs();
  return { agent, inputs, syncs: () => initialSyncDone.mock.calls.length };
}

describe('the inputs of the datapath', () => {
  it('are known when all clusters are complete, and the first sync is reported once', async () => {
    const { inputs, syncs } = await steered([
      config('own', 1),
      config('far', 2),
      ip('far', '10.2.0.1', 131_372),
    ]);
    await expect.poll(inputs).toEqual({ isLocalComplete: true, areClustersKnown: true, isSynced: true });
    expect(syncs()).toBe(1);
  });

  it('are not known while a remote cluster is unreachable', async () => {
    const clustermeshConfig = temporaryFolder({ far: 'endpoints: ["http://127.0.0.1:1"]\n' });
    const { inputs } = await steered([config('own', 1)], { clustermeshConfig });
    expect(inputs()).toEqual({ isLocalComplete: true, areClustersKnown: false, isSynced: true });
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
  context?.onProblem?.('no certificate');
  expect(agent.status().configProblems).toEqual(['--kvstore-config /etcd: no certificate', far]);
  expect(agent.rejections().byReason['unusable-config']).toBeGreaterThan(0);
  context?.onProblem?.(undefined);
  expect(agent.status().configProblems).toEqual([far]);
});
