import { hostname } from 'node:os';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import * as access from '../../src/agent/kubernetes-access.ts';
import { operatorMetrics } from '../../src/agent/operator/operator-metrics.ts';
import { type OperatorOptions, runOperator } from '../../src/agent/operator/run-operator.ts';
import { Scrape } from '../../src/api/metrics/scrape.ts';
import type { HealthProblem } from '../../src/api/problems.ts';
import { rejection } from '../../src/base/rejection.ts';
import { TurnGate } from '../../src/base/turn-gate.ts';
import * as kubernetesClient from '../../src/k8s/kubernetes-client.ts';
import { MemoryApiServer } from '../../src/k8s/memory/memory-api-server.ts';
import { MemoryApiTransport } from '../../src/k8s/memory/memory-api-transport.ts';
import { bytesOfText } from '../../src/kvstore/codec/bytes.ts';
import { clusterConfigKey } from '../../src/kvstore/codec/keys.ts';
import * as memoryBackend from '../../src/kvstore/memory/memory-backend.ts';
import { KvstoreError } from '../../src/kvstore/session/errors.ts';
import * as duties from '../../src/operator/duties.ts';
import type { DutyStatus } from '../../src/operator/duty.ts';
import { NotReadyError } from '../../src/operator/duty-report.ts';
import * as election from '../../src/operator/elect/leader-election.ts';
import * as kvstoreReach from '../../src/operator/kvstore-reach.ts';
import * as localEtcd from '../../src/process/local-etcd.ts';
import * as remotes from '../../src/process/remote-etcds.ts';
import { RecordedKubernetes } from '../../src/recording/recorded-kubernetes.ts';
import { ManualClock } from '../base/support/manual-clock.ts';
import { spyOnConstructor } from '../base/support/spy-on-constructor.ts';
import { until } from '../base/support/until.ts';
import { settle } from './support/fake-clock.ts';
import { type RunInTest, runInTest } from './support/run-in-test.ts';

const { KvstoreReach } = kvstoreReach;
const { MemoryBackend } = memoryBackend;

const OPTIONS: OperatorOptions = {
  clusterName: 'own',
  clusterID: 7,
  maxConnectedClusters: 511,
  kvstoreConfig: '/etcd',
  rateLimit: { qps: 9 },
  leaseSeconds: 30,
  kubeconfig: '/kubeconfig',
  context: 'blue',
  load: [],
  namespace: 'kube',
  electionTimes: { leaseMs: 15_000, renewDeadlineMs: 10_000, retryMs: 2000 },
  kvstoreDeadlineMs: 60_000,
  endpoints: 'ciliumendpointslices',
  identityAllocation: 'crd',
  publish: {
    services: true,
    nodes: false,
    identities: true,
    ips: false,
    clusterConfig: true,
    heartbeat: false,
  },
  serviceFormats: 'legacy',
  globalByDefault: false,
  intervals: {
    endpoints: 1,
    identities: 2,
    nodes: 3,
    policyStatus: 4,
    unmanagedDns: 5,
    locks: 6,
    kvstoreIdentities: 7,
  },
  deleteAllEndpoints: undefined,
  slicing: 'fcfs',
  clustermeshConfig: '/mesh',
  mcs: { families: ['IPv6'] },
  endpointSliceSync: { endpointsPerSlice: 8, batchMs: 9 },
  dryRun: undefined,
};

/** A duty that runs until its signal fires. */
function dutyOf(
  status: Partial<DutyStatus> = {},
): duties.OperatorDuties['all'][number] & { readonly runs: AbortSignal[] } {
  const runs: AbortSignal[] = [];
  return {
    runs,
    run: async (signal: AbortSignal) => {
      runs.push(signal);
      await new Promise((resolve) => signal.addEventListener('abort', resolve));
    },
    status: () => ({ name: 'a duty', state: 'running', failures: 0, lastFailure: undefined, ...status }),
  } as never;
}

interface Operated extends RunInTest {
  readonly duty: ReturnType<typeof dutyOf>;
  readonly made: () => duties.OperatorDutiesOptions;
  readonly opened: Parameters<typeof localEtcd.openLocalEtcd>[];
  readonly closed: unknown[];
}

/** Runs an operator over a kvstore and an API server in memory, with one duty. */
function operate(
  changes: Partial<OperatorOptions> = {},
  others: Partial<duties.OperatorDuties> = {},
  duty = dutyOf(),
): Operated {
  const opened: Parameters<typeof localEtcd.openLocalEtcd>[] = [];
  const closed: unknown[] = [];
  vi.spyOn(localEtcd, 'openLocalEtcd').mockImplementation(async (...given) => {
    opened.push(given);
    const { clock, random } = given[2];
    const backend = new MemoryBackend({ clock, random });
    const close = backend.close.bind(backend);
    vi.spyOn(backend, 'close').mockImplementation((options) => {
      closed.push(options);
      return close(options);
    });
    return backend as never;
  });
  const server = new MemoryApiServer({ clock: new ManualClock() });
  vi.spyOn(access, 'kubernetesAccess').mockResolvedValue(new MemoryApiTransport(server) as never);
  const making = vi
    .spyOn(duties, 'operatorDuties')
    .mockReturnValue({ all: [duty], published: [], ...others });
  const running = runInTest((context) => runOperator({ ...OPTIONS, ...changes }, {}, context));
  const made = (): duties.OperatorDutiesOptions => making.mock.calls[0]?.[0] ?? ({} as never);
  return { ...running, duty, made, opened, closed };
}

/** Waits until the duty runs, and lets the clock run for the polls of the election. */
async function leads({ clock, duty }: Operated): Promise<void> {
  await until('the duty runs', () => {
    if (duty.runs.length === 0) clock.advance(500);
    return duty.runs.length > 0;
  });
}

describe('an operator', () => {
  it('passes each of its options on', async () => {
    const elected = vi.spyOn(election.LeaderElection.prototype, 'run').mockResolvedValue('ended');
    const elections = spyOnConstructor(election, 'LeaderElection');
    const reaches = spyOnConstructor(kvstoreReach, 'KvstoreReach');
    const clients = spyOnConstructor(kubernetesClient, 'KubernetesClient');
    const source = vi.spyOn(remotes, 'remoteEtcds');
    const operator = operate();
    await until('it is elected', () => elected.mock.calls.length > 0);
    const { kvstoreConfig, rateLimit, leaseSeconds, kubeconfig, context, load, namespace, ...rest } = OPTIONS;
    const { electionTimes: times, kvstoreDeadlineMs: _, clustermeshConfig, dryRun, ...forDuties } = rest;
    expect(operator.made()).toMatchObject(forDuties);
    expect(operator.made()).toMatchObject({ dryRun: undefined, election: elections.mock.results[0]?.value });
    expect(operator.opened[0]?.slice(0, 2)).toEqual([kvstoreConfig, rateLimit]);
    expect(operator.opened[0]?.[2]).toMatchObject({
      leaseSeconds,
      witnessLeases: true,
      writeTimeoutMs: 5000,
    });
    expect(vi.mocked(access.kubernetesAccess).mock.calls[0]?.[0]).toMatchObject({ kubeconfig, context });
    const { clock, gate, random } = operator.opened[0]?.[2] ?? {};
    expect([clock === operator.clock, gate, random]).toEqual([
      ...[true, expect.any(TurnGate), expect.any(Function)],
    ]);
    expect(vi.mocked(access.kubernetesAccess).mock.calls[0]?.[1]).toBe(clock);
    for (const options of [operator.made(), clients.mock.calls[0]?.[1], source.mock.calls[0]?.[1]])
      expect([options?.clock === clock, options?.gate === gate, options?.random === random]).toEqual(
        [true, true, true], // one gate bounds the turns of the whole process
      );
    const backend = await vi.mocked(localEtcd.openLocalEtcd).mock.results[0]?.value;
    expect(reaches.mock.calls[0]?.[0]).toMatchObject({ backend, clock, key: clusterConfigKey('own') });
    expect(operator.made().kubernetes).toBe(clients.mock.results[0]?.value);
    expect(elections.mock.calls[0]?.[0]).toMatchObject({
      ...{ namespace, times, clock, random, client: operator.made().kubernetes },
      identity: expect.stringMatching(`^${hostname()}-[a-z0-9]{10}$`),
    });
    const elect = elections.mock.calls[0]?.[0] as election.LeaderElectionOptions | undefined;
    elect?.onFailure?.(new Error('refused'));
    elect?.onRecovered?.();
    clients.mock.calls[0]?.[1]?.onFault?.(new Error('boom'));
    expect(operator.logged.slice(-3)).toEqual([
      'warn  cannot acquire or renew the Lease of the leader election: refused',
      'warn  the API server accepts requests for the Lease of the leader election again',
      'error a duty failed: boom',
    ]);
    expect(source.mock.calls[0]).toEqual([clustermeshConfig, expect.objectContaining({ rateLimit })]);
    expect(operator.made().remotes).toBe(source.mock.results[0]?.value);
  });

  it('without a kvstore has one in memory, and its objects have their namespaces', async () => {
    const backends = spyOnConstructor(memoryBackend, 'MemoryBackend');
    const added = vi.spyOn(RecordedKubernetes.prototype, 'addNamespaces');
    vi.spyOn(RecordedKubernetes.prototype, 'load').mockResolvedValue(undefined as never);
    const closed = vi.spyOn(kubernetesClient.KubernetesClient.prototype, 'close');
    const operator = operate({ kvstoreConfig: undefined, load: ['/objects'] });
    await leads(operator);
    expect(backends.mock.calls[0]?.[0]).toMatchObject({ clock: operator.clock, gate: operator.made().gate });
    expect(backends.mock.calls[0]?.[0]?.random).toBe(operator.made().random);
    expect(added).toHaveBeenCalledOnce();
    operator.stop.abort();
    await operator.ended;
    expect(closed).toHaveBeenCalled();
  });

  it('logs the remote clusters that it cannot reach (regression: only its status named them)', async () => {
    const lost = {
      state: 'unreachable',
      ready: false,
      connected: false,
      lastFailure: { message: 'refused' },
    };
    let notify = (_cluster: string): void => {};
    const clusters = {
      clusters: () => [],
      statusOf: (name: string) => (name === 'far' ? { ...lost, resources: {} } : undefined),
      onChange: (callback: (cluster: string) => void) => {
        notify = callback;
        return () => {
          notify = () => {};
        };
      },
    };
    const operator = operate({}, { clusters: clusters as never });
    await leads(operator);
    for (const changed of ['', 'far']) notify(changed);
    operator.clock.advance(1000);
    expect(operator.logged.slice(-2)).toEqual([
      'info  cluster far has joined the mesh',
      'warn  cluster far: not connected: refused',
    ]);
    operator.stop.abort();
    await operator.ended;
    const { length } = operator.logged;
    notify('near');
    operator.clock.advance(1000);
    expect(operator.logged.slice(length).join()).not.toContain('near');
  });

  it('without a folder of remote clusters reads none', async () => {
    vi.spyOn(election.LeaderElection.prototype, 'run').mockResolvedValue('ended');
    const operator = operate({ clustermeshConfig: undefined });
    await until('its duties are made', () => operator.made().clusterName !== undefined);
    expect(operator.made().remotes).toBeUndefined();
  });

  it('runs its duties when it is the leader, and may write only then', async () => {
    const answers = vi.spyOn(KvstoreReach.prototype, 'isAnswering', 'get').mockReturnValue(false);
    const operator = operate();
    await until('it is a candidate', () => answers.mock.calls.length > 0);
    const { mayWrite } = operator.opened[0]?.[2] ?? {};
    expect([mayWrite?.(), operator.duty.runs]).toEqual([false, []]);
    answers.mockReturnValue(true);
    await leads(operator);
    expect(mayWrite?.()).toBe(true);
    expect(operator.logged).toContain('info  this operator is the leader');
    operator.stop.abort();
    await operator.ended;
    expect(operator.duty.runs[0]?.aborted).toBe(true);
    // The next operator uses the keys again.
    expect(operator.closed).toEqual([{ keepLeases: true }]);
    expect(operator.clock.pending).toBe(0);
  });

  it('as a candidate logs that its kvstore does not answer, and that it answers again (regression: silent)', async () => {
    const get = vi.spyOn(MemoryBackend.prototype, 'get');
    get.mockRejectedValueOnce(new KvstoreError('unavailable', 'connection refused'));
    const operator = operate();
    await until('the kvstore is asked', () => get.mock.calls.length > 0);
    await settle();
    expect(operator.logged).toContain('warn  the kvstore does not answer: connection refused');
    operator.clock.advance(2_000);
    await settle();
    expect(operator.logged).toContain('warn  the kvstore answers again');
  });

  it('reports a Lease that cannot be read and a duty that waits as problems (regression: only the log did)', async () => {
    const elections = spyOnConstructor(election, 'LeaderElection');
    const blocking = dutyOf({ name: 'node sync', state: 'waiting', waitsFor: 'a list' });
    const waiting = dutyOf({ name: 'node-gc', state: 'waiting', waitsFor: 'its CRD is not installed' });
    const operator = operate({}, { published: [blocking], all: [blocking, waiting] }, waiting);
    await leads(operator);
    const options = elections.mock.calls[0]?.[0] as election.LeaderElectionOptions | undefined;
    options?.onFailure?.(new Error('connection refused'));
    const problems = async (): Promise<readonly string[]> =>
      JSON.parse(await operator.get('/v1/problems')).items.map(
        ({ severity, subject, text }: HealthProblem) => `${severity} ${subject}: ${text}`,
      );
    const duties = [
      'error not ready: node sync is incomplete: a list',
      'warning node-gc: waiting: its CRD is not installed',
    ];
    expect(await problems()).toEqual([
      duties[0],
      'warning leader election: Cannot read or renew the Lease: connection refused',
      duties[1],
    ]);
    expect(await operator.get('/metrics')).toContain(
      'dpcache_problems{severity="error"} 1\ndpcache_problems{severity="warning"} 2\n',
    );
    options?.onRecovered?.();
    expect(await problems()).toEqual(duties);
  });

  it('reports a duty whose writes fail while it is complete (regression: ready without a problem if etcd was full)', async () => {
    const published = { synced: true, keys: 80, pending: 20, writes: 60, rejected: 0, isFailing: true };
    const lastFailure = { code: 'overloaded', message: 'database space exceeded', at: 0 };
    const failing = dutyOf({ name: 'IP sync', lastFailure, published });
    const written = dutyOf({ name: 'node sync', lastFailure, published: { ...published, isFailing: false } });
    const operator = operate({}, { published: [failing, written], all: [failing, written] }, failing);
    expect(await operator.get('/v1/problems')).not.toContain('IP sync'); // not the leader yet
    await leads(operator);
    expect(JSON.parse(await operator.get('/v1/problems'))).toMatchObject({
      ready: true,
      items: [
        {
          severity: 'warning',
          subject: 'IP sync',
          text: 'cannot write to the kvstore: 20 keys are pending: database space exceeded',
        },
      ],
    });
  });

  it('counts rejected objects by reason (regression: no metric)', async () => {
    const operator = operate();
    await leads(operator);
    operator.made().onReject?.(rejection('malformed-label', 'kind', 1, 'is unusable'));
    expect(await operator.get('/metrics')).toContain(
      'dpcache_rejections_total{reason="malformed-label"} 1\n',
    );
  });

  it('is no candidate while its kvstore does not answer', async () => {
    const answers = vi.spyOn(KvstoreReach.prototype, 'isAnswering', 'get').mockReturnValue(false);
    const operator = operate();
    await until('it has asked several times', () => {
      operator.clock.advance(500);
      return answers.mock.calls.length > 2;
    });
    expect(operator.duty.runs).toEqual([]);
    answers.mockReturnValue(true);
    await leads(operator);
  });

  it('fails to start if reading its recorded objects makes no progress for 3 minutes', async () => {
    let [progress, finish] = [(): void => {}, (): void => {}];
    vi.spyOn(RecordedKubernetes.prototype, 'load').mockImplementation((_path, _onReject, onProgress) => {
      progress = onProgress ?? progress;
      return new Promise((resolve) => {
        finish = resolve;
      });
    });
    const { clock, ended, get } = operate({ load: ['/objects'] });
    onTestFinished(() => finish());
    await settle();
    expect(JSON.parse(await get('/v1/status'))).toMatchObject({ duties: [], clusters: [], kvstore: 'none' });
    clock.advance(179_000);
    progress();
    clock.advance(179_000);
    expect(clock.nextAt).toBe(359_000);
    clock.advance(1_000);
    await settle();
    finish();
    await expect(ended).rejects.toThrow('recorded objects: no progress for 180 s');
  });

  it('ends with an error if it loses the Lease, although its kvstore answers', async () => {
    let isOver = false;
    vi.spyOn(election.LeaderElection.prototype, 'run').mockImplementation(async (lead) => {
      const lost = new AbortController();
      const work = lead(lost.signal);
      lost.abort();
      await work;
      isOver = true;
      return 'lost';
    });
    const { ended } = operate();
    await settle();
    expect(isOver).toBe(true);
    await expect(ended).rejects.toThrow(
      'the Lease was lost: it could not be renewed for 10 s, so another operator may be the leader',
    );
  });

  it.each<[string, Partial<election.LeaderElectionStatus>, string]>([
    ['of another operator', { holder: 'you' }, 'the Lease was lost: you is the leader'],
    [
      'that nobody holds',
      { holder: 'me' },
      'the Lease was lost: it could not be renewed for 10 s, so another operator may be the leader: connection refused',
    ],
  ])('names the reason for the loss of a Lease %s (regression: no reason)', async (_of, changes, text) => {
    const { LeaderElection } = election;
    const elections = spyOnConstructor(election, 'LeaderElection');
    vi.spyOn(LeaderElection.prototype, 'run').mockImplementation(async () => {
      const options = elections.mock.calls[0]?.[0] as election.LeaderElectionOptions | undefined;
      options?.onFailure?.(new Error('connection refused'));
      return 'lost';
    });
    const status = { identity: 'me', ...changes } as election.LeaderElectionStatus;
    vi.spyOn(LeaderElection.prototype, 'status').mockReturnValue(status);
    await expect(operate().ended).rejects.toThrow(text);
  });

  it('logs at its end how many recorded objects it rejected, beyond those that it logged one by one', async () => {
    vi.spyOn(RecordedKubernetes.prototype, 'load').mockImplementation(async (_path, onReject) => {
      for (let i = 0; i < 23; i++) onReject(rejection('malformed-manifest', 'kind', i, 'is unusable'));
    });
    const operator = operate({ load: ['/objects'] });
    await leads(operator);
    operator.stop.abort();
    await operator.ended;
    expect(operator.logged).toContain('warn  3 more rejections of reason malformed-manifest');
  });

  it('releases the Lease if its kvstore does not answer for the time limit, and ends with an error', async () => {
    const outage = vi.spyOn(KvstoreReach.prototype, 'outageOf').mockResolvedValue(true);
    const operator = operate();
    await leads(operator);
    await expect(operator.ended).rejects.toThrow(
      'released the Lease, because the kvstore has not answered for 60 s',
    );
    expect(outage.mock.calls[0]?.[0]).toBe(60_000);
    expect(operator.duty.runs[0]?.aborted).toBe(true);
  });

  it('ends with the error of its duties', async () => {
    vi.spyOn(election.LeaderElection.prototype, 'run').mockRejectedValue(new Error('boom'));
    await expect(operate().ended).rejects.toThrow('boom');
  });

  it('logs failures and actions of its duties at their levels', async () => {
    vi.spyOn(election.LeaderElection.prototype, 'run').mockResolvedValue('ended');
    const operator = operate();
    await until('its duties are made', () => operator.made().clusterName !== undefined);
    const { onFailure, onAction } = operator.made();
    const before = operator.logged.length;
    onFailure?.(new Error('refused'), 'gc');
    onFailure?.(new NotReadyError('not yet'), 'gc');
    const action = { duty: 'gc', action: 'delete x', reason: 'unused' } as const;
    onAction?.({ ...action, outcome: 'done' } as never);
    onAction?.({ ...action, outcome: 'dry-run' } as never);
    expect(operator.logged.slice(before)).toEqual([
      'warn  gc failed; retrying: refused',
      'info  gc waits: not yet',
      'info  gc: delete x (done): unused',
      'debug gc: delete x (dry-run): unused',
    ]);
  });
});

describe('a dry run of an operator', () => {
  it('has no election and no fence, and prints each write with the reason of its namespace', async () => {
    const printed: string[] = [];
    const namespaces = {
      ...dutyOf({ name: 'namespaces' }),
      complete: true,
      reasonNotGlobal: (name: string) => `${name} is not global`,
      counts: () => ({ known: 3, global: 1 }),
    };
    const write = (text: string): void => void printed.push(text);
    const operator = operate({ dryRun: { write } }, { namespaces } as never);
    await leads(operator);
    expect(operator.opened[0]?.[2].mayWrite).toBeUndefined();
    expect(operator.made().election).toBeUndefined();
    const { backend, dryRun } = operator.made();
    dryRun?.('a line');
    const key = 'cilium/state/ip/v1/default/10.0.0.1';
    await backend.update(key, bytesOfText('{"IP": "10.0.0.1", "K8sNamespace": "shop", "ID": 300}'));
    await backend.delete(key);
    expect(printed[0]).toBe('a line\n');
    expect(printed[1]).toMatch(/^put cilium\/state\/ip\/v1\/default\/10\.0\.0\.1 /);
    expect(printed[2]).toBe(`delete ${key}: shop is not global\n`);
    expect(await operator.get('/metrics')).toContain('dpcache_operator_leader 1\n');
  });
});

describe('the metrics and the status of an operator', () => {
  const published = { synced: false, keys: 11, pending: 12, writes: 13, rejected: 0 };
  const rounds = { rounds: 1, marked: 14, deleted: 15, conflicts: 16 };
  const duty = (): ReturnType<typeof dutyOf> =>
    dutyOf({
      failures: 3,
      published,
      rounds: rounds as never,
      lastFailure: { message: 'refused', at: 0 } as never,
    });
  const PARTS = {
    namespaces: {
      complete: false,
      counts: () => ({ known: 5, global: 2 }),
      status: () => ({ name: 'namespaces', lastFailure: undefined }),
    },
    mcs: {
      counts: () => ({
        exports: 1,
        imports: 2,
        remoteExports: { far: 3 },
        conflicts: { type: 4 },
        waitingImports: 5,
      }),
    },
    clusters: {
      clusters: () => [
        {
          name: 'far',
          state: 'failed',
          ready: false,
          servicesExpired: true,
          lastFailure: { message: 'x' },
          resources: {},
          rejections: { total: 0 },
          connectionChangedAt: 0,
          more: 1,
        },
      ],
      onChange: () => () => {},
    },
  };

  it('have every count of its duties, namespaces and services', async () => {
    const of = duty();
    const operator = operate({}, { ...PARTS, published: [of] } as never, of);
    await leads(operator);
    const { steps } = JSON.parse(await operator.get('/v1/status'));
    expect(steps.map(({ name }: { name: string }) => name)).toEqual([
      ...['API', 'recorded objects', 'kvstore', 'Kubernetes', 'duties'],
    ]);
    const metrics = (await operator.get('/metrics'))
      .split('\n')
      .filter((line) => /^(# TYPE )?dpcache_operator/.test(line));
    expect(metrics).toMatchInlineSnapshot(`
      [
        "# TYPE dpcache_operator_duty_running gauge",
        "dpcache_operator_duty_running{duty="a duty"} 1",
        "# TYPE dpcache_operator_failures_total counter",
        "dpcache_operator_failures_total{duty="a duty"} 3",
        "# TYPE dpcache_operator_keys gauge",
        "dpcache_operator_keys{duty="a duty"} 11",
        "# TYPE dpcache_operator_pending_keys gauge",
        "dpcache_operator_pending_keys{duty="a duty"} 12",
        "# TYPE dpcache_operator_writes_total counter",
        "dpcache_operator_writes_total{duty="a duty"} 13",
        "# TYPE dpcache_operator_marked gauge",
        "dpcache_operator_marked{duty="a duty"} 14",
        "# TYPE dpcache_operator_deleted_total counter",
        "dpcache_operator_deleted_total{duty="a duty"} 15",
        "# TYPE dpcache_operator_conflicts_total counter",
        "dpcache_operator_conflicts_total{duty="a duty"} 16",
        "# TYPE dpcache_operator_namespaces gauge",
        "dpcache_operator_namespaces{global="true"} 2",
        "dpcache_operator_namespaces{global="false"} 3",
        "# TYPE dpcache_operator_leader gauge",
        "dpcache_operator_leader 1",
        "# TYPE dpcache_operator_mcs_exports gauge",
        "dpcache_operator_mcs_exports{cluster="own"} 1",
        "dpcache_operator_mcs_exports{cluster="far"} 3",
        "# TYPE dpcache_operator_mcs_imports gauge",
        "dpcache_operator_mcs_imports 2",
        "# TYPE dpcache_operator_mcs_conflicts gauge",
        "dpcache_operator_mcs_conflicts{reason="type"} 4",
        "# TYPE dpcache_operator_mcs_waiting_imports gauge",
        "dpcache_operator_mcs_waiting_imports 5",
      ]
    `);
    const status = JSON.parse(await operator.get('/v1/status'));
    expect(status).toMatchObject({
      cluster: 'own',
      clusterID: 7,
      dryRun: false,
      kvstore: 'memory',
      kubernetes: 'memory',
      election: { state: 'leader' },
      duties: [{ name: 'a duty', published, rounds }],
      namespaces: { known: 5, global: 2 },
      mcs: { imports: 2 },
      clusters: [
        { name: 'far', state: 'failed', ready: false, servicesExpired: true, lastFailure: { message: 'x' } },
      ],
      rejected: { total: 0, recent: [] },
      blockers: ['namespaces is incomplete', 'a duty is incomplete: refused'],
    });
    expect(status.clusters[0]).not.toHaveProperty('more');
  });

  it('tell a duty that is off from one that waits (regression: both were 0)', () => {
    const duties = ['off', 'waiting', 'running'].map((state) => ({ status: () => ({ name: state, state }) }));
    const operator = {
      clusterName: 'own',
      duties: () => ({ all: duties }) as never,
      isLeader: () => true,
      rejections: () => ({ byReason: {} }),
    };
    const tables = operatorMetrics(operator, new Scrape());
    const samples = tables.flatMap(({ dpcache_operator_duty_running: metric }) => [
      ...(metric?.samples() ?? []),
    ]);
    expect(samples).toEqual([
      { value: 0, labels: { duty: 'waiting' } },
      { value: 1, labels: { duty: 'running' } },
    ]);
  });

  it('have no multi-cluster services and no namespaces if these are off (regression: 0 imports)', async () => {
    const operator = operate();
    await leads(operator);
    const metrics = await operator.get('/metrics');
    expect(metrics).not.toMatch(/^dpcache_operator_(namespaces|mcs)/m);
    expect(metrics).toContain('dpcache_operator_leader 1\n');
  });

  it('of a candidate are ready without the duties, unless the kvstore does not answer', async () => {
    vi.spyOn(KvstoreReach.prototype, 'isAnswering', 'get').mockReturnValue(false);
    const problem = vi.spyOn(KvstoreReach.prototype, 'problem', 'get').mockReturnValue(undefined);
    const of = duty();
    const operator = operate({}, { ...PARTS, published: [of] } as never, of);
    // Between two steps, no step is running.
    await until(
      'it has started',
      async () => JSON.parse(await operator.get('/v1/status')).steps.at(-1).state === 'done',
    );
    await until('it is a candidate', async () => (await operator.get('/readyz')).includes('"ready":true'));
    expect(await operator.get('/metrics')).toContain('dpcache_operator_leader 0\n');
    problem.mockReturnValue('refused');
    expect(JSON.parse(await operator.get('/readyz'))).toMatchObject({
      ready: false,
      blockers: ['the kvstore does not answer: refused'],
    });
    problem.mockReturnValue(undefined);
    operator.opened[0]?.[2].onProblem?.('--kvstore-config /etcd: no certificate', 'no certificate');
    expect(JSON.parse(await operator.get('/readyz'))).toMatchObject({
      blockers: ['--kvstore-config /etcd: no certificate'],
    });
    expect(operator.logged).toContain('warn  --kvstore-config /etcd: no certificate');
    operator.opened[0]?.[2].onProblem?.(undefined);
    expect(await operator.get('/readyz')).toContain('"ready":true');
  });
});
