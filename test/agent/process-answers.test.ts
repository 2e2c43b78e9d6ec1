import { describe, expect, it } from 'vitest';
import { askKvstoreMesh, askOperator } from '../../src/agent/process-answers.ts';
import { AgentError } from '../../src/api/api-client.ts';
import { problem } from '../../src/api/problem.ts';
import type { HealthProblem } from '../../src/api/problems.ts';
import type { Answer, Question } from '../../src/client/answer.ts';

function answerOf(question: Question, status: object, items: readonly HealthProblem[] = []): Promise<Answer> {
  return question(
    async (path) => {
      if (path === '/v1/problems') return { ready: true, items };
      expect(path).toBe('/v1/status');
      return status;
    },
    { wide: true },
  );
}

const FULL: HealthProblem = { severity: 'warning', subject: 'copies', text: 'full', remedy: 'Clean it.' };
const STEP = { name: 'kvstore', state: 'running', ms: 3000, idleMs: 1000, waitsFor: [] };

it.each([
  [askKvstoreMesh, { problems: [], configProblems: [], clusters: [] }],
  [askOperator, { duties: [], rejected: { total: 0, recent: [] } }],
])(
  'the status of a process of an earlier version has its blockers (regression: failed): %#',
  async (question, status) => {
    const ask = async (path: string): Promise<unknown> => {
      if (path === '/v1/status') return { ...status, cluster: 'own', blockers: ['far is not copied'] };
      throw new AgentError('unknown path', problem('unknown-path', `Unknown path ${path}.`));
    };
    const { lines, succeeded } = await question(ask, { wide: true });
    expect([lines[1], succeeded]).toEqual(['  error: not ready: far is not copied', false]);
    const refused = new AgentError('refused', problem('forbidden', 'Forbidden.'));
    const failing = (path: string): Promise<unknown> =>
      path === '/v1/status' ? ask(path) : Promise.reject(refused);
    await expect(question(failing, { wide: true })).rejects.toBe(refused);
  },
);

describe('the status of kvstoremesh', () => {
  const cluster = {
    name: 'far',
    state: 'ready',
    rejoins: false,
    config: { id: 7 },
    copy: { keys: 11, pending: 12 },
    lastFailure: undefined,
  };
  const STATUS = { steps: [], blockers: [], problems: [], configProblems: [], clusters: [cluster] };

  it('has each problem with its remedy, the copy of each cluster, and its last failure', async () => {
    const status = {
      ...STATUS,
      blockers: ['far is not copied'],
      problems: ['standby, because another one copies', 'full'],
      clusters: [
        cluster,
        { ...cluster, name: 'near', config: undefined, rejoins: true, lastFailure: { message: 'refused' } },
      ],
    };
    const { lines, succeeded, json } = await answerOf(askKvstoreMesh, status, [FULL]);
    expect([succeeded, json]).toEqual([false, status]);
    expect(lines).toMatchInlineSnapshot(`
      [
        "problems:",
        "  warning: copies: full (Clean it.)",
        "",
        "CLUSTER  ID  STATE             KEYS  PENDING  LAST FAILURE",
        "far      7   ready             11    12",
        "near         ready, rejoining  11    12       refused",
        "standby, because another one copies",
      ]
    `);
  });

  it.each<[boolean, object]>([
    [true, {}],
    [true, { problems: ['full'] }],
    [true, { configProblems: ['bad file'] }],
    [true, { clusters: [{ ...cluster, state: 'failed', lastFailure: { message: 'refused' } }] }],
    [true, { steps: [STEP] }],
    [false, { blockers: ['standby'] }],
    [false, { blockers: ['far is not copied'], problems: ['full'] }],
  ])('succeeds only if nothing blocks it: %s with %j', async (succeeded, changes) => {
    expect(await answerOf(askKvstoreMesh, { ...STATUS, ...changes })).toMatchObject({ succeeded });
  });
});

describe('the status of an operator', () => {
  const STATUS = {
    steps: [],
    blockers: [],
    cluster: 'own',
    dryRun: false,
    election: undefined,
    namespaces: undefined,
    mcs: undefined,
    clusters: [],
    rejected: { total: 0, recent: [] },
    duties: [],
  };
  const linesOf = async (changes: object): Promise<readonly string[]> =>
    (await answerOf(askOperator, { ...STATUS, ...changes })).lines;

  it('has the keys and rounds of each duty below their titles, and its last failure with its time (regression: as if it lasted)', async () => {
    const lastRoundAt = new Date(2026, 0, 2, 3, 4, 5, 678).toISOString();
    const duties = [
      { name: 'ips', state: 'running', failures: 0, published: { keys: 11, pending: 12 } },
      {
        name: 'gc',
        state: 'waiting',
        failures: 4,
        lastFailure: { message: 'refused', at: lastRoundAt },
        rounds: {
          lastRoundAt,
          nextRoundAt: new Date(2026, 0, 2, 3, 4, 6, 678).toISOString(),
          marked: 13,
          deleted: 14,
          conflicts: 15,
        },
      },
      {
        name: 'new',
        state: 'off',
        failures: 0,
        lastFailure: { code: 'not-ready', message: 'no CRD', at: 0 },
        rounds: { marked: 0, deleted: 0, conflicts: 0 },
      },
    ];
    const status = {
      ...STATUS,
      duties,
      steps: [STEP],
      blockers: ['a'],
      rejected: { total: 1, recent: ['b'], lastAt: '2026-01-02T03:04:05.678Z' },
    };
    const { lines, succeeded, json } = await answerOf(askOperator, status, [FULL]);
    expect([succeeded, json]).toEqual([false, status]);
    expect(lines).toMatchInlineSnapshot(`
      [
        "problems:",
        "  warning: copies: full (Clean it.)",
        "",
        "Cluster own: this operator runs without leader election.",
        "DUTY  STATE    KEYS  PENDING  LAST ROUND               MARKED  DELETED  CONFLICTS  NEXT ROUND               FAILURES",
        "ips   running  11    12       -                        -       -        -          -                        0",
        "gc    waiting  -     -        2026-01-02 03:04:05.678  13      14       15         2026-01-02 03:04:06.678  4",
        "new   off      -     -        -                        0       0        0          -                        0",
        "gc: refused; at 2026-01-02 03:04:05.678",
        "new: no CRD",
        "1 item was rejected, the last at 2026-01-02 03:04:05.678:",
        "  b",
      ]
    `);
    expect((await answerOf(askOperator, STATUS)).succeeded).toBe(true);
  });

  it.each<[object, string]>([
    [{ dryRun: true, election: { state: 'leader', identity: 'me' } }, 'dry run, nothing is written.'],
    [{}, 'this operator runs without leader election.'],
    [{ election: { state: 'leader', identity: 'me' } }, 'this operator is the leader, me.'],
    [
      { election: { state: 'candidate', identity: 'me', holder: 'you', freeInMs: 1001 } },
      'this operator waits for the Lease of you; expires in 2 s if it is not renewed.',
    ],
    [
      { election: { state: 'candidate', identity: 'me', holder: 'you', freeInMs: 1 } },
      'this operator waits for the Lease of you; expires in 1 s if it is not renewed.',
    ],
    [{ election: { state: 'candidate', identity: 'me', freeInMs: 0 } }, 'this operator waits for the Lease.'],
    [
      { election: { state: 'candidate', identity: 'me', holder: 'you' } },
      'this operator waits for the Lease of you.',
    ],
  ])('tells with %j: %s', async (changes, text) => {
    expect((await linesOf(changes))[0]).toBe(`Cluster own: ${text}`);
  });

  it('counts the global namespaces', async () => {
    const namespaces = { global: 1, known: 2, complete: true, globalByDefault: true };
    expect((await linesOf({ namespaces }))[1]).toBe('Namespaces: 1 of 2 global; by default global.');
    const some = { ...namespaces, complete: false, globalByDefault: false };
    expect((await linesOf({ namespaces: some }))[1]).toBe(
      'Namespaces: 1 of 2 global, not all known yet; by default not global.',
    );
  });

  it('counts exports, imports and conflicts of the multi-cluster services API', async () => {
    const mcs = {
      version: 'v1beta1',
      exports: 1,
      imports: 2,
      remoteExports: { a: 3, b: 4 },
      conflicts: { type: 5, ports: 6 },
      waitingImports: 7,
    };
    expect((await linesOf({ mcs })).slice(1, 3)).toEqual([
      'Multi-cluster services (v1beta1): 1 export here, a 3, b 4; 2 imports; 7 imports waiting for their clusters.',
      'Conflicts of exports: type 5, ports 6.',
    ]);
    const none = { exports: 0, imports: 1, remoteExports: {}, conflicts: {}, waitingImports: 0 };
    const [, first, second] = await linesOf({ mcs: none });
    expect(first).toBe('Multi-cluster services (not known yet): 0 exports here; 1 import.');
    expect(second).toMatch(/^DUTY/);
  });
});
