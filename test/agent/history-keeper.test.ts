import { join } from 'node:path';
import { expect, it, onTestFinished, vi } from 'vitest';
import type { ReportedClusters } from '../../src/agent/cluster-report.ts';
import { HistoryKeeper } from '../../src/agent/history-keeper.ts';
import { StateFiles } from '../../src/agent/state-files.ts';
import type { ClusterDocument } from '../../src/api/status-document.ts';
import { assert } from '../../src/base/assert.ts';
import { type Unsubscribe, unsubscribeOnce } from '../../src/base/subscription.ts';
import { TurnGate } from '../../src/base/turn-gate.ts';
import type { History } from '../../src/history/history.ts';
import type { MarkKind, PrefixMoment } from '../../src/history/types.ts';
import { IPCache } from '../../src/ipcache/ipcache.ts';
import type { KindProgress } from '../../src/k8s/feed/kubernetes-feed.ts';
import { NodeManager } from '../../src/nodemanager/node-manager.ts';
import { createLog } from '../../src/process/log.ts';
import { createService } from '../../src/servicecache/service.ts';
import { ServiceCache } from '../../src/servicecache/service-cache.ts';
import { ManualClock } from '../base/support/manual-clock.ts';
import { until } from '../base/support/until.ts';
import { itemsOf } from '../history/support/past-lists.ts';
import { startAgent } from './support/agent-under-test.ts';
import { temporaryFolder } from './support/temporary-folder.ts';

const MIB = 1024 * 1024;

/** Returns a keeper of a history, and the lines of its log. */
function keeperOf(path?: string) {
  const clock = new ManualClock();
  clock.setWallTimeBy(1_000_000);
  const ipcache = new IPCache();
  const services = new ServiceCache({ clusterName: 'own' });
  const nodes = new NodeManager({ ipcache, clock, clusterName: 'own', nodeName: 'n' });
  const logged: string[] = [];
  const keeper = new HistoryKeeper({
    engines: { ipcache, services, nodes },
    clock,
    memory: MIB,
    disk: path === undefined ? undefined : { path, maxBytes: MIB },
    gate: new TurnGate({ clock, nextTurn: setImmediate }),
    log: createLog('info', 'text', { write: (line) => logged.push(line.trimEnd()) }),
  });
  onTestFinished(() => keeper.stop());
  return { clock, ipcache, services, nodes, keeper, history: keeper.history, logged };
}

/** A mesh of one cluster, `far`, whose status changes with `is`. */
class OneCluster implements ReportedClusters {
  readonly names = ['far'];
  isFollowed = false;
  #status: ClusterDocument | undefined;
  #notify = (_name: string): void => {};

  is(missing: ClusterDocument['missing'], connected = true): void {
    this.#status = {
      name: 'far',
      local: false,
      id: 2,
      state: 'ready',
      ready: true,
      connected,
      connectionChangedAt: '',
      keys: {},
      missing,
      rejected: 0,
      failures: 0,
      lastFailure: undefined,
      lastFailureAt: undefined,
      knownAt: undefined,
    };
    this.#notify('far');
  }

  leaves(): void {
    this.#status = undefined;
    this.#notify('far');
  }

  statusOf(): ClusterDocument | undefined {
    return this.#status;
  }

  onChange(callback: (name: string) => void): Unsubscribe {
    this.#notify = callback;
    this.isFollowed = true;
    return unsubscribeOnce(() => {
      this.isFollowed = false;
    });
  }
}

/** Applies each state for two seconds. Returns the moments of 10.0.0.1 in the middle of each, asked at the end. */
function momentsAfter<S>(
  states: readonly S[],
  apply: (state: S) => void,
  { clock, history }: Pick<ReturnType<typeof keeperOf>, 'clock' | 'history'>,
): readonly (PrefixMoment | undefined)[] {
  const times = states.map((state) => {
    apply(state);
    clock.advance(1000);
    const middle = clock.wallTime();
    clock.advance(1000);
    return middle;
  });
  return times.map((at) => history.at('10.0.0.1', at));
}

it('records services from its start on, without a replay of all of them (regression: in one turn)', () => {
  const { services, nodes, keeper, history } = keeperOf();
  const update = (name: string): void => {
    const id = { namespace: 'shop', name };
    services.updateService(createService({ id, addressing: 'assigned', clusterIPs: ['10.96.0.1'] }));
  };
  services.markSynced();
  update('before');
  const replays = [vi.spyOn(services, 'subscribe'), vi.spyOn(nodes, 'subscribe')];
  keeper.start(undefined, undefined);
  update('after');
  expect(history.status().records.service).toBe(1);
  for (const replay of replays) expect(replay).not.toHaveBeenCalled();
});

it('answers are not certain each time a cluster is incomplete, and for no other time', () => {
  const { clock, ipcache, keeper, history } = keeperOf();
  const far = new OneCluster();
  far.is([]);
  keeper.start(far, undefined);
  ipcache.upsert('10.0.0.1', { identity: 300, source: 'kvstore' });
  const states = [[], ['nodes'], ['nodes', 'ip'], [], ['ip'], []] as const;
  const moments = momentsAfter(states, (missing) => far.is(missing), { clock, history });
  expect(moments.map((moment) => moment?.certain)).toEqual([...[true, false, false], ...[true, false, true]]);
  expect(moments.map((moment) => moment?.subjects.join())).toEqual(['', 'far', 'far', '', 'far', '']);
});

it('answers are not certain each time a Kubernetes kind is incomplete, and for no other time', () => {
  const { clock, ipcache, keeper, history } = keeperOf();
  const kind = { name: 'ciliumendpoints', progressAt: 0, failures: 0 };
  let progress: KindProgress | undefined = { ...kind, synced: false, settled: false };
  let notify = (_name: string): void => {};
  keeper.start(undefined, {
    names: ['ciliumendpoints'],
    progressOf: () => progress,
    onChange: (callback) => {
      notify = callback;
      return unsubscribeOnce(() => {});
    },
  });
  ipcache.upsert('10.0.0.1', { identity: 300, source: 'custom-resource' });
  const incomplete = { ...kind, synced: false, settled: false };
  const states = [
    incomplete,
    { ...kind, synced: true, settled: false },
    incomplete,
    { ...kind, synced: false, settled: true }, // not served
    incomplete,
    undefined, // not awaited any more, because a kvstore has taken over
  ];
  const is = (state: KindProgress | undefined): void => {
    progress = state;
    notify('ciliumendpoints');
  };
  const moments = momentsAfter(states, is, { clock, history });
  expect(moments.map((moment) => moment?.reason)).toEqual([
    ...['cluster-incomplete', undefined, 'cluster-incomplete'],
    ...[undefined, 'cluster-incomplete', undefined],
  ]);
  expect(moments[0]?.subjects).toEqual(['Kubernetes ciliumendpoints']);
  expect(moments[1]?.subjects).toEqual([]);
});

it('answers are not certain each time a cluster is withdrawn, and for no other time', () => {
  const { clock, ipcache, keeper, history } = keeperOf();
  keeper.start(undefined, undefined);
  ipcache.upsert('10.0.0.1', { identity: 300, source: 'kvstore' });
  const states = [false, true, true, false, true, false];
  const withdraw = (isRunning: boolean): void => keeper.noteWithdrawal('far', isRunning);
  const moments = momentsAfter(states, withdraw, { clock, history });
  expect(moments.map((moment) => moment?.certain)).toEqual([...[true, false, false], ...[true, false, true]]);
});

/** Returns the marks of a kind, oldest first. */
async function marksOf(history: History, kind: MarkKind): Promise<readonly string[]> {
  return (await itemsOf(history.past.records()))
    .flatMap((one) => (one.kind === 'mark' && one.mark === kind ? `${one.subject}: ${one.detail}` : []))
    .reverse();
}

it('marks the failures of a handler, at most one each second', async () => {
  const { clock, keeper, history } = keeperOf();
  keeper.noteFailure('early', 'it is not recorded yet');
  keeper.start(undefined, undefined);
  for (let i = 0; i < 8; i++) {
    keeper.noteFailure('routes', `far/node-${i}: ${'it is full'.repeat(100)}`);
    if (i % 2 === 0) keeper.noteFailure('tunnel', 'it is full');
    clock.advance(250);
  }
  const marks = await marksOf(history, 'handler-failed');
  expect(marks.map((mark) => mark.slice(0, 24))).toEqual([
    ...['routes: far/node-0: it i', 'tunnel: it is full'],
    ...['routes: far/node-4: it i', 'tunnel: it is full'],
  ]);
  expect(Math.max(...marks.map((mark) => mark.length))).toBeLessThan(300);
});

it('marks a node handler of the agent that fails', async () => {
  const { agent } = await startAgent([], '', { historyMemory: MIB });
  const fail = (): void => {
    throw new Error('netlink is out of buffers');
  };
  agent.nodes.subscribe({ name: 'routes', nodeAdd: fail, nodeUpdate: fail, nodeDelete: fail });
  agent.nodes.nodeUpdated({ cluster: 'own', name: 'n', source: 'kvstore', addresses: [] });
  const { history } = agent;
  assert(history !== undefined, 'the history is on');
  expect(await marksOf(history, 'handler-failed')).toEqual(['routes: own/n: netlink is out of buffers']);
});

it('marks the settings that a reload has changed, and only these', async () => {
  const { agent } = await startAgent([], '', { historyMemory: MIB, rateLimit: { qps: 20 } });
  const { history } = agent;
  assert(history !== undefined, 'the history is on');
  const path = join(temporaryFolder({ 'more.yaml': '' }), 'more.yaml');
  agent.changeRates({ qps: 20 });
  agent.changeRates({ qps: 50, maxInflight: 5 });
  agent.changeRates({ qps: 50, maxInflight: 5 });
  for (let i = 0; i < 2; i++) await agent.readManifests([path], new AbortController().signal);
  agent.changeRates({ qps: 50 });
  expect(await marksOf(history, 'setting')).toEqual([
    'kvstore-opt: etcd.qps 20 → 50, etcd.maxInflight default → 5',
    `manifests: ${path}`,
    'kvstore-opt: etcd.maxInflight 5 → default',
  ]);
});

it('a disk that fails is logged once, and once when it works again', async () => {
  const disk = { isFull: false };
  const { create } = StateFiles.prototype;
  vi.spyOn(StateFiles.prototype, 'create').mockImplementation(async function (this: StateFiles, name) {
    const sink = await create.call(this, name);
    const write = (bytes: Uint8Array): Promise<void> =>
      disk.isFull ? Promise.reject(new Error('it is full')) : sink.write(bytes);
    return { ...sink, write };
  });
  const path = join(temporaryFolder({}), 'history');
  const { clock, ipcache, keeper, history, logged } = keeperOf(path);
  await keeper.step().start({ signal: new AbortController().signal, progress: () => {} });
  keeper.start(undefined, undefined);
  /** Changes a prefix each second until the condition holds, and for ten seconds more. */
  const changeUntil = async (what: string, isSo: () => boolean): Promise<void> => {
    let identity = 300;
    let seconds = 0;
    await until(what, () => {
      ipcache.upsert('10.0.0.1', { identity: identity++, source: 'kvstore' });
      clock.advance(1000);
      return isSo() && ++seconds > 10;
    });
  };
  await changeUntil('it is written', () => (history.status().disk?.bytes ?? 0) > 0);
  expect(logged).toEqual([]);
  disk.isFull = true;
  await changeUntil('it has failed', () => history.status().disk?.failure !== undefined);
  const failed = expect.stringContaining(`${path}: cannot store the history: it is full`);
  expect(logged).toEqual([failed]);
  disk.isFull = false;
  await changeUntil('it works again', () => history.status().disk?.failure === undefined);
  expect(logged).toEqual([failed, expect.stringContaining(`${path}: writing the history works again`)]);
  await history.close();
});

it('the status has the memory and the disk of the history, with its failure', async () => {
  const path = temporaryFolder({});
  const { keeper, history } = keeperOf(path);
  const step = keeper.step();
  expect(step.waitsFor?.()).toEqual([`reading ${path}`]);
  await step.start({ signal: new AbortController().signal, progress: () => {} });
  keeper.start(undefined, undefined);
  const status = history.status();
  vi.spyOn(history, 'status').mockReturnValue({
    ...{ ...status, retainedFrom: 1000, recordsInMemory: 2, bytes: 3, records: 4 as never, lost: 5 as never },
    disk: { bytes: 6, maxBytes: 7, damaged: 8, failure: { message: 'full', at: 0 } },
  } as never);
  expect(keeper.status()).toEqual({
    ...{
      retainedFrom: '1970-01-01T00:00:01.000Z',
      recordsInMemory: 2,
      bytes: 3,
      maxBytes: MIB,
      records: 4,
      lost: 5,
    },
    disk: { folder: path, bytes: 6, maxBytes: 7, damaged: 8, failure: 'full' },
  });
  expect(keeperOf().keeper.status()).not.toHaveProperty('disk');
});

it('marks when a cluster joins, is complete, is lost, is back, leaves, and joins again, each once', async () => {
  const { keeper, history } = keeperOf();
  const far = new OneCluster();
  far.is(['nodes'], false);
  keeper.start(far, undefined);
  const kinds: readonly MarkKind[] = ['joined', 'complete', 'unreachable', 'reachable', 'left'];
  const counts = (): Promise<readonly number[]> =>
    Promise.all(kinds.map(async (kind) => (await marksOf(history, kind)).length));
  const marks = async (): Promise<readonly string[]> => {
    const found = await counts();
    return kinds.filter((_, at) => found[at] !== 0);
  };
  expect(await marks()).toEqual(['joined']);
  far.is(['nodes'], false);
  far.is(['nodes']);
  expect(await marks()).toEqual(['joined']);
  far.is([]);
  far.is([]);
  expect(await marks()).toEqual(['joined', 'complete']);
  far.is([], false);
  expect(await marks()).toEqual(['joined', 'complete', 'unreachable']);
  far.is([]);
  expect(await marks()).toEqual(['joined', 'complete', 'unreachable', 'reachable']);
  far.leaves();
  expect(await counts()).toEqual([1, 1, 1, 1, 1]);
  far.is(['nodes']);
  far.is([]);
  expect(await counts()).toEqual([2, 2, 1, 1, 1]);
});

it('the failures of at most 64 handlers are remembered', async () => {
  const { keeper, history } = keeperOf();
  keeper.start(undefined, undefined);
  for (let handler = 0; handler < 64; handler++) keeper.noteFailure(`h${handler}`, 'x');
  keeper.noteFailure('h0', 'x');
  expect(await marksOf(history, 'handler-failed')).toHaveLength(64);
  keeper.noteFailure('h64', 'x');
  keeper.noteFailure('h0', 'x');
  expect(await marksOf(history, 'handler-failed')).toHaveLength(66);
});

it('the last changes are written when it stops, and the mesh is not followed any more', async () => {
  const path = join(temporaryFolder({}), 'history');
  const { ipcache, keeper } = keeperOf(path);
  const far = new OneCluster();
  const step = keeper.step();
  await step.start({ signal: new AbortController().signal, progress: () => {} });
  keeper.start(far, undefined);
  ipcache.upsert('10.0.0.1', { identity: 300, source: 'kvstore' });
  expect([far.isFollowed, keeper.status().disk?.bytes]).toEqual([true, 0]);
  keeper.stop();
  expect(far.isFollowed).toBe(false);
  await step.stop?.();
  expect(keeper.status().disk?.bytes).toBeGreaterThan(0);
});

it('a folder that cannot be read is logged at the start', async () => {
  const path = join(temporaryFolder({ file: '' }), 'file');
  const { keeper, logged } = keeperOf(path);
  await keeper.step().start({ signal: new AbortController().signal, progress: () => {} });
  expect(logged).toEqual([expect.stringContaining(`${path}: cannot store the history: `)]);
});
