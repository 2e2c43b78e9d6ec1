import { describe, expect, it } from 'vitest';
import { askKvstoreMesh, askOperator } from '../../src/agent/process-answers.ts';
import { AgentError } from '../../src/api/api-client.ts';
import type { EngineViews } from '../../src/api/read-model.ts';
import { askClustermesh, askReady, askStatus, sampleEntries, showState } from '../../src/client/summary.ts';
import type { KeyedEntry } from '../../src/ipcache/types.ts';
import type { Terminal } from '../../src/process/terminal.ts';
import { TestModel } from '../api/support/model.ts';

it('the examples of prefixes are searched in the first entries only (regression: one turn of 0.5 s over 1,000,000)', () => {
  let read = 0;
  function* entries(): Generator<KeyedEntry, void, void> {
    for (; read < 1_000_000; read++)
      yield {
        key: `10.0.${read >> 8}.${read & 255}`,
        identity: 300,
        source: 'kvstore',
        owner: '',
      } as KeyedEntry;
  }
  expect(sampleEntries({ ipcache: { entries } })).toHaveLength(1);
  expect(read).toBeLessThan(20_000);
});

it('the status of the mesh names the reason why an agent waits (regression: it was an empty table)', async () => {
  const steps = [
    { name: 'API', state: 'done', waitsFor: [] },
    { name: 'local kvstore', state: 'running', idleMs: 4_000, waitsFor: ['etcd at https://10.0.0.1:2379'] },
    { name: 'clusters', state: 'pending', waitsFor: [] },
  ];
  const document = { cluster: 'atlantic', clusterID: 1, clusters: [], configProblems: [], steps };
  const { lines } = await askClustermesh(async () => document, { wide: false });
  expect(lines.slice(0, 3)).toEqual([
    expect.stringContaining('ocal kvstore'),
    '  etcd at https://10.0.0.1:2379',
    '',
  ]);
});

it('the readiness of an agent is printed even if it is not ready', async () => {
  const waiting = { ready: false, blockers: ['cluster far is not complete'] };
  const refused = (): never => {
    throw new AgentError('unexpected status 503 of the agent', waiting as never);
  };
  expect(await askReady(async () => ({ ready: true, blockers: [] }), { wide: false })).toMatchObject({
    succeeded: true,
  });
  expect(await askReady(async () => refused(), { wide: false })).toMatchObject({
    succeeded: false,
    lines: ['cluster far is not complete'],
    json: waiting,
  });
  const gone = new AgentError('the agent has stopped');
  await expect(askReady(() => Promise.reject(gone), { wide: false })).rejects.toBe(gone);
});

it('the status shows for how long a kind of Kubernetes has missed changes, and the time of the next attempt', async () => {
  const counts = { objects: 3, rejected: 0, events: 9, lists: 1, bookmarks: 0, failures: 2 };
  const failed = { name: 'pods', state: 'waiting', complete: true, ...counts, lastFailure: 'no route' };
  const kubernetes = {
    server: 'memory',
    kinds: [
      { ...failed, lagMs: 14_000, behindMs: 12_400, retryInMs: 2_300 },
      { ...failed, name: 'services', behindMs: 800 },
      { ...failed, name: 'nodes', state: 'missing', behindMs: 800 }, // its failure is from an earlier outage
    ],
  };
  const rejected = { total: 0, byReason: {}, recent: [] };
  const parts = {
    clusters: [],
    configProblems: [],
    steps: [],
    rejected,
    ipcache: {},
    nodes: {},
    services: {},
  };
  const { lines } = await askStatus(async () => ({ ...parts, kubernetes, items: [] }), { wide: false });
  expect(lines.find((line) => line.startsWith('pods'))).toMatch(
    /14 s ago +behind for 12 s, retrying in 3 s: no route$/,
  );
  expect(lines.find((line) => line.startsWith('services'))).toMatch(
    /behind for 1 s, retrying now: no route$/,
  );
  expect(lines.find((line) => line.startsWith('nodes  '))).toMatch(/behind for 1 s, retrying now$/);
});

it('the status prints the problems first, and nothing about problems if there are none', async () => {
  const status = {
    clusters: [],
    configProblems: [],
    steps: [],
    ipcache: {},
    nodes: {},
    services: {},
    rejected: { total: 0, byReason: {}, recent: [] },
  };
  const items = [
    { severity: 'error', subject: 'cluster far', text: 'Kvstore unreachable for 2 min.', remedy: 'Call.' },
    { severity: 'warning', subject: 'checkpoint', text: 'disk\u001b full' },
  ];
  const asked = (found: readonly object[]) => async (path: string) =>
    path === '/v1/problems' ? { ready: false, items: found } : status;
  const { lines, json } = await askStatus(asked(items), { wide: false });
  expect(lines.slice(0, 5)).toEqual([
    'problems:',
    '  error: cluster far: Kvstore unreachable for 2 min. (Call.)',
    expect.not.stringContaining('\u001b'),
    '',
    expect.stringContaining('CLUSTER'),
  ]);
  expect(json).toBe(status);
  expect((await askStatus(asked([]), { wide: false })).lines[0]).toContain('CLUSTER');
});

describe('a status of another kind of process', () => {
  it.each([
    ['askStatus', askStatus, { problems: [], clusters: [] }, 'an agent'],
    ['askOperator', askOperator, { ipcache: {}, clusters: [] }, 'an operator'],
    ['askKvstoreMesh', askKvstoreMesh, { duties: [] }, 'a kvstoremesh'],
  ])('is an error of %s that names the remedy (regression: TypeError)', async (_, question, status, kind) => {
    await expect(question(async () => status, { wide: false })).rejects.toThrow(
      `the socket does not belong to ${kind}: set another one with --socket`,
    );
  });
});

describe('a summary', () => {
  const FAR = {
    ...{ name: 'far', local: false, id: 2, state: 'ready', ready: true, rejected: 5, failures: 0 },
    keys: { nodes: 1, services: 2, identities: 3, ip: 4 },
  };
  const ROW = 'far      2   ready  1      2         3           4    5';

  it('of the mesh has the keys of each cluster, and the names for the completion', async () => {
    const document = {
      cluster: 'own',
      clusterID: 1,
      clusters: [FAR],
      configProblems: ['bad file'],
      steps: [],
    };
    const answer = await askClustermesh(async () => document, { wide: false });
    expect(answer).toMatchObject({ json: document, succeeded: true, names: ['far'] });
    expect(answer.lines[1]).toBe(ROW);
    expect(answer.lines.slice(2)).toEqual(['', expect.stringMatching(/^far: /), 'bad file']);
  });

  it.each([
    [0, 'far: unreachable, serving the state of noon, last failure at one: refused'],
    [2, 'far: unreachable, serving the state of noon, 2 failures, the last at one: refused'],
  ])('of the mesh has the last failure of a cluster with %s failures in a row', async (failures, line) => {
    const lost = { ...FAR, ready: false, connected: false, knownAt: 'noon', missing: [], failures };
    const clusters = [{ ...lost, lastFailure: 'refused', lastFailureAt: 'one' }];
    const document = { cluster: 'own', clusterID: 1, clusters, configProblems: [], steps: [] };
    expect((await askClustermesh(async () => document, { wide: false })).lines.at(-1)).toBe(line);
  });

  it('of the mesh states a stale heartbeat (regressions: complete without a hint, state ready)', async () => {
    const clusters = [{ ...FAR, connected: true, missing: [], heartbeat: 'stale' }];
    const document = { cluster: 'own', clusterID: 1, clusters, configProblems: [], steps: [] };
    const { lines } = await askClustermesh(async () => document, { wide: false });
    expect([lines[1], lines.at(-1)]).toEqual([
      ROW.replace('ready ', 'stale heartbeat '),
      'far: connected, complete, heartbeat has not changed for 2 min',
    ]);
  });

  it('of the mesh states that the services of a cluster have expired (regression: as if they were served)', async () => {
    const lost = {
      ...FAR,
      ready: false,
      connected: false,
      knownAt: 'noon',
      missing: [],
      servicesExpired: true,
    };
    const document = { cluster: 'own', clusterID: 1, clusters: [lost], configProblems: [], steps: [] };
    expect((await askClustermesh(async () => document, { wide: false })).lines.at(-1)).toBe(
      'far: unreachable, serving the state of noon without services',
    );
  });

  it('of an agent counts its objects', async () => {
    const status = {
      ...{ clusters: [], rejected: { total: 0, byReason: {}, recent: [] } },
      ipcache: { prefixes: 9, overruled: 2, shadowed: 3 },
      nodes: { nodes: 8 },
      services: { announced: 7, backends: 6 },
    };
    const ask = async (path: string): Promise<unknown> => (path === '/v1/status' ? status : { items: [] });
    const { lines, succeeded } = await askStatus(ask, { wide: false });
    expect([lines.at(-2), succeeded]).toEqual([
      '9 prefixes, 8 nodes, 7 services with 6 backends; 2 overruled claims, 3 CIDRs shadowed by an endpoint.',
      true,
    ]);
  });

  it('of an agent has the time of the last rejection (regression: an old rejection looked like a new one)', async () => {
    const status = {
      clusters: [],
      rejected: {
        ...{ total: 1, byReason: { 'invalid-address': 1 }, recent: ['key: bad'] },
        lastAt: '2026-11-20T12:00:00.000Z',
      },
      ...{ ipcache: {}, nodes: {}, services: {} },
    };
    const ask = async (path: string): Promise<unknown> => (path === '/v1/status' ? status : { items: [] });
    expect((await askStatus(ask, { wide: false })).lines.slice(-2)).toEqual([
      '1 item was rejected: 1 invalid-address; the last at 2026-11-20T12:00:00.000Z.',
      '  key: bad',
    ]);
  });

  it('of the state has clusters, nodes, services and a few prefixes', () => {
    const model = new TestModel().fill();
    const lines: string[] = [];
    const terminal = {
      line: (text = '') => lines.push(text),
      paint: (tone: string, text: string) => `${tone}: ${text}`,
    };
    const status = { ...model.status(), clusters: [FAR] };
    showState(model as unknown as EngineViews, status as never, terminal as unknown as Terminal);
    expect(lines).toEqual([
      'strong: State of the mesh, as seen by cluster own',
      '  3 prefixes, 1 node, 1 service with 1 backend; 0 rejected',
      '  kvstore memory, complete after 5 ms',
      '',
      'strong: Clusters',
      '  CLUSTER  ID  STATE  NODES  SERVICES  IDENTITIES  IPS  REJECTED',
      `  ${ROW}`,
      '',
      'strong: Nodes',
      '  NODE           ADDRESS      PODS  KEY',
      '  baltic/node-1  192.168.7.1  -     -',
      '',
      'strong: Services',
      '  SERVICE        TYPE       CLUSTER IP   PORTS        BACKENDS             MESH    EXTERNAL IP',
      '  shop/checkout  ClusterIP  172.16.0.10  http:80/TCP  1 backend (1 local)  global  -',
      '',
      'strong: Some prefixes (all: dpcache ipcache list)',
      '  10.0.0.1/32     pod shop/checkout-1, identity 1234 (app=checkout), on 192.168.0.1',
      '  10.0.0.0/8      identity 77',
      '  192.168.7.1/32  identity remote-node',
      '',
    ]);
  });

  it.each([
    [29, '  … and 9 more nodes: dpcache node list'],
    [21, '  … and 1 more node: dpcache node list'], // regression: 1 more nodes
  ])('of the state lists twelve nodes by name, and counts the others, up to n%i', (last, others) => {
    const model = new TestModel().fill();
    for (let i = last; i >= 10; i--)
      model.nodes.nodeUpdated({ cluster: 'own', name: `n${i}`, source: 'kvstore', addresses: [] });
    const lines: string[] = [];
    const terminal = { line: (text = '') => lines.push(text), paint: (_tone: string, text: string) => text };
    showState(model as unknown as EngineViews, model.status(), terminal as unknown as Terminal);
    const listed = lines.slice(lines.indexOf('Nodes') + 2, lines.indexOf('Services') - 1);
    expect(listed.map((line) => line.trim().split(' ')[0])).toEqual([
      'baltic/node-1',
      ...Array.from({ length: 11 }, (_, i) => `own/n${10 + i}`),
      '…',
    ]);
    expect(listed.at(-1)).toBe(others);
  });
});
