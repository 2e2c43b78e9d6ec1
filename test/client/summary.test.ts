import { describe, expect, it } from 'vitest';
import { askKvstoreMesh, askOperator } from '../../src/agent/process-answers.ts';
import { AgentError } from '../../src/api/api-client.ts';
import { askClustermesh, askReady, askStatus, sampleEntries } from '../../src/client/summary.ts';
import type { KeyedEntry } from '../../src/ipcache/types.ts';

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
