import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { DatapathDocument, DatapathTableDocument } from '../../src/api/datapath-document.ts';
import { type HealthProblem, healthProblems } from '../../src/api/problems.ts';
import type { ClusterDocument, KindDocument, StatusDocument } from '../../src/api/status-document.ts';
import { incompleteClusterTexts } from '../../src/client/cluster-text.ts';
import { openSteps } from '../../src/process/step-text.ts';
import { TestModel } from './support/model.ts';
import { testApp } from './support/test-app.ts';

const NOW = Date.parse('2026-11-20T12:00:00.000Z');
const ago = (seconds: number): string => new Date(NOW - seconds * 1_000).toISOString();

const HEALTHY = new TestModel().status();

function found(changes: Partial<StatusDocument>, blockers: readonly string[] = []): readonly HealthProblem[] {
  return healthProblems({ ...HEALTHY, ...changes }, blockers, NOW);
}

function cluster(name: string, changes: Partial<ClusterDocument>): ClusterDocument {
  return {
    name,
    local: false,
    id: 2,
    state: 'connecting',
    ready: false,
    connected: false,
    failures: 1,
    connectionChangedAt: ago(130),
    missing: [],
    rejected: 0,
    keys: {},
    ...changes,
  };
}

function kind(changes: Partial<KindDocument>): KindDocument {
  return {
    name: 'pods',
    state: 'watching',
    complete: true,
    objects: 1,
    rejected: 0,
    events: 1,
    lists: 1,
    bookmarks: 0,
    failures: 0,
    ...changes,
  };
}

const following = { nodes: 'following', ip: 'following', identities: 'following' } as const;
const followed = (...kinds: readonly KindDocument[]): Partial<StatusDocument> => ({
  kubernetes: { server: 'memory', synced: true, handover: following, kinds },
});

const TABLE: DatapathTableDocument = {
  name: 'ipcache',
  state: 'degraded',
  desired: 9,
  actual: 6,
  maps: [],
  pending: 3,
  waiting: 0,
  unconfirmed: 0,
  noRoom: 2,
  noRoomErrors: 2,
  failing: 3,
  failures: [],
  upserts: 6,
  deletes: 0,
  repairs: 0,
};
const DATAPATH: DatapathDocument = {
  kind: 'linux',
  kernel: '6.1',
  pinFolder: '/sys/fs/bpf',
  layout: '1.18',
  dryRun: false,
  parts: [],
  tables: [],
  waitsFor: [],
  failures: [],
};
const CHECKPOINT = { folder: '/state', restored: [], written: 1 };
const DISK = { folder: '/history', bytes: 1, maxBytes: 2, damaged: 0 };
const HISTORY = { recordsInMemory: 0, bytes: 0, maxBytes: 1, records: {}, lost: {} };

describe('the problems of a status', () => {
  it.each<readonly [what: string, changes: Partial<StatusDocument>, expected: Partial<HealthProblem>]>([
    [
      'a step that waits',
      { steps: [{ name: 'local kvstore', state: 'running', ms: 9_000, idleMs: 4_000, waitsFor: ['etcd'] }] },
      {
        severity: 'warning',
        subject: 'local kvstore',
        since: ago(9),
        text: 'running, no progress for 4 s: etcd',
      },
    ],
    [
      'a failed step',
      { steps: [{ name: 'manifests', state: 'failed', waitsFor: [], failure: 'no such file' }] },
      { severity: 'error', subject: 'manifests', text: 'failed: no such file' },
    ],
    [
      'an overdue step with many conditions',
      { steps: [{ name: 'initial sync', state: 'overdue', waitsFor: ['a', 'b', 'c', 'd', 'e'] }] },
      { severity: 'error', subject: 'initial sync', text: 'overdue: a; b; c; 2 more' },
    ],
    [
      'an unreachable kvstore, with the age of the served state',
      { clusters: [cluster('baltic', { knownAt: ago(120), lastFailure: 'ECONNREFUSED' })] },
      {
        severity: 'warning',
        subject: 'cluster baltic',
        since: ago(130),
        text: 'Kvstore unreachable for 2 min: ECONNREFUSED. The state of 2 min ago is served.',
        remedy: 'Run dpcache clustermesh troubleshoot baltic.',
      },
    ],
    [
      'an unreachable kvstore after the clock was set back (regression: unreachable for 0 ms, state of 0 ms ago)',
      { clusters: [cluster('baltic', { connectionChangedAt: ago(-60), knownAt: ago(-50) })] },
      { text: `Kvstore unreachable. The state of ${ago(-50)} is served.`, since: ago(-60) },
    ],
    [
      'an unreachable kvstore whose services have expired (regression: the state is served)',
      { clusters: [cluster('baltic', { knownAt: ago(120), servicesExpired: true })] },
      {
        severity: 'error',
        text: 'Kvstore unreachable for 2 min. The state of 2 min ago is served, without services, whose TTL has ended.',
      },
    ],
    [
      'a ready cluster without a current heartbeat',
      { clusters: [cluster('baltic', { ready: true, connected: true, heartbeat: 'stale' })] },
      {
        severity: 'warning',
        subject: 'cluster baltic',
        text: 'The heartbeat in its kvstore has not changed for 2 min. Its state may be old.',
        remedy: 'Check that its operator, clustermesh-apiserver or kvstoremesh runs.',
      },
    ],
    [
      'an unreachable kvstore whose state was never known',
      { clusters: [cluster('own', { local: true })] },
      { severity: 'error', subject: 'cluster own', remedy: 'Run dpcache clustermesh troubleshoot.' },
    ],
    [
      'an incomplete cluster',
      { clusters: [cluster('baltic', { connected: true, missing: ['nodes', 'ip'], knownAt: ago(60) })] },
      {
        severity: 'warning',
        since: ago(60),
        text: 'Not complete: nodes, ip missing. The state of 1 min ago is served.',
      },
    ],
    [
      'a cluster without a configuration',
      { clusters: [cluster('baltic', { connected: true, state: 'no-configuration' })] },
      {
        severity: 'warning',
        text: 'Its kvstore contains no configuration of the cluster.',
        remedy:
          'Check that the cluster is named baltic, and that its operator or clustermesh-apiserver runs.',
      },
    ],
    [
      'a cluster with an id of another cluster (regression: no reason, only a warning)',
      {
        clusters: [
          cluster('baltic', {
            connected: true,
            state: 'failed',
            missing: ['nodes'],
            lastFailure: 'cluster baltic has id 1',
          }),
        ],
      },
      {
        severity: 'error',
        text: 'Not complete: nodes missing: cluster baltic has id 1.',
        remedy: undefined,
      },
    ],
    [
      'a refused cluster whose keys are withdrawn, as of dpcache status --load (regression: no reason, only a warning)',
      { clusters: [cluster('baltic', { connected: true, state: 'draining', lastFailure: 'has id 1' })] },
      { severity: 'error', text: 'Not complete: has id 1.' },
    ],
    [
      'a kvstore with the configuration of another cluster (regression: only the missing one was named)',
      {
        clusters: [cluster('baltic', { connected: true, state: 'no-configuration', lastFailure: 'only b' })],
      },
      { text: 'Not followed: only b.' },
    ],
    [
      'a kvstore that refuses the right to read one resource (regression: "unreachable")',
      {
        clusters: [
          cluster('baltic', { state: 'watching', missing: ['ip'], lastFailure: 'permission denied' }),
        ],
      },
      {
        severity: 'error',
        text: 'Not complete: ip missing: permission denied.',
        remedy: 'Run dpcache clustermesh troubleshoot baltic.',
      },
    ],
    [
      'a cluster that is being read after a failure: the failure is resolved',
      {
        clusters: [
          cluster('baltic', { connected: true, state: 'watching', missing: ['ip'], lastFailure: 'refused' }),
        ],
      },
      { severity: 'warning', text: 'Not complete: ip missing.' },
    ],
    [
      'restored state of the local cluster',
      { checkpoint: { ...CHECKPOINT, restored: [{ cluster: '', knownAt: ago(130), ageSeconds: 130 }] } },
      {
        severity: 'warning',
        subject: 'cluster own',
        since: ago(130),
        text: 'Restored state of 2 min ago that no source has confirmed.',
      },
    ],
    [
      'a ready cluster whose keys are all rejected (regression: none)',
      {
        clusters: [
          cluster('baltic', { ready: true, connected: true, rejected: 3, keys: { ip: 0, nodes: 0 } }),
        ],
      },
      { severity: 'error', subject: 'cluster baltic', text: 'It has no valid key; 3 values rejected.' },
    ],
    [
      'a failed checkpoint',
      { checkpoint: { ...CHECKPOINT, failure: 'ENOSPC', writtenAt: ago(300) } },
      {
        severity: 'warning',
        subject: 'checkpoint',
        text: 'ENOSPC; the last one was written 5 min ago',
        remedy: 'Check the free space and the permissions of /state.',
      },
    ],
    [
      'an invalid file',
      { configProblems: ['baltic.yaml: endpoints is empty'] },
      { severity: 'error', subject: 'configuration', text: 'baltic.yaml: endpoints is empty' },
    ],
    [
      'a forbidden kind',
      followed(kind({ state: 'forbidden', lastFailure: '403' })),
      {
        severity: 'error',
        subject: 'Kubernetes pods',
        text: 'forbidden: 403',
        remedy: 'Allow the service account to list and watch pods.',
      },
    ],
    [
      'a kind that is behind',
      followed(kind({ state: 'waiting', behindMs: 12_400 })),
      { severity: 'error', text: 'waiting, behind for 12 s', since: ago(12.4) },
    ],
    [
      'kinds that fail for the same reason (regression: an outage of the API server was one problem for each kind)',
      followed(
        kind({ state: 'waiting', behindMs: 12_400, lastFailure: 'connection refused' }),
        kind({ name: 'nodes', state: 'waiting', behindMs: 13_000, lastFailure: 'connection refused' }),
      ),
      {
        severity: 'error',
        subject: 'Kubernetes pods, nodes',
        text: 'waiting, behind for 13 s: connection refused',
        since: ago(13),
      },
    ],
    [
      'a kind whose CRD was deleted (regression: the text was the failure of an earlier outage)',
      followed(kind({ state: 'missing', behindMs: 12_400, lastFailure: 'connection refused' })),
      { text: 'missing, behind for 12 s: the server does not serve it any more' },
    ],
    [
      'a failure of the datapath',
      { datapath: { ...DATAPATH, failures: ['no cgroup'] } },
      { severity: 'error', subject: 'datapath', text: 'no cgroup' },
    ],
    [
      'a degraded table',
      { datapath: { ...DATAPATH, tables: [TABLE, { ...TABLE, name: 'nodes', state: 'in-sync' }] } },
      {
        severity: 'error',
        subject: 'table ipcache',
        text: '5 keys cannot be written: 3 failed, 2 without room.',
      },
    ],
    [
      'an unavailable part of the datapath',
      { datapath: { ...DATAPATH, parts: [{ name: 'services', state: 'unavailable', missing: ['BPF'] }] } },
      { severity: 'error', subject: 'datapath services', text: 'BPF' },
    ],
    [
      'a failed write of the history',
      { history: { ...HISTORY, disk: { ...DISK, failure: 'ENOSPC' } } },
      {
        severity: 'warning',
        subject: 'history',
        text: 'ENOSPC; changes are kept in memory only',
        remedy: 'Check the free space and the permissions of /history.',
      },
    ],
    [
      'failed listeners of both engines',
      {
        ipcache: { ...HEALTHY.ipcache, listenerFaults: 2 },
        services: { ...HEALTHY.services, listenerFaults: 1 },
      },
      { severity: 'warning', subject: 'listeners', text: '3 calls failed since the start.' },
    ],
    [
      'contested backends',
      { services: { ...HEALTHY.services, contested: 1 } },
      { severity: 'warning', subject: 'services', text: '1 backend address with more than one claim.' },
    ],
  ])('include %s', (_, changes, expected) => {
    expect(found(changes)).toEqual([expect.objectContaining(expected)]);
  });

  it.each([
    ['running', 'warning', undefined],
    ['stopping', 'warning', undefined],
    ['overdue', 'error', undefined],
    ['failed', 'error', 'See the whole error in the log.'],
    ['hanging', 'error', 'See the whole error in the log.'],
  ] as const)('of a step that is %s are of severity %s, with the remedy %s', (state, severity, remedy) => {
    const since = state === 'running' ? ago(9) : undefined;
    for (const [idleMs, text] of [
      [1_000, `${state}: etcd`],
      [1_001, state === 'running' ? 'running, no progress for 1 s: etcd' : `${state}: etcd`],
    ] as const) {
      const steps = [{ name: 'sync', state, ms: 9_000, idleMs, waitsFor: ['etcd'] }];
      expect(found({ steps })).toEqual([{ severity, subject: 'sync', text, since, remedy }]);
    }
  });

  it('do not include what works', () => {
    const state = 'ready';
    const status = {
      ...followed(kind({}), kind({ name: 'nodes', state: 'resting', complete: false })),
      steps: [
        { name: 'API', state: 'done', waitsFor: [] },
        { name: 'mesh', state: 'pending', waitsFor: [] },
      ] as const,
      clusters: [
        cluster('baltic', { ready: true, connected: true, state, lastFailure: 'resolved' }),
        cluster('removed', { state: 'draining', knownAt: ago(9) }), // regression: unreachable
      ],
      checkpoint: CHECKPOINT,
      datapath: DATAPATH,
      history: { ...HISTORY, disk: DISK },
    };
    expect(found(status)).toEqual([]);
  });

  it('contain no restored state of a complete cluster while another one is incomplete (regression: all)', () => {
    const restored = ['', 'baltic', 'far'].map((name) => ({ cluster: name, knownAt: ago(9), ageSeconds: 9 }));
    const ready = { ready: true, connected: true };
    const clusters = [
      cluster('own', { local: true, ...ready }),
      cluster('baltic', ready),
      cluster('far', {}),
    ];
    const subjects = (changes: Partial<StatusDocument>): readonly string[] =>
      found({ clusters, checkpoint: { ...CHECKPOINT, restored }, ...changes }).flatMap(({ text, subject }) =>
        text.startsWith('Restored state') ? [subject] : [],
      );
    expect(subjects({})).toEqual(['cluster far']);
    expect(subjects(followed(kind({ complete: true })))).toEqual(['cluster far']);
    expect(subjects(followed(kind({ complete: false })))).toEqual(['cluster own', 'cluster far']);
  });

  it('are sorted, errors first, and name each blocker of the status once', () => {
    const clusters = [cluster('baltic', { connected: true, missing: ['ip'] }), cluster('far', {})];
    const incomplete = incompleteClusterTexts(clusters);
    const steps = [{ name: 'initial sync', state: 'running', waitsFor: [...incomplete, 'a file'] }] as const;
    const blockers = [
      ...openSteps(steps).flatMap(({ text, waitsFor }) => [text, ...waitsFor]),
      ...incomplete,
      'far.yaml: is empty',
      'Kubernetes: pods are not complete (forbidden): 403',
      'Kubernetes: nodes are not complete (listing)',
    ];
    const kubernetes = followed(kind({ state: 'forbidden' }), kind({ name: 'nodes', state: 'listing' }));
    const all = found({ ...kubernetes, clusters, steps, configProblems: ['far.yaml: is empty'] }, blockers);
    expect(all.map(({ severity, subject, text }) => [severity, subject, text.split('.')[0]])).toEqual([
      ['error', 'not ready', 'Kubernetes: nodes are not complete (listing)'],
      ['error', 'cluster far', 'Kvstore unreachable for 2 min'],
      ['error', 'configuration', 'far'],
      ['error', 'Kubernetes pods', 'forbidden'],
      ['warning', 'initial sync', 'running: a file; 2 more'],
      ['warning', 'cluster baltic', 'Not complete: ip missing'],
    ]);
  });

  it('are never empty while there are blockers', () => {
    const name = fc.constantFrom('a', 'b', 'a is');
    const isTrue = fc.boolean();
    fc.assert(
      fc.property(
        fc.array(fc.record({ name, ready: isTrue, connected: isTrue })),
        fc.array(
          fc.oneof(
            fc.string(),
            name.map((each) => `cluster ${each} is incomplete: x`),
          ),
          {
            minLength: 1,
          },
        ),
        (clusters, blockers) => {
          const all = found({ clusters: clusters.map((each) => cluster(each.name, each)) }, blockers);
          expect(all.length).toBeGreaterThan(0);
          const blocked = new Set(
            clusters.filter(({ ready }) => !ready).map((each) => `cluster ${each.name}`),
          );
          for (const text of blockers)
            expect(
              all.some((problem) => problem.text === text) ||
                [...blocked].some((subject) => text.startsWith(`${subject} is incomplete: `)),
            ).toBe(true);
        },
      ),
    );
  });
});

describe('GET /v1/problems', () => {
  it('returns the problems of the status and the blockers', async () => {
    const { app, model, blocking } = testApp();
    const ask = async (): Promise<unknown> => (await app.request('/v1/problems')).json();
    expect(await ask()).toEqual({ ready: true, items: [] });
    blocking.push('the agent is starting');
    const connectionChangedAt = new Date(model.clock.wallTime() - 60_000).toISOString();
    const status = { ...model.status(), clusters: [cluster('baltic', { connectionChangedAt })] };
    model.status = () => status;
    expect(await ask()).toEqual({
      ready: false,
      items: [
        { severity: 'error', subject: 'not ready', text: 'the agent is starting' },
        {
          severity: 'error',
          subject: 'cluster baltic',
          since: connectionChangedAt,
          text: 'Kvstore unreachable for 1 min.',
          remedy: 'Run dpcache clustermesh troubleshoot baltic.',
        },
      ],
    });
    expect(await (await app.request('/metrics')).text()).toContain(
      'dpcache_problems{severity="error"} 2\ndpcache_problems{severity="warning"} 0\n',
    );
  });
});
