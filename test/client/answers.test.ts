import { describe, expect, it } from 'vitest';
import { AgentError } from '../../src/api/api-client.ts';
import type { DatapathDocument, DatapathTableDocument } from '../../src/api/datapath-document.ts';
import { problem } from '../../src/api/problem.ts';
import { type Answer, ageText, type Question } from '../../src/client/answer.ts';
import { askConflicts } from '../../src/client/conflict-answers.ts';
import {
  askDatapathDiff,
  askDatapathRepair,
  askDatapathStatus,
  askUsesPins,
  cleanAnswer,
  hostAnswer,
} from '../../src/client/datapath-answers.ts';
import {
  askAround,
  askHistory,
  explainPast,
  exportHistory,
  pastLines,
} from '../../src/client/history-answers.ts';
import { getNode } from '../../src/client/node-answers.ts';
import { explainPrefix, getPrefix } from '../../src/client/prefix-answers.ts';
import { askSearch } from '../../src/client/search-answers.ts';
import { explainService, getService } from '../../src/client/service-answers.ts';
import { askWhatIf } from '../../src/client/whatif-answers.ts';
import { localTimeText } from '../../src/process/terminal.ts';

/** Answers a question with these documents by path. Returns the requested paths, too. */
async function answerOf(
  question: Question,
  documents: Readonly<Record<string, unknown>>,
): Promise<Answer & { readonly asked: readonly string[] }> {
  const asked: string[] = [];
  const answer = await question(
    async (path, body) => {
      asked.push(body === undefined ? path : `${path} ${JSON.stringify(body)}`);
      if (Object.hasOwn(documents, path)) return documents[path];
      if (path === '/v1/status') return { clusters: [] };
      throw new Error(`unexpected request ${path}`);
    },
    { wide: true },
  );
  return { ...answer, asked };
}

const TABLE: DatapathTableDocument = {
  name: 'ipcache',
  state: 'adopting',
  desired: 11,
  actual: 12,
  capacity: 13,
  pressure: 0.92,
  maps: [
    { name: 'full', used: 9, capacity: 10 },
    { name: 'free', used: 8, capacity: 10 },
  ],
  pending: 14,
  waiting: 1,
  unconfirmed: 15,
  noRoom: 16,
  noRoomErrors: 17,
  failing: 18,
  failures: [{ key: '10.0.0.1/32', reason: 'no memory', attempts: 2 }],
  upserts: 19,
  deletes: 20,
  repairs: 21,
};

const DATAPATH: DatapathDocument = {
  kind: 'linux',
  kernel: '6.1',
  pinFolder: '/pins',
  cgroup: '/cgroup',
  layout: '1.17',
  dryRun: false,
  parts: [
    { name: 'ipcache', state: 'running', missing: [] },
    { name: 'nodes', state: 'off', missing: [] },
  ],
  tables: [
    TABLE,
    { ...TABLE, name: 'routes', capacity: undefined, pressure: 0.0123, waiting: 0, maps: [], failures: [] },
  ],
  waitsFor: ['cluster far is incomplete'],
  failures: ['no cgroup'],
};

describe('datapath status', () => {
  it('has every count below its title, and each problem', async () => {
    const { lines, json, asked } = await answerOf(askDatapathStatus, {
      '/v1/status': { datapath: DATAPATH },
    });
    expect([asked, json]).toEqual([['/v1/status'], DATAPATH]);
    expect(lines).toMatchInlineSnapshot(`
      [
        "Linux 6.1, maps of 1.17 in /pins, cgroup /cgroup",
        "",
        "PART     STATE",
        "ipcache  running",
        "nodes    off",
        "",
        "TABLE    STATE     ITEMS  WANTED  CAPACITY  FULL   PENDING  UNCONFIRMED  NO ROOM  FAILING  REPAIRED",
        "ipcache  adopting  12     11      13        92 %   14       15           16       18       21",
        "routes   adopting  12     11      -         1.2 %  14       15           16       18       21",
        "ipcache: 1 delete waits until no other table refers to the keys",
        "ipcache: 10.0.0.1/32: no memory, 2 attempts",
        "ipcache: map full has 9 of 10 entries",
        "no cgroup",
        "",
        "Not yet confirmed by a cache: 30 items found at the start, kept until:",
        "  cluster far is incomplete",
      ]
    `);
  });

  it.each<[boolean, Partial<DatapathDocument>]>([
    [true, { failures: [] }],
    [false, { failures: ['x'] }],
    [false, { failures: [], parts: [{ name: 'ipcache', state: 'unavailable', missing: [] }] }],
    [false, { failures: [], parts: [{ name: 'ipcache', state: 'running', missing: ['no BTF'] }] }],
    [true, { failures: [], parts: [{ name: 'ipcache', state: 'off', missing: ['no BTF'] }] }],
    [false, { failures: [], tables: [{ ...TABLE, state: 'degraded' }] }],
    [false, { failures: [], tables: [{ ...TABLE, state: 'unread' }] }],
    [true, { failures: [], tables: [{ ...TABLE, state: 'in-sync' }] }],
  ])('is healthy: %s for %j', async (succeeded, changes) => {
    const datapath = { ...DATAPATH, ...changes };
    expect((await answerOf(askDatapathStatus, { '/v1/status': { datapath } })).succeeded).toBe(succeeded);
  });

  it('without tables, items to keep or a cgroup has no lines for them', async () => {
    const datapath = { ...DATAPATH, cgroup: undefined, dryRun: true, tables: [], failures: [] };
    const { lines } = await answerOf(askDatapathStatus, { '/v1/status': { datapath } });
    expect(lines).toMatchInlineSnapshot(`
      [
        "Linux 6.1, maps of 1.17 in /pins, cgroup -; dry run, nothing is written",
        "",
        "PART     STATE",
        "ipcache  running",
        "nodes    off",
      ]
    `);
  });

  it('needs a datapath', async () => {
    await expect(answerOf(askDatapathStatus, { '/v1/status': {} })).rejects.toThrow(
      'no datapath is configured',
    );
  });

  it('of a machine without an agent lists what could run', () => {
    const pieces = [
      { piece: 'maps' as const, missing: [] },
      { piece: 'sockets' as const, missing: ['no BTF', 'no cgroup'] },
    ];
    const probe = { kernel: '6.1', pinFolder: '/pins', cgroup: undefined, pieces };
    const { lines, succeeded, json } = hostAnswer(probe as never, 'No agent is running');
    expect(lines).toMatchInlineSnapshot(`
      [
        "No agent is running. Pieces of the datapath that could run on this machine:",
        "",
        "Linux 6.1, pins in /pins, cgroup -",
        "",
        "PIECE    STATE",
        "maps     available",
        "sockets  unavailable  no BTF",
        "                      no cgroup",
      ]
    `);
    expect([succeeded, json]).toEqual([false, probe]);
    expect(hostAnswer({ ...probe, pieces: pieces.slice(0, 1) } as never, '').succeeded).toBe(true);
  });
});

const STEPS = [
  { table: 'ipcache', key: '10.0.0.1/32', cache: 'identity 4' },
  { table: 'ipcache', key: '10.0.0.2/32', kernel: 'identity 5' },
  { table: 'routes', key: '10.1.0.0/24', kernel: 'via 1', cache: 'via 2' },
];

describe('datapath diff and repair', () => {
  it.each([
    [askDatapathDiff, '/v1/datapath/diff', '/v1/datapath/diff', false],
    [askDatapathRepair, '/v1/datapath/repair', '/v1/datapath/repair {}', true],
  ])('list each difference with its sign, and count the others: %o', async (ask, path, asked, succeeded) => {
    const document = { total: 5, steps: STEPS };
    const answer = await answerOf(ask, { [path]: document });
    expect(answer).toMatchObject({ json: document, asked: [asked], succeeded });
    expect(answer.lines.slice(0, 4)).toEqual([
      'ipcache + 10.0.0.1/32 identity 4',
      'ipcache - 10.0.0.2/32 identity 5',
      'routes ~ 10.1.0.0/24 via 1 → via 2',
      '… and 2 more',
    ]);
    const all = await answerOf(ask, { [path]: { total: 3, steps: STEPS } });
    expect(all.lines[3]).not.toBe('… and 0 more');
    const none = await answerOf(ask, { [path]: { total: 0, steps: [] } });
    expect(none).toMatchObject({ succeeded: true, lines: [expect.stringMatching(/^No differences/)] });
  });

  it('count the repaired items', async () => {
    const { lines } = await answerOf(askDatapathRepair, {
      '/v1/datapath/repair': { total: 5, steps: STEPS },
    });
    expect(lines.at(-1)).toBe('Repaired 5 items.');
  });
});

it.each([
  [true, { pinFolder: '/pins', dryRun: false }],
  [false, { pinFolder: '/pins', dryRun: true }],
  [false, { pinFolder: '/others', dryRun: false }],
  [false, undefined],
])('an agent owns the pins of a folder: %s for %j', async (succeeded, datapath) => {
  const documents = { '/v1/status': { datapath }, '/healthz': { pid: 7 } };
  expect(await answerOf(askUsesPins('/pins'), documents)).toMatchObject({ succeeded, json: { pid: 7 } });
});

it('datapath clean lists what it removed, and fails if something is left', () => {
  expect(cleanAnswer({ removed: ['a', 'b'], remaining: [] } as never)).toEqual({
    json: { removed: ['a', 'b'], left: [] },
    lines: ['a', 'b'],
    succeeded: true,
  });
  expect(cleanAnswer({ removed: [], remaining: ['c'] } as never)).toEqual({
    json: { removed: [], left: ['c'] },
    lines: ['Nothing to remove.'],
    succeeded: false,
  });
});

it('conflicts are listed with both sides, and those that are not listed are counted by kind', async () => {
  const side = (cluster: string, claim: string): object => ({ cluster, claim });
  const items = [{ kind: 'pod-cidr', subject: '10.0.0.0/8', sides: [side('a', 'x'), side('b', 'y')] }];
  const counts = { 'pod-cidr': 3, prefix: 0, 'cluster-id': 2 };
  const answer = await answerOf(askConflicts, { '/v1/conflicts': { counts, items } });
  expect(answer).toMatchObject({ succeeded: false, names: ['10.0.0.0/8'], json: { counts, items } });
  expect(answer.lines).toMatchInlineSnapshot(`
    [
      "KIND      SUBJECT     CLAIMS",
      "pod-cidr  10.0.0.0/8  a: x; b: y",
      "2 more of kind pod-cidr.",
      "2 more of kind cluster-id.",
    ]
  `);
  const none = await answerOf(askConflicts, {
    '/v1/conflicts': { counts: { 'pod-cidr': 0, prefix: 0, 'cluster-id': 0 }, items: [] },
  });
  expect(none).toMatchObject({ succeeded: true, lines: ['No conflicts.'], names: [] });
});

/** Returns a time of 2020 as ISO 8601; its text is `2020-01-02 03:04:SS.006` in each time zone. */
const at = (second: number): string => new Date(2020, 0, 2, 3, 4, second, 6).toISOString();

it('a time of today has no date', () => {
  const now = new Date(2020, 0, 2, 23, 59);
  expect(localTimeText(at(5), now)).toBe('03:04:05.006');
  expect(localTimeText(at(5), new Date(2020, 0, 3))).toBe('2020-01-02 03:04:05.006');
});

const RETAINED = { from: at(0), to: at(59) };
const PAST = { at: at(1), certain: true, effectiveSince: at(2), effectiveUntil: at(3), retained: RETAINED };

describe('a past answer', () => {
  it('tells since and until when it is unchanged, and why it is not certain', () => {
    expect(pastLines(undefined)).toEqual([]);
    expect([
      ...pastLines(PAST),
      ...pastLines({
        at: at(1),
        certain: false,
        reason: 'cluster-incomplete',
        subjects: ['baltic', 'Kubernetes pods'],
        claimsComplete: false,
        retained: RETAINED,
      }),
      ...pastLines({ ...PAST, certain: true, reason: 'cluster-incomplete' }),
    ]).toMatchInlineSnapshot(`
      [
        "as of 2020-01-02 03:04:01.006; unchanged from 2020-01-02 03:04:02.006 to 2020-01-02 03:04:03.006",
        "as of 2020-01-02 03:04:01.006; unchanged from before the retained changes to the end of that agent",
        "before the last start of the agent: only claims with a recorded change are known",
        "not certain: a cluster or a kind of Kubernetes objects was not read completely at that time (baltic, Kubernetes pods)",
        "as of 2020-01-02 03:04:01.006; unchanged from 2020-01-02 03:04:02.006 to 2020-01-02 03:04:03.006",
      ]
    `);
  });

  it('names nine of many incomplete clusters', () => {
    const textOf = (count: number): string | undefined => {
      const subjects = Array.from({ length: count }, (_, i) => `c${i}`);
      const reason = 'withdrawing';
      return pastLines({ at: at(1), certain: false, reason, subjects, retained: RETAINED }).at(-1);
    };
    const removed = 'not certain: entries of a cluster were being removed at that time';
    expect([0, 1, 9, 10].map(textOf)).toEqual([
      removed,
      `${removed} (c0)`,
      `${removed} (c0, c1, c2, c3, c4, c5, c6, c7, c8)`,
      `${removed} (c0, c1, c2, c3, c4, c5, c6, c7, c8 and others)`,
    ]);
  });

  it('distinguishes a time that the clock has not reached from one around which it was set', () => {
    const reasonAt = (ms: number): string | undefined =>
      pastLines({ at: at(ms), certain: false, reason: 'clock', retained: RETAINED }).at(-1);
    expect([reasonAt(59), reasonAt(60)]).toEqual([
      'not certain: the system clock was changed around that time',
      'not certain: the clock of the agent has not reached that time, or was set back since',
    ]);
  });

  const claim = { prefix: '10.0.0.1/32', key: '10.0.0.1', source: 'clustermesh', owner: 'far', identity: 7 };
  const explain = async (
    past: object,
    claims: readonly object[],
    now?: object,
  ): Promise<readonly string[]> => {
    const path = '/v1/ipcache/explain/10.0.0.1';
    const documents = {
      [`${path}?at=2020-01-01`]: { prefix: '10.0.0.1/32', claims, decidedBy: 'only-claim', past },
      [path]: now ?? { prefix: '10.0.0.1/32', claims: [] },
    };
    const { lines, asked, succeeded } = await answerOf(explainPast('10.0.0.1', '2020-01-01'), documents);
    expect([asked, succeeded]).toEqual([[`${path}?at=2020-01-01`, path], true]);
    return lines;
  };

  it('has the time of each claim, and the current one', async () => {
    const claims = [
      { ...claim, hostIP: '192.168.0.1', namespace: 'shop', podName: 'cart', since: at(4) },
      { ...claim, owner: undefined, source: 'k8s', identity: 8 },
    ];
    const now = { claims: [{ ...claims[0], identity: 9, podName: 'late', owner: 'near' }] };
    expect(await explain(PAST, claims, now)).toMatchInlineSnapshot(`
      [
        "10.0.0.1/32 at 2020-01-02 03:04:01.006: identity kube-apiserver, by only-claim",
        "  clustermesh far  7  192.168.0.1  shop/cart  since 2020-01-02 03:04:04.006, effective until 2020-01-02 03:04:03.006",
        "  k8s              8  -            -          since before the retained changes, overruled",
        "  now: 10.0.0.1/32: clustermesh near 9 shop/late",
      ]
    `);
  });

  it.each([
    [{}, {}, 'effective until now'],
    [{ claimsComplete: false }, {}, 'effective until that agent ended'],
    [{}, { until: at(9) }, 'until 2020-01-02 03:04:09.006'],
    [
      { effectiveUntil: at(8), claimsComplete: false },
      { until: at(9) },
      'effective until 2020-01-02 03:04:08.006',
    ],
  ])('of %j with a claim %j ends with %j', async (past, more, end) => {
    const [, row] = await explain({ at: at(1), certain: true, ...past }, [{ ...claim, ...more }]);
    expect(row).toMatch(new RegExp(`since before the retained changes, ${end}$`));
  });

  it('of ipcache get has the time and since and until when it is unchanged (regression: only the entry)', async () => {
    const documents = {
      '/v1/ipcache/explain/10.0.0.1?at=2020-01-01': { prefix: '10.0.0.1/32', claims: [claim], past: PAST },
    };
    const { lines } = await answerOf(getPrefix('10.0.0.1', '2020-01-01'), documents);
    expect(lines.slice(2)).toEqual(pastLines(PAST));
  });

  it('has no entry if the prefix had none then', async () => {
    const documents = { '/v1/ipcache/explain/10.0.0.1?at=now': { prefix: '10.0.0.1', claims: [] } };
    expect(await answerOf(explainPast('10.0.0.1', 'now'), documents)).toMatchObject({
      succeeded: false,
      lines: ['10.0.0.1 at now: not found'],
    });
    expect(await answerOf(getPrefix('10.0.0.1', 'now'), documents)).toMatchObject({ succeeded: false });
  });

  it('to get has the entry and its past', async () => {
    const path = '/v1/ipcache/explain/10.0.0.0/8?at=now';
    const entry = { ...claim, prefix: '10.0.0.0/8', encryptKey: 0 };
    const documents = { [path]: { prefix: '10.0.0.0/8', claims: [entry], past: { ...PAST, certain: true } } };
    expect(await answerOf(getPrefix('10.0.0.0/8', 'now'), documents)).toMatchObject({
      succeeded: true,
      names: ['10.0.0.0/8'],
      json: { ...entry, past: PAST },
      asked: [path],
    });
  });
});

describe('the history', () => {
  const change = (sequence: number, more: object): object => ({
    sequence,
    at: at(sequence),
    kind: 'prefix',
    key: '10.0.0.1',
    source: 'kvstore',
    ...more,
  });
  const ITEMS = [
    change(9, { kind: 'mark', mark: 'handler-failed', subject: 'node', detail: 'boom' }),
    change(8, {
      after: { identity: 5, namespace: 'shop', podName: 'cart', hostIP: '1.1.1.1' },
      owner: 'far',
    }),
    change(7, { before: { identity: 5, hostIP: '1.1.1.1' }, effective: { before: 5, after: null } }),
    change(6, {
      before: { identity: 5 },
      after: { identity: 6 },
      effective: { before: 5, after: 5 },
      key: '10.0.0.2',
    }),
    change(5, { after: {}, cause: { store: 'far', revision: '' }, effective: { before: null, after: 6 } }),
    change(4, { after: {}, cause: { store: 'far', revision: '12' } }),
    change(3, { after: {}, cause: { store: 'k8s', kind: 'pods', revision: '13' } }),
    change(2, { after: {}, cause: { store: 'far', kind: 'x', revision: '1', withdrawal: true } }),
    change(1, { kind: 'service', before: { backends: [1] }, after: { backends: [1, 2] } }),
    change(0, { kind: 'service', before: { backends: [] }, after: {} }),
  ];

  it('has the sign, the value and the cause of each change', async () => {
    const query = '/v1/history?key=10.0.0.1&from=a+b&limit=50';
    const page = { items: ITEMS, retained: RETAINED, more: true, changesInMemory: 70 };
    const answer = await answerOf(askHistory({ key: '10.0.0.1', from: 'a b', limit: 50 }), {
      [query]: { ...page, more: false },
    });
    expect(answer).toMatchObject({ succeeded: true, json: { ...page, more: false } });
    expect(answer.lines).toMatchInlineSnapshot(`
      [
        "2020-01-02 03:04:09.006  *              handler-failed  node            boom",
        "2020-01-02 03:04:08.006  + kvstore far                  5 shop/cart",
        "2020-01-02 03:04:07.006  - kvstore                      5 1.1.1.1       effective 5 → none",
        "2020-01-02 03:04:06.006  ~ kvstore      10.0.0.2        5 → 6",
        "2020-01-02 03:04:05.006  + kvstore                                      effective none → 6  far",
        "2020-01-02 03:04:04.006  + kvstore                                                          far rev 12",
        "2020-01-02 03:04:03.006  + kvstore                                                          k8s pods 13",
        "2020-01-02 03:04:02.006  + kvstore                                                          far withdrawn",
        "2020-01-02 03:04:01.006  ~ kvstore                      -1 +2 backends",
        "2020-01-02 03:04:00.006  ~ kvstore                      fields",
        "history from 2020-01-02 03:04:00.006 to now",
      ]
    `);
  });

  it('names the changed attributes of a claim (regression: a change of the host looked like none)', async () => {
    const pod = { namespace: 'shop', podName: 'a' };
    const claim = { identity: 5, hostIP: '1.1.1.1', ...pod };
    const items = [
      change(5, { before: claim, after: { ...claim, hostIP: '1.1.1.2', encryptKey: 3 } }),
      change(4, { before: claim, after: { ...claim, podName: 'b', serviceAccount: 'web' } }),
      change(3, { before: { identity: 5, hostIP: '1.1.1.1' }, after: { ...claim, identity: 6 } }),
      change(2, { before: { identity: 5, hostIP: '1.1.1.1' }, after: { identity: 5 } }),
      change(1, { before: claim, after: { ...claim, namedPorts: { http: '80/TCP' } } }),
      change(0, {
        before: { ...claim, namedPorts: { http: '80/TCP' } },
        after: { ...claim, hostIP: '1.1.1.2', namedPorts: { http: '81/TCP' } },
      }),
    ];
    const { lines } = await answerOf(askHistory({ key: '10.0.0.1', identity: 5, limit: 7 }), {
      '/v1/history?key=10.0.0.1&identity=5&limit=7': { items, retained: RETAINED, more: false },
    });
    expect(lines.slice(0, 6).map((line) => line.replace(/^.* ~ kvstore +/, ''))).toEqual([
      '5 shop/a, host 1.1.1.1 → 1.1.1.2, key 0 → 3',
      '5 shop/a → shop/b, service account none → web',
      '5 → 6 none → shop/a',
      '5, host 1.1.1.1 → none',
      '5 shop/a, named ports',
      '5 shop/a, host 1.1.1.1 → 1.1.1.2, named ports',
    ]);
  });

  it('names the changed fields of a node (regression: only the node was listed)', async () => {
    const node = (ip: string, bootID: string): object => ({
      ...NODE,
      addresses: [{ type: 'InternalIP', ip }],
      bootID,
    });
    const record = (sequence: number, more: object): object => ({
      ...{ sequence, at: at(1), kind: 'node', key: 'far/n1', source: 'k8s' },
      ...more,
    });
    const items = [
      record(3, { before: node('1.1.1.2', 'b') }),
      record(2, { before: node('1.1.1.1', 'a'), after: node('1.1.1.2', 'b') }),
      record(1, { after: node('1.1.1.1', 'a') }),
    ];
    const { lines } = await answerOf(askHistory({ key: 'far/n1', limit: 7 }), {
      '/v1/history?key=far%2Fn1&limit=7': { items, retained: RETAINED, more: false, changesInMemory: 3 },
    });
    expect(lines.slice(0, 3).map((line) => line.replace(/^\S+ \S+ +/, ''))).toMatchInlineSnapshot(`
      [
        "- k8s    1.1.1.2, pods 10.0.0.0/24 fd00::/64 10.0.1.0/24 fd01::/64, key 3",
        "~ k8s    InternalIP 1.1.1.1 → 1.1.1.2, boot a → b",
        "+ k8s    1.1.1.1, pods 10.0.0.0/24 fd00::/64 10.0.1.0/24 fd01::/64, key 3",
      ]
    `);
  });

  it('without changes does not succeed', async () => {
    const page = { items: [], retained: RETAINED, more: false, changesInMemory: 1 };
    const answer = await answerOf(askHistory({ limit: 7 }), { '/v1/history?limit=7': page });
    expect(answer).toMatchObject({ succeeded: false });
    expect(answer.lines).toEqual(['No matching changes.', 'history from 2020-01-02 03:04:00.006 to now']);
  });

  it('is read in pages of at most 1,000, up to the limit', async () => {
    const items = (count: number, from: number): readonly object[] =>
      Array.from({ length: count }, (_, index) => change(from - index, {}));
    const documents = {
      '/v1/history?limit=1000': {
        items: items(1000, 3000),
        retained: RETAINED,
        more: true,
        changesInMemory: 9,
      },
      '/v1/history?after=2001&limit=200': {
        items: items(200, 2000),
        retained: RETAINED,
        more: true,
        changesInMemory: 8,
      },
    };
    const { lines, json } = await answerOf(askHistory({ limit: 1200 }), documents);
    expect(json).toMatchObject({ more: true, changesInMemory: 8 });
    expect((json as { items: readonly unknown[] }).items).toHaveLength(1200);
    expect(lines.at(-2)).toBe('older changes follow: --limit 2400');
  });

  it('is exported completely, one JSON line for each change', async () => {
    const pages: Readonly<Record<string, unknown>> = {
      '/v1/history?to=x&limit=1000': { items: ITEMS.slice(0, 4), retained: RETAINED, more: true },
      '/v1/history?to=x&after=6&limit=1000': { items: ITEMS.slice(4), retained: RETAINED, more: false },
    };
    const written: string[] = [];
    const count = await exportHistory(
      async (path) => pages[path],
      { to: 'x' },
      async (lines) => written.push(lines),
    );
    expect(count).toBe(ITEMS.length);
    expect(written.join('')).toBe(ITEMS.map((item) => `${JSON.stringify(item)}\n`).join(''));
    expect(written).toHaveLength(2);
  });

  it('around a moment has each group with its counts and its common cause', async () => {
    const group = {
      at: at(1),
      store: 'far',
      added: 1200,
      changed: 0,
      deleted: 2,
      kinds: { prefix: 1, node: 2, service: 3, other: 1 },
      emptied: [],
      samples: ['10.0.0.1'],
    };
    const groups = [
      group,
      { ...group, revisions: { first: '3', last: '3' }, host: '1.1.1.1', added: 0, deleted: 1 },
      {
        ...group,
        revisions: { first: '3', last: '9' },
        node: 'far/n',
        host: '1.1.1.1',
        emptied: ['a/b', 'c/d'],
      },
      { ...group, withdrawal: true, changed: 4 },
      { ...group, store: 'joined', mark: { subject: 'far', detail: '' } },
    ];
    const path = '/v1/history/around?at=a+b&window=2.5&limit=9';
    const answer = await answerOf(askAround('a b', 2500, 9), {
      [path]: { at: at(1), groups, retained: RETAINED },
    });
    expect(answer).toMatchObject({ succeeded: true, asked: [path] });
    expect(answer.lines).toMatchInlineSnapshot(`
      [
        "2020-01-02 03:04:01.006  far: 2 deleted, 1,200 added (1 prefix change, 2 node changes, 3 service changes, 1 other); 10.0.0.1, …",
        "2020-01-02 03:04:01.006  far rev 3: 1 deleted (1 prefix change, 2 node changes, 3 service changes, 1 other), all of host 1.1.1.1; 10.0.0.1",
        "2020-01-02 03:04:01.006  far rev 3 to 9: 2 deleted, 1,200 added (1 prefix change, 2 node changes, 3 service changes, 1 other), all of node far/n; without backends then: a/b, c/d; 10.0.0.1, …",
        "2020-01-02 03:04:01.006  far withdrawn: 2 deleted, 4 changed, 1,200 added (1 prefix change, 2 node changes, 3 service changes, 1 other); 10.0.0.1, …",
        "2020-01-02 03:04:01.006  joined far",
      ]
    `);
    const none = await answerOf(askAround('a b', 2500, 9), {
      [path]: { at: at(1), groups: [], retained: RETAINED },
    });
    expect(none).toMatchObject({
      succeeded: false,
      lines: [
        'No changes within 2.5 s of 2020-01-02 03:04:01.006; retained from 2020-01-02 03:04:00.006 on.',
      ],
    });
  });
});

it.each([
  [59, '59 s old'],
  [119, '1 min old'],
  [7199, '1 h old'],
  [172_800, '2 d old'],
])('an age of %i s is %s', (ageSeconds, text) => {
  expect(ageText({ knownAt: '', ageSeconds })).toBe(text);
});

const NODE = {
  cluster: 'far',
  name: 'n1',
  source: 'clustermesh',
  addresses: [{ type: 'InternalIP', ip: '1.1.1.1' }],
  ipv4AllocCIDR: '10.0.0.0/24',
  ipv4SecondaryAllocCIDRs: ['10.0.1.0/24'],
  ipv6AllocCIDR: 'fd00::/64',
  ipv6SecondaryAllocCIDRs: ['fd01::/64'],
  encryptionKey: 3,
  ipv4HealthIP: '1.1.1.2',
  ipv6HealthIP: 'fd00::2',
  ipv4IngressIP: '1.1.1.3',
  ipv6IngressIP: 'fd00::3',
  wireguardPubKey: 'wg',
  bootID: 'boot',
  labels: { zone: 'b', a: '' },
  restored: { knownAt: '', ageSeconds: 300 },
};

describe('a node', () => {
  it('that does not exist is not found, with a similar name (regression: a misspelt name had no hint)', async () => {
    const detail = 'No such node.';
    const document = { ...problem('not-found', detail, { nearest: 'far/n1' }) };
    const ask = async (path: string): Promise<unknown> => {
      if (path === '/v1/status') return { clusters: [] };
      throw new AgentError(detail, document);
    };
    const lines = ['far/m1: not found; did you mean far/n1?'];
    expect(await getNode('far/m1')(ask, { wide: true })).toEqual({
      json: null,
      lines,
      succeeded: false,
      isMissing: true,
    });
    expect(await getService('far/m1')(ask, { wide: true })).toMatchObject({ lines });
    expect(await explainService('far/m1')(ask, { wide: true })).toMatchObject({ lines });
  });

  it('has each field below its title, its lost addresses and its past', async () => {
    const lostAddresses = [
      { ip: '1.1.1.4' },
      { ip: '1.1.1.5', holder: { source: 'kvstore', owner: 'x' } },
      { ip: '1.1.1.6', holder: { source: 'k8s', owner: '' } },
    ];
    const node = { ...NODE, explain: { claims: [NODE, NODE], heldBack: true, lostAddresses }, past: PAST };
    const answer = await answerOf(getNode('far/n1', 'a b'), { '/v1/nodes/far/n1?at=a+b': node });
    expect(answer).toMatchObject({ succeeded: true, names: ['far/n1'], json: node });
    expect(answer.lines).toMatchInlineSnapshot(`
      [
        "NODE    SOURCE                  ADDRESSES           PODS                                         KEY  HEALTH           INGRESS          WIREGUARD KEY  BOOT ID  LABELS",
        "far/n1  clustermesh, 5 min old  InternalIP=1.1.1.1  10.0.0.0/24 10.0.1.0/24 fd00::/64 fd01::/64  3    1.1.1.2 fd00::2  1.1.1.3 fd00::3  wg             boot     zone=b a=",
        "far/n1  clustermesh, 5 min old  InternalIP=1.1.1.1  10.0.0.0/24 10.0.1.0/24 fd00::/64 fd01::/64  3    1.1.1.2 fd00::2  1.1.1.3 fd00::3  wg             boot     zone=b a=",
        "The first claim is effective; the others are overruled.",
        "Handlers still have an earlier version of this node.",
        "1.1.1.4: not claimed, because the IPCache is full",
        "1.1.1.5: claimed by kvstore x",
        "1.1.1.6: claimed by k8s",
        "as of 2020-01-02 03:04:01.006; unchanged from 2020-01-02 03:04:02.006 to 2020-01-02 03:04:03.006",
      ]
    `);
  });

  it('with one claim has no lines about others', async () => {
    const bare = { cluster: 'far', name: 'n1', source: 'k8s', addresses: [], encryptionKey: 0, labels: {} };
    const node = { ...bare, explain: { claims: [bare], heldBack: false, lostAddresses: [] } };
    const { lines } = await answerOf(getNode('far/n1'), { '/v1/nodes/far/n1': node });
    expect(lines).toMatchInlineSnapshot(`
      [
        "NODE    SOURCE  ADDRESSES  PODS  KEY  HEALTH  INGRESS  WIREGUARD KEY  BOOT ID  LABELS",
        "far/n1  k8s     -          -     0    -       -        -              -        -",
      ]
    `);
  });
});

const SERVICE = {
  namespace: 'shop',
  name: 'cart',
  type: 'LoadBalancer',
  clusterIPs: ['10.96.0.1'],
  externalIPs: ['2.2.2.2', '3.3.3.3'],
  loadBalancerIPs: ['2.2.2.2'],
  ports: { http: '80/TCP', '': '81/UDP' },
  nodePorts: { http: 30_000 },
  global: true,
  shared: true,
  affinity: 'local',
  nodeLabel: 'edge',
  backends: [
    {
      address: '10.0.0.1',
      cluster: 'far',
      ports: { http: '8080/TCP' },
      state: 'active',
      weight: 7,
      nodeName: 'n',
      zone: 'z',
    },
    { address: '10.0.0.2', ports: {}, state: 'terminating' },
  ],
  restored: { knownAt: '', ageSeconds: 60 },
};

describe('a service', () => {
  it('has each field below its title, its backends and its past', async () => {
    const service = { ...SERVICE, explain: {}, past: PAST };
    const { explain: _, ...json } = service;
    const answer = await answerOf(getService('shop/cart', 'x'), { '/v1/services/shop/cart?at=x': service });
    expect(answer).toMatchObject({ succeeded: true, names: ['shop/cart'], json });
    expect(answer.lines).toMatchInlineSnapshot(`
      [
        "SERVICE    TYPE          CLUSTER IP  PORTS                          BACKENDS                     MESH                               EXTERNAL IP      AFFINITY  NODES                        ADDRESSES",
        "shop/cart  LoadBalancer  10.96.0.1   http:80/TCP,node:30000 81/UDP  2 backends (1 local, 1 far)  global shared restored, 1 min old  2.2.2.2 3.3.3.3  local     service.cilium.io/node=edge  10.0.0.1 10.0.0.2",
        "",
        "BACKEND   CLUSTER  NODE  ZONE  PORTS          STATE        WEIGHT",
        "10.0.0.1  far      n     z     http:8080/TCP  active       7",
        "10.0.0.2  local    -     -     -              terminating  100",
        "as of 2020-01-02 03:04:01.006; unchanged from 2020-01-02 03:04:02.006 to 2020-01-02 03:04:03.006",
      ]
    `);
  });

  it('explains each offered backend', async () => {
    const verdicts = [
      'effective',
      'merged',
      'overruled',
      'not-global',
      'not-ready',
      'affinity',
      'maintenance',
    ];
    const backends = verdicts.map((verdict, index) => ({
      address: `10.0.0.${index}`,
      slice: index === 0 ? '' : 'slice',
      ...(index > 1 && { cluster: 'far' }),
      verdict,
    }));
    const service = { ...SERVICE, explain: { backends }, past: PAST };
    const answer = await answerOf(explainService('shop/cart'), { '/v1/services/shop/cart': service });
    expect(answer).toMatchObject({ succeeded: true, json: { backends } });
    expect(answer.lines).toMatchInlineSnapshot(`
      [
        "shop/cart: 7 offered, effective: 2 backends (1 local, 1 far).",
        "Only nodes with service.cilium.io/node=edge have its frontends.",
        "BACKEND   CLUSTER  SLICE  VERDICT",
        "10.0.0.0  local    -      effective",
        "10.0.0.1  local    slice  its ports are merged with those of another slice",
        "10.0.0.2  far      slice  overruled by a stronger claim on the address",
        "10.0.0.3  far      slice  unused: the service does not include other clusters",
        "10.0.0.4  far      slice  unused: not ready",
        "10.0.0.5  far      slice  unused: the affinity prefers other backends",
        "10.0.0.6  far      slice  unused: its weight is 0",
        "as of 2020-01-02 03:04:01.006; unchanged from 2020-01-02 03:04:02.006 to 2020-01-02 03:04:03.006",
      ]
    `);
    const everywhere = { ...service, nodeLabel: undefined, past: undefined };
    const { lines } = await answerOf(explainService('shop/cart'), { '/v1/services/shop/cart': everywhere });
    expect(lines.join()).not.toContain('Only nodes');
    const some = { ...everywhere, nodeSelector: 'a in (b)' };
    const selected = await answerOf(explainService('shop/cart'), { '/v1/services/shop/cart': some });
    expect(selected.lines[1]).toBe('Only nodes with a in (b) have its frontends.');
    const limited = { ...everywhere, sourceRanges: ['1.0.0.0/8', '2.0.0.0/8'], sourceRangesPolicy: 'deny' };
    const denied = await answerOf(explainService('shop/cart'), { '/v1/services/shop/cart': limited });
    expect(denied.lines[1]).toBe('Its load balancer admits only clients outside of 1.0.0.0/8 2.0.0.0/8.');
    const admitted = async (sourceRangesPolicy: string): Promise<string | undefined> => {
      const document = { ...everywhere, sourceRanges: [], sourceRangesPolicy };
      return (await answerOf(explainService('shop/cart'), { '/v1/services/shop/cart': document })).lines[1];
    };
    expect(await admitted('allow')).toBe('Its load balancer admits no client.');
    expect(await admitted('deny')).toBe('Its load balancer admits all clients.');
    const unused = { ...everywhere, backends: [], explain: { backends: [] } };
    const empty = await answerOf(explainService('shop/cart'), { '/v1/services/shop/cart': unused });
    expect(empty.lines).toEqual(['shop/cart: 0 offered, effective: 0 backends.']);
  });
});

describe('an explained prefix', () => {
  const claims = [
    {
      prefix: '10.0.0.1/32',
      key: '10.0.0.1',
      identity: 70_000,
      labels: ['k8s:app=web', 'k8s:empty'],
      source: 'clustermesh',
      owner: 'far',
      encryptKey: 3,
      hostIP: '1.1.1.1',
      namespace: 'shop',
      podName: 'cart',
      serviceAccount: 'sa',
      namedPorts: { http: '80/TCP' },
      restored: { knownAt: '', ageSeconds: 5 },
      origin: { text: "far's etcd" },
    },
    { prefix: '10.0.0.1/32', key: '10.0.0.1/32', identity: 2, source: 'generated', encryptKey: 0 },
  ];
  const explain = async (more: object): Promise<readonly string[]> => {
    const document = { prefix: '10.0.0.1/32', claims, decidedBy: 'source-precedence', ...more };
    return (await answerOf(explainPrefix('10.0.0.1'), { '/v1/ipcache/explain/10.0.0.1': document })).lines;
  };

  it('has each field below its title, and its roles', async () => {
    expect(await explain({ roles: [{ text: 'pod CIDR' }] })).toMatchInlineSnapshot(`
      [
        "10.0.0.1: pod CIDR",
        "10.0.0.1/32: the first claim (*) is effective, because its source is stronger than the source of the next claim.",
        "   KEY          IDENTITY         HOST     ENCRYPT  SOURCE                      POD        SERVICE ACCOUNT  PORTS        LABELS                 ORIGIN",
        "*  10.0.0.1     70000 (app=web)  1.1.1.1  3        clustermesh (far), 5 s old  shop/cart  sa               http:80/TCP  k8s:app=web k8s:empty  far's etcd",
        "   10.0.0.1/32  world            -        0        generated                   -          -                -            -                      -",
      ]
    `);
  });

  it('names the deciding rule', async () => {
    const rules = ['only-claim', 'owner-name', 'endpoint-over-cidr', undefined];
    const lines = await Promise.all(rules.map(async (decidedBy) => (await explain({ decidedBy }))[0]));
    expect(lines).toMatchInlineSnapshot(`
      [
        "10.0.0.1/32: the first claim (*) is effective, because it is the only claim.",
        "10.0.0.1/32: the first claim (*) is effective, because the sources are equal and the name of its owner sorts first.",
        "10.0.0.1/32: the first claim (*) is effective, because the endpoint shadows the CIDR of the same address.",
        "10.0.0.1/32: no source claims it, and no prefix contains it",
      ]
    `);
  });

  it('without claims, names the clusters that are not ready', async () => {
    const far = {
      name: 'far',
      ready: false,
      connected: false,
      knownAt: 'T',
      missing: [],
      lastFailure: 'refused',
    };
    const why = 'cluster far is incomplete: unreachable, serving the state of T: refused';
    const roles = [{ as: 'pod-cidr', text: 'in pod CIDR 10.0.0.0/24 of node far/n1' }];
    const answer = await answerOf(explainPrefix('10.0.0.1'), {
      '/v1/ipcache/explain/10.0.0.1': { prefix: '10.0.0.1/32', claims: [], roles },
      '/v1/status': { clusters: [{ name: 'near', ready: true }, far] },
    });
    expect(answer).toMatchObject({
      succeeded: false,
      lines: [
        '10.0.0.1: in pod CIDR 10.0.0.0/24 of node far/n1',
        '10.0.0.1/32: no source claims it, and no prefix contains it',
        why,
      ],
    });
    const clusters = Array.from({ length: 511 }, (_, index) => ({ ...far, name: `c${index}` }));
    const { lines } = await answerOf(explainPrefix('10.0.0.1'), {
      '/v1/ipcache/explain/10.0.0.1': { prefix: '10.0.0.1/32', claims: [], roles },
      '/v1/status': { clusters },
    });
    expect(lines).toHaveLength(3);
    expect(lines[2]).toContain(
      '511 of 511 clusters are incomplete: c0, c1, c2 and 508 more; c0: unreachable',
    );
  });

  it('compares the entry of the kernel with the cache', async () => {
    const entries = [{ kernel: 'a', cache: 'a' }, { kernel: 'a' }, { cache: 'b' }, { failure: 'no map' }];
    const lines = await Promise.all(entries.map(async (kernel) => (await explain({ kernel })).at(-1)));
    expect(lines).toMatchInlineSnapshot(`
      [
        "kernel: a",
        "kernel: a; the cache has: no entry",
        "kernel: no entry; the cache has: b",
        "kernel: no map",
      ]
    `);
  });
});

describe('a what-if', () => {
  const SUMMARY = {
    type: 'summary',
    prefixes: { gone: 1, changed: 2, revealed: 3, created: 4 },
    nodes: { gone: 5, changed: 6, addresses: 7, podCIDRs: 1 },
    services: { fewer: 8, empty: 1, gone: 9, changed: 10, created: 11 },
    identities: { unknown: 1200 },
    loses: true,
  };
  const entry = (identity: number, more: object = {}): object => ({
    ...{ identity, source: 'k8s', encryptKey: 0, hostIP: '1.1.1.1' },
    ...more,
  });
  const ask = (lines: readonly object[]) =>
    askWhatIf(
      async (path, body) => {
        if (path === '/v1/status') return { clusters: [] };
        expect([path, body]).toEqual(['/v1/whatif', { edits: [{ edit: 'x' }] }]);
        return lines;
      },
      [{ edit: 'x' }],
    );

  it('has each count, changed prefixes first, nodes, and services, lost ones first', async () => {
    const changes = [
      { type: 'prefix', kind: 'gone', prefix: '10.0.0.1/32', old: entry(5) },
      {
        ...{ type: 'prefix', kind: 'gone', prefix: '10.0.0.2/32', old: entry(5) },
        coveredBy: { prefix: '10.0.0.0/8', ...entry(6) },
      },
      { type: 'prefix', kind: 'created', prefix: '10.0.0.3/32', new: entry(7, { owner: 'me' }) },
      { type: 'prefix', kind: 'revealed', prefix: '10.0.0.4/32', new: entry(8) },
      {
        ...{ type: 'prefix', kind: 'changed', prefix: '10.0.0.5/32', old: entry(5) },
        new: entry(6, { podName: 'cart', namespace: 'shop', hostIP: '2.2.2.2', encryptKey: 3 }),
      },
      { type: 'node', kind: 'gone', node: 'far/n1', oldSource: 'kvstore' },
      { type: 'node', kind: 'changed', node: 'far/n2', oldSource: 'kvstore', newSource: 'k8s' },
      { type: 'service', kind: 'fewer', service: 'c/d', before: 9, after: 3 },
      { type: 'service', kind: 'changed', service: 'c/e', before: 2, after: 2 },
      { type: 'service', kind: 'created', service: 'c/f', before: 0, after: 1 },
      { type: 'service', kind: 'empty', service: 'a/b', before: 2, after: 0 },
      { type: 'service', kind: 'gone', service: 'e/f', before: 1, after: 0 },
    ];
    const { lines, json, loses } = await ask([...changes, SUMMARY]);
    expect([json, loses]).toEqual([{ changes, summary: SUMMARY }, true]);
    expect(lines).toMatchInlineSnapshot(`
      [
        "prefixes   1 deleted, 2 with another effective claim, 3 become visible, 4 new",
        "  10.0.0.5/32  init k8s at 1.1.1.1 key 0 → remote-node k8s shop/cart at 2.2.2.2 key 3",
        "  10.0.0.4/32  none → ingress k8s",
        "  10.0.0.3/32  none → kube-apiserver k8s me",
        "  10.0.0.1/32  init k8s deleted; no other prefix covers it",
        "  10.0.0.2/32  init k8s deleted; then covered by 10.0.0.0/8 remote-node k8s",
        "  and 5 more",
        "nodes      5 deleted, 6 changed: 7 addresses, 1 pod CIDR (routes of --datapath linux)",
        "  far/n1  deleted",
        "  far/n2  kvstore → k8s",
        "  and 9 more",
        "services   9 lose backends, 1 without backends, 9 deleted, 10 changed, 11 new",
        "  a/b  2 → 0 backends",
        "  e/f  deleted",
        "  c/d  9 → 3 backends",
        "  c/e  changed",
        "  c/f  new, 1 backend",
        "  and 34 more",
        "identities 1,200 no longer known",
      ]
    `);
  });

  it('without changes has no lists', async () => {
    const zero = (names: readonly string[]): object => Object.fromEntries(names.map((name) => [name, 0]));
    const nothing = {
      ...SUMMARY,
      prefixes: zero(Object.keys(SUMMARY.prefixes)),
      nodes: zero(Object.keys(SUMMARY.nodes)),
      services: zero(Object.keys(SUMMARY.services)),
      identities: { unknown: 0 },
      loses: false,
    };
    const { lines, loses } = await ask([nothing]);
    expect(loses).toBe(false);
    expect(lines).toEqual(['prefixes   no changes', 'nodes      no changes', 'services   no changes']);
  });

  it('shows at most twenty prefixes, nodes and services', async () => {
    const prefixes = Array.from({ length: 25 }, (_, index) => ({
      ...{ type: 'prefix', kind: 'created', prefix: `10.0.0.${index}/32`, new: entry(5) },
    }));
    const services = Array.from({ length: 25 }, (_, index) => ({
      type: 'service',
      kind: 'gone',
      service: `a/${index}`,
    }));
    const nodes = Array.from({ length: 25 }, (_, index) => ({
      ...{ type: 'node', kind: 'gone', node: `far/n${index}`, oldSource: 'k8s' },
    }));
    const { lines } = await ask([...prefixes, ...nodes, ...services, SUMMARY]);
    expect(lines.filter((line) => line.startsWith('  far/n'))).toHaveLength(20);
    expect(lines.filter((line) => line.startsWith('  10.'))).toHaveLength(20);
    expect(lines.join('\n').match(/a\/\d+/g)).toHaveLength(20);
  });

  it('needs a summary', async () => {
    await expect(ask([])).rejects.toThrow('the answer has no summary');
  });
});

describe('the answer about a cluster that is unreachable', () => {
  const clusters = [
    { name: 'near', local: true, ready: true },
    {
      ...{ name: 'far', local: false, ready: false, connected: false, state: 'unreachable', missing: [] },
      ...{ knownAt: '2026-11-29T09:17:27.295Z', lastFailure: 'connection refused' },
    },
  ];
  const text =
    'cluster far is incomplete: unreachable, serving the state of 2026-11-29T09:17:27.295Z: connection refused';
  const entry = {
    prefix: '10.0.0.1/32',
    identity: 300,
    encryptKey: 0,
    source: 'clustermesh',
    owner: 'far/n1',
  };
  const found = {
    groups: [{ kind: 'pod', items: [{ kind: 'pod', key: 'a', title: 'a', detail: '' }], total: 1 }],
  };
  const node = {
    cluster: 'far',
    name: 'n1',
    source: 'clustermesh',
    addresses: [],
    encryptionKey: 0,
    labels: {},
  };
  const backends = [
    { address: '10.0.0.1', cluster: 'far', ports: {}, state: 'active', verdict: 'effective' },
  ];
  const service = { ...SERVICE, backends, explain: { backends } };
  const rows: readonly (readonly [string, Question, Readonly<Record<string, unknown>>])[] = [
    ['ipcache get', getPrefix('10.0.0.1'), { '/v1/ipcache/lookup/10.0.0.1': entry }],
    ['whois', askSearch('a', 5), { '/v1/search?q=a&limit=5': found }],
    ['whois without results', askSearch('a', 5), { '/v1/search?q=a&limit=5': { groups: [] } }],
    [
      'node get',
      getNode('far/n1'),
      { '/v1/nodes/far/n1': { ...node, explain: { claims: [node], heldBack: false, lostAddresses: [] } } },
    ],
    ['service get', getService('shop/cart'), { '/v1/services/shop/cart': service }],
    ['service explain', explainService('shop/cart'), { '/v1/services/shop/cart': service }],
  ];

  it.each(rows)(
    'has its state as text and in the JSON (regression: only explain had it): %s',
    async (_, question, documents) => {
      const { lines, json } = await answerOf(question, { ...documents, '/v1/status': { clusters } });
      expect([lines.at(-1), json]).toMatchObject([text, { incomplete: [text] }]);
      const ready = await answerOf(question, {
        ...documents,
        '/v1/status': { clusters: clusters.slice(0, 1) },
      });
      expect([ready.lines.includes(text), JSON.stringify(ready.json).includes('incomplete')]).toEqual([
        false,
        false,
      ]);
    },
  );

  it.each([getNode, getService, explainService])(
    'has it if there is no such object (regression: only those of IPs had it): %o',
    async (get) => {
      const ask = async (path: string): Promise<unknown> => {
        if (path === '/v1/status') return { clusters };
        throw new AgentError('no', problem('not-found', 'no'));
      };
      const { lines } = await get('far/n2')(ask, { wide: true });
      expect(lines).toEqual(['far/n2: not found', text]);
      expect((await get('far/n2', '-1h')(ask, { wide: true })).lines).toEqual(['far/n2: not found']);
    },
  );

  it.each([getService, explainService])(
    'has it if a global service has no backend of it (regression: missing backends had no explanation): %o',
    async (get) => {
      const answer = async (global: boolean): Promise<readonly string[]> => {
        const local = { ...service, global, backends: [], explain: { backends: [] } };
        const documents = { '/v1/services/shop/cart': local, '/v1/status': { clusters } };
        return (await answerOf(get('shop/cart'), documents)).lines;
      };
      expect([(await answer(true)).at(-1), (await answer(false)).includes(text)]).toEqual([text, false]);
    },
  );

  it('has it if it is the effect of a change', async () => {
    const counts = {
      gone: 0,
      changed: 0,
      revealed: 0,
      created: 0,
      fewer: 0,
      empty: 0,
      addresses: 0,
      podCIDRs: 0,
    };
    const summary = {
      type: 'summary',
      prefixes: counts,
      nodes: counts,
      services: counts,
      identities: { unknown: 0 },
    };
    const ask = async (path: string): Promise<unknown> => (path === '/v1/whatif' ? [summary] : { clusters });
    const { lines, json } = await askWhatIf(ask, []);
    expect([lines.at(-1), json]).toMatchObject([text, { changes: [], incomplete: [text] }]);
  });

  it('has no state if the entry is of another cluster, or of no cluster', async () => {
    for (const other of [
      { owner: 'near' },
      { owner: undefined },
      { source: 'k8s' },
      { source: 'generated' },
    ]) {
      const documents = { '/v1/ipcache/lookup/10.0.0.1': { ...entry, ...other }, '/v1/status': { clusters } };
      expect((await answerOf(getPrefix('10.0.0.1'), documents)).lines).not.toContain(text);
    }
    const [near, far] = clusters;
    const documents = { '/v1/ipcache/lookup/10.0.0.1': { ...entry, source: 'kvstore', owner: undefined } };
    const local = { ...far, name: 'near', local: true };
    const { lines } = await answerOf(getPrefix('10.0.0.1'), {
      ...documents,
      '/v1/status': { clusters: [local, near] },
    });
    expect(lines.at(-1)).toBe(text.replace('far', 'near'));
  });
});
