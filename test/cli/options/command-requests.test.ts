import { describe, expect, it, vi } from 'vitest';
import * as runAgent from '../../../src/agent/run-agent.ts';
import { AgentError, type ApiClient } from '../../../src/api/api-client.ts';
import { runCommand } from '../../../src/cli/program.ts';
import * as askAgent from '../../../src/client/ask-agent.ts';
import * as monitorModule from '../../../src/client/monitor.ts';
import * as cleanHost from '../../../src/datapath/linux/clean-host.ts';
import * as probe from '../../../src/datapath/linux/probe.ts';
import * as serveFiles from '../../../src/process/serve-files.ts';
import * as troubleshooting from '../../../src/process/troubleshoot/troubleshoot.ts';
import * as recording from '../../../src/recording/record-mesh.ts';
import { ArchiveError } from '../../../src/sysdump/archive/archive.ts';
import * as examine from '../../../src/sysdump/examine.ts';
import { type CommandResult, nothing } from '../support/run.ts';

/** A command in this process, and its requests to the agent. */
interface Asked extends CommandResult {
  /** The socket, and each request. */
  readonly asked: readonly string[];
}

/** Answers of a fake process without problems, by path; another path without an answer is not found. */
type Answers = Readonly<Record<string, unknown>>;

const NOT_FOUND = { type: '', title: '', status: 404, detail: 'not found' };

/** Runs a command that asks a fake agent. */
async function run(
  words: string | readonly string[],
  answers: Answers = {},
  more: { readonly signal?: AbortSignal; readonly stdin?: AsyncIterable<string> } = {},
): Promise<Asked> {
  const asked: string[] = [];
  const client = {
    ask: async (path: string, body?: unknown) => {
      asked.push(body === undefined ? path : `${path} ${JSON.stringify(body)}`);
      if (Object.hasOwn(answers, path)) return answers[path];
      const [base = ''] = path.split('?');
      if (Object.hasOwn(answers, base)) return answers[base];
      if (path === '/v1/problems') return { ready: true, items: [] };
      throw new AgentError('not found', NOT_FOUND as never);
    },
  } as ApiClient;
  vi.spyOn(askAgent, 'askAgent').mockImplementation((socket, use, _signal, advice) => {
    asked.push(socket);
    return askAgent.withInputErrors(
      () => {
        const { unserved: code } = answers;
        if (code !== undefined)
          throw new AgentError('no answer', undefined, Object.assign(new Error('no answer'), { code }));
        return use(client);
      },
      ({ problem }) => (problem === undefined ? advice : undefined),
    );
  });
  const written = { stdout: '', stderr: '' };
  const output = (name: keyof typeof written): { write: (text: string) => void } => ({
    write: (text) => {
      written[name] += text;
    },
  });
  const status = await runCommand(typeof words === 'string' ? words.split(' ') : words, {
    stdout: output('stdout'),
    stderr: output('stderr'),
    stdin: more.stdin ?? nothing(),
    env: { XDG_RUNTIME_DIR: '/run/user' },
    signal: more.signal ?? new AbortController().signal,
  });
  return { status, ...written, asked };
}

const SOCKET = '/run/user/dpcache.sock';
const EMPTY = { items: [] };

describe('a question', () => {
  it.each([
    ['ipcache list', '/v1/ipcache?limit=1000'],
    ['ipcache list --limit 7', '/v1/ipcache?limit=7'],
    ['ipcache list -q', '/v1/ipcache?limit=1'],
    ['ipcache list --identity 5', '/v1/ipcache?identity=5&limit=1000'],
    ['ipcache list --within 10.0.0.0/8', '/v1/ipcache?within=10.0.0.0%2F8&limit=1000'],
    ['ipcache list --source k8s', '/v1/ipcache?source=k8s&limit=1000'],
    ['ipcache list --of-cluster far', '/v1/ipcache?cluster=far&limit=1000'],
    ['ipcache list --label a=b', '/v1/ipcache?label=a%3Db&limit=1000'],
    ['ipcache list --pod a/b', '/v1/ipcache?pod=a%2Fb&limit=1000'],
    ['ipcache list --node 10.0.0.1', '/v1/ipcache?node=10.0.0.1&limit=1000'],
    ['ipcache list --at #5', '/v1/ipcache?at=%235&limit=1000'],
    ['ipcache list --count --source k8s', '/v1/ipcache/count?source=k8s'],
    ['ipcache get 10.0.0.1', '/v1/ipcache/lookup/10.0.0.1'],
    ['ipcache get 10.0.0.0/8', '/v1/ipcache?prefix=10.0.0.0%2F8'],
    ['ipcache get 10.0.0.1 --at #5', '/v1/ipcache/explain/10.0.0.1?at=%235'],
    ['ipcache explain 10.0.0.1', '/v1/ipcache/explain/10.0.0.1'],
    ['ipcache explain 10.0.0.1 --at #5', '/v1/ipcache/explain/10.0.0.1?at=%235'],
    ['ipcache lookup 10.0.0.1', '/v1/lookup {"ips":["10.0.0.1"]}'],
    [
      'ipcache lookup 10.0.0.2 10.0.0.300 10.0.0.1',
      '/v1/lookup {"ips":["10.0.0.2","10.0.0.300","10.0.0.1"]}',
    ],
    ['ipcache lookup 10.0.0.1 --at #5', '/v1/lookup {"ips":[{"address":"10.0.0.1","at":"#5"}]}'],
    ['history', '/v1/history?limit=50'],
    ['history 10.0.0.1 --limit 7', '/v1/history?key=10.0.0.1&limit=7'],
    ['history a/b --from #1 --to #2', '/v1/history?key=a%2Fb&from=%231&to=%232&limit=50'],
    ['history --around #5', '/v1/history/around?at=%235&window=5&limit=50'],
    ['history --around #5 --window 7s --limit 3', '/v1/history/around?at=%235&window=7&limit=3'],
    ['whois web', '/v1/search?q=web&limit=8'],
    ['whois web --limit 3', '/v1/search?q=web&limit=3'],
    ['service list', '/v1/services?limit=1000'],
    ['service list --namespace a', '/v1/services?namespace=a&limit=1000'],
    ['service list --of-cluster far', '/v1/services?cluster=far&limit=1000'],
    ['service list --count', '/v1/services/count'],
    ['service get a/b', '/v1/services/a/b'],
    ['service get a/b --at #5', '/v1/services/a/b?at=%235'],
    ['service explain a/b', '/v1/services/a/b'],
    ['service explain a/b --at #5', '/v1/services/a/b?at=%235'],
    ['node list', '/v1/nodes?limit=1000'],
    ['node list --of-cluster far', '/v1/nodes?cluster=far&limit=1000'],
    ['node list --count --of-cluster far', '/v1/nodes/count?cluster=far'],
    ['node get a/b', '/v1/nodes/a/b'],
    ['node get a/b --at #5', '/v1/nodes/a/b?at=%235'],
    ['identity list', '/v1/identities?limit=1000'],
    ['identity list --of-cluster far', '/v1/identities?cluster=far&limit=1000'],
    ['identity list --label a=b', '/v1/identities?label=a%3Db&limit=1000'],
    ['identity get 5', '/v1/identities/5'],
    ['clustermesh status', '/v1/clustermesh'],
    ['clustermesh conflicts', '/v1/conflicts'],
    ['status', '/v1/status'],
    ['status --ready', '/readyz'],
    ['config show', '/v1/settings'],
    ['datapath status', '/v1/status'],
    ['datapath diff', '/v1/datapath/diff'],
    ['datapath repair', '/v1/datapath/repair {}'],
  ])('%s asks for %s, at the default socket or another one', async (words, request) => {
    const { asked } = await run(words);
    expect(asked.slice(0, 2)).toEqual([SOCKET, request]);
    const other = await run(`${words} --socket /other`);
    expect(other.asked.slice(0, 2)).toEqual(['/other', request]);
  });

  it.each([
    ['operator status', '/run/user/operator.sock'],
    ['operator status --socket /other', '/other'],
    ['operator --socket /other status', '/other'],
    ['kvstoremesh status', '/run/user/kvstoremesh.sock'],
    ['kvstoremesh status --socket /other', '/other'],
  ])('%s asks at %s', async (words, socket) => {
    expect((await run(words)).asked).toEqual([socket, '/v1/status']);
  });

  it.each([
    ['remove-cluster far', { edit: 'remove-cluster', cluster: 'far' }],
    ['remove-node far/n', { edit: 'remove-node', node: 'far/n' }],
    ['drain-node far/n', { edit: 'drain-node', node: 'far/n' }],
    ['remove-source k8s', { edit: 'remove-source', source: 'k8s' }],
    ['remove-source k8s me', { edit: 'remove-source', source: 'k8s', owner: 'me' }],
    ['rank k8s above kvstore', { edit: 'rank', source: 'k8s', place: 'above', other: 'kvstore' }],
    ['rank kvstore below k8s', { edit: 'rank', source: 'kvstore', place: 'below', other: 'k8s' }],
    ['setting underlay=ipv6', { edit: 'setting', name: 'underlay', value: 'ipv6' }],
    [
      'upsert 10.0.0.1 --source k8s --identity 5 --owner me --host-ip 1.1.1.1 --encrypt-key 3 --pod a/b',
      {
        ...{ edit: 'upsert', key: '10.0.0.1', identity: 5, source: 'k8s', owner: 'me', hostIP: '1.1.1.1' },
        ...{ encryptKey: 3, namespace: 'a', podName: 'b' },
      },
    ],
    [
      'delete 10.0.0.1 --source k8s --owner me',
      { edit: 'delete', key: '10.0.0.1', source: 'k8s', owner: 'me' },
    ],
  ])('whatif %s sends its edit', async (words, edit) => {
    const { asked } = await run(`whatif ${words}`);
    expect(asked).toEqual([SOCKET, `/v1/whatif ${JSON.stringify({ edits: [edit] })}`]);
  });
});

const STATUS = { blockers: [], steps: [], duties: [], problems: [], configProblems: [], clusters: [] };
const SETTINGS = { a: { value: 1, from: 'flag' } };
const OPERATOR = { ...STATUS, cluster: 'own', rejected: { total: 0, recent: [] } };

describe('the exit status', () => {
  it.each<[number, string, Answers]>([
    [0, 'ipcache list', { '/v1/ipcache': EMPTY }],
    [1, 'ipcache get 10.0.0.1', {}],
    [1, 'ipcache get 10.0.0.1 -o json', {}],
    [
      0,
      'ipcache get 10.0.0.0/8',
      { '/v1/ipcache': { items: [{ prefix: '10.0.0.0/8', identity: 5, source: 'k8s' }] } },
    ],
    [1, 'ipcache get 10.0.0.0/8', { '/v1/ipcache': EMPTY }],
    [0, 'ipcache lookup 10.0.0.1', { '/v1/lookup': { entries: [{}], errors: [] } }],
    [1, 'ipcache lookup 10.0.0.1', { '/v1/lookup': { entries: [null], errors: [] } }],
    [1, 'history', { '/v1/history': { ...EMPTY, more: false, changes: 0 } }],
    [1, 'whois web', { '/v1/search': { groups: [] } }],
    [0, 'clustermesh conflicts', { '/v1/conflicts': { counts: {}, items: [] } }],
    [
      1,
      'clustermesh conflicts -q',
      { '/v1/conflicts': { counts: {}, items: [{ sides: [], subject: '', kind: '' }] } },
    ],
    [0, 'status --ready', { '/readyz': { ready: true, blockers: [] } }],
    [1, 'status --ready', { '/readyz': { ready: false, blockers: ['a'] } }],
    [0, 'operator status', { '/v1/status': OPERATOR }],
    [1, 'operator status', { '/v1/status': { ...OPERATOR, blockers: ['a'] } }],
    [1, 'operator status -q', { '/v1/status': { ...OPERATOR, blockers: ['a'] } }],
    [0, 'operator status --live', { '/v1/status': { ...OPERATOR, blockers: ['a'] } }],
    [1, 'operator status --live', { '/v1/status': { other: 'process' } }],
    [0, 'kvstoremesh status', { '/v1/status': STATUS }],
    [1, 'kvstoremesh status', { '/v1/status': { ...STATUS, blockers: ['a'] } }],
    [0, 'datapath diff', { '/v1/datapath/diff': { total: 0, steps: [] } }],
    [
      1,
      'datapath diff',
      { '/v1/datapath/diff': { total: 1, steps: [{ table: 'a', key: 'b', cache: 'c' }] } },
    ],
    [
      0,
      'datapath repair',
      { '/v1/datapath/repair': { total: 1, steps: [{ table: 'a', key: 'b', cache: 'c' }] } },
    ],
    [1, 'datapath status', { '/v1/status': {} }],
    [0, 'config show', { '/v1/settings': { settings: {} } }],
  ])('is %i for %s with %j', async (status, words, answers) => {
    expect((await run(words, answers)).status).toBe(status);
  });

  it.each<[string, Answers, unknown]>([
    ['operator status -o json', { '/v1/status': OPERATOR }, OPERATOR],
    ['kvstoremesh status -o json', { '/v1/status': STATUS }, STATUS],
    ['datapath diff -o json', { '/v1/datapath/diff': { total: 0, steps: [] } }, { total: 0, steps: [] }],
    ['datapath repair -o json', { '/v1/datapath/repair': { total: 0, steps: [] } }, { total: 0, steps: [] }],
    ['config show -o json', { '/v1/settings': { settings: SETTINGS } }, { settings: SETTINGS }],
    [
      'status --ready -o json',
      { '/readyz': { ready: false, blockers: ['a'] } },
      { ready: false, blockers: ['a'] },
    ],
    ['ipcache get 10.0.0.1 -o json', { '/v1/status': { clusters: [] } }, null],
    [
      'clustermesh conflicts -o json',
      { '/v1/conflicts': { counts: {}, items: [] } },
      { counts: {}, items: [] },
    ],
  ])('%s prints the document', async (words, answers, document) => {
    const { stdout, stderr } = await run(words, answers);
    expect([JSON.parse(stdout), stderr]).toEqual([document, '']);
  });

  it.each(['ipcache get 10.0.0.1 -q', 'operator status -q', 'kvstoremesh status -q', 'ipcache list -q'])(
    '%s prints nothing on stdout',
    async (words) => {
      const answers = {
        '/v1/status': { ...OPERATOR },
        '/v1/ipcache': { items: [{ prefix: '10.0.0.0/8', source: 'k8s' }] },
        '/v1/ipcache/lookup/10.0.0.1': { prefix: '10.0.0.0/8', identity: 5, source: 'k8s' },
      };
      expect(await run(words, answers)).toMatchObject({ status: 0, stdout: '', stderr: '' });
    },
  );

  it('ipcache lookup of 1,001 addresses sends a request of 1,000 and one of 1, and prints the answers in order', async () => {
    const ips = Array.from({ length: 1001 }, (_, i) => `10.0.${i >> 8}.${i & 255}`);
    const entries = ips.map((prefix) => ({ prefix }));
    const { asked, stdout, status } = await run(`ipcache lookup ${ips.join(' ')}`, {
      '/v1/lookup': { entries, errors: [] },
    });
    expect(asked.slice(1).map((one) => one.split(',').length)).toEqual([1000, 1]);
    expect(stdout.split('\n').slice(0, 1000)).toEqual(
      entries.slice(0, 1000).map((entry) => JSON.stringify({ ip: entry.prefix, entry })),
    );
    expect(status).toBe(0);
  });

  it('ipcache lookup prints an error at its address, and fails', async () => {
    const answer = {
      entries: [{ prefix: 'a' }, null, null],
      errors: [{ index: 1, detail: 'no IP address' }],
    };
    expect(await run('ipcache lookup 10.0.0.2 10.0.0.300 10.0.0.1', { '/v1/lookup': answer })).toMatchObject({
      status: 1,
      stdout: [
        '{"ip":"10.0.0.2","entry":{"prefix":"a"}}',
        '{"ip":"10.0.0.300","entry":null,"error":"no IP address"}',
        '{"ip":"10.0.0.1","entry":null}',
        '',
      ].join('\n'),
    });
  });

  it('ipcache lookup - reads the addresses from standard input', async () => {
    async function* stdin(): AsyncGenerator<string> {
      yield '10.0.0.1\n10.0';
      yield '.0.2\n';
    }
    const { asked } = await run(
      'ipcache lookup -',
      { '/v1/lookup': { entries: [{}], errors: [] } },
      { stdin: stdin() },
    );
    expect(asked.slice(1)).toEqual(['/v1/lookup {"ips":["10.0.0.1"]}', '/v1/lookup {"ips":["10.0.0.2"]}']);
  });
});

describe('dpcache monitor', () => {
  it('passes its types, its revision and its format on, and fails if the agent stops', async () => {
    const monitor = vi.spyOn(monitorModule, 'monitor').mockResolvedValue();
    expect(await run('monitor --type ip,node --from 5 -o json')).toMatchObject({
      status: 1,
      stderr: 'dpcache: the agent has stopped\n',
    });
    expect(monitor.mock.calls[0]?.[1]).toEqual({ types: 'ip,node', from: '5', format: 'json' });
    await run('monitor');
    expect(monitor.mock.calls[1]?.[1]).toEqual({ format: 'text' });
  });

  it('succeeds if it is interrupted', async () => {
    vi.spyOn(monitorModule, 'monitor').mockResolvedValue();
    const interrupted = await run('monitor', {}, { signal: AbortSignal.abort() });
    expect(interrupted).toMatchObject({ status: 0, stderr: '' });
  });
});

describe('dpcache datapath', () => {
  it('status without an agent tells what could run with these pins and this cgroup', async () => {
    const pieces = [{ piece: 'maps', missing: ['no BTF'] }];
    const answer = { kernel: '6.1', pinFolder: '/p', cgroup: '/c', pieces };
    const probed = vi.spyOn(probe, 'probeHost').mockReturnValue(answer as never);
    const given = await run('datapath status --datapath-pins /p --datapath-cgroup /c -o json', {
      unserved: 'ENOENT',
    });
    expect(probed.mock.calls[0]?.[1]).toEqual({ pinFolder: '/p', cgroup: '/c' });
    expect([given.status, JSON.parse(given.stdout)]).toEqual([1, answer]);
    const text = await run('datapath status', { unserved: 'ENOENT' });
    expect(probed.mock.calls[1]?.[1]).toEqual({ pinFolder: '/sys/fs/bpf/dpcache' });
    expect(text.stdout).toContain(`No agent is running at ${SOCKET}. Pieces`);
    probed.mockReturnValue({ ...answer, pieces: [] } as never);
    expect((await run('datapath status', { unserved: 'ENOENT' })).status).toBe(0);
  });

  it('status of an agent that refuses the request is an error, without a probe', async () => {
    const probed = vi.spyOn(probe, 'probeHost');
    expect(await run('datapath status')).toMatchObject({ status: 1, stdout: '' });
    expect(probed).not.toHaveBeenCalled();
  });

  const OWNER = { '/v1/status': { datapath: { pinFolder: '/p', dryRun: false } }, '/healthz': { pid: 7 } };

  it('clean removes nothing that an agent uses', async () => {
    const clean = vi.spyOn(cleanHost, 'cleanHost').mockReturnValue({ removed: [], remaining: [] } as never);
    expect(await run('datapath clean --datapath-pins /p', OWNER)).toMatchObject({
      status: 1,
      stderr: expect.stringContaining('the agent with pid 7 uses this datapath'),
    });
    expect(await run('datapath clean --datapath-pins /p')).toMatchObject({ status: 1 });
    expect(clean).not.toHaveBeenCalled();
    expect((await run('datapath clean --datapath-pins /q', OWNER)).status).toBe(0);
    expect(clean.mock.calls).toEqual([['/q']]);
  });

  it.each(['ABORT_ERR', 'ECONNRESET', 'EACCES', ''])(
    'clean and status do not conclude from %j that no agent runs (regression: an interrupted clean removed everything)',
    async (code) => {
      const clean = vi.spyOn(cleanHost, 'cleanHost').mockReturnValue({ removed: [], remaining: [] } as never);
      const probed = vi.spyOn(probe, 'probeHost').mockReturnValue({ pieces: [] } as never);
      for (const name of ['clean', 'status'])
        expect(await run(`datapath ${name}`, { unserved: code })).toMatchObject({ status: 1, stdout: '' });
      expect([clean.mock.calls, probed.mock.calls]).toEqual([[], []]);
    },
  );

  it('clean without an agent removes all, and names what is left', async () => {
    const outcome = { removed: ['a'], remaining: ['b: busy'] };
    const clean = vi.spyOn(cleanHost, 'cleanHost').mockReturnValue(outcome as never);
    expect(await run('datapath clean', { unserved: 'ENOENT' })).toMatchObject({
      status: 1,
      stdout: 'a\n',
      stderr: 'dpcache: not removed: b: busy\n',
    });
    expect(clean.mock.calls).toEqual([['/sys/fs/bpf/dpcache']]);
    clean.mockReturnValue({ ...outcome, remaining: [] } as never);
    const json = await run('datapath clean -o json', { unserved: 'ECONNREFUSED' });
    expect([json.status, JSON.parse(json.stdout)]).toEqual([0, { removed: ['a'], left: [] }]);
  });
});

describe('dpcache record', () => {
  it('records the kvstores of its options, and fails if one is incomplete', async () => {
    const record = vi.spyOn(recording, 'recordMesh').mockResolvedValue(true);
    const words = 'record --cluster own --kvstore-config /k --clustermesh-config /m';
    expect((await run(words)).status).toBe(0);
    const options = { clusterName: 'own', kvstoreConfig: '/k', clustermeshConfig: '/m' };
    expect(record.mock.calls[0]?.[0]).toEqual(options);
    record.mockImplementation(async (_, { write }) => {
      await write('a line\n');
      return false;
    });
    expect(await run(words)).toMatchObject({ status: 1, stdout: 'a line\n' });
  });

  it.each([
    [
      '--kvstore-config /k --clustermesh-config /m',
      { kvstore: 'etcd', kvstoreConfig: '/k', clustermeshConfig: '/m' },
    ],
    ['--clustermesh-config /m', { kvstore: 'memory', clustermeshConfig: '/m' }],
  ])('%s --follow runs an agent that writes a tape', async (words, options) => {
    const follow = vi.spyOn(runAgent, 'followMesh').mockResolvedValue();
    expect((await run(`record ${words} --cluster own --follow --out /o`)).status).toBe(0);
    const [given, how] = follow.mock.calls[0] ?? [];
    expect(given).toMatchObject({ ...options, clusterName: 'own', tape: { path: '/o', maxBytes: 2 ** 28 } });
    expect(given).not.toHaveProperty('historyMemory');
    expect(how).toEqual({ quiet: true });
  });
});

describe('dpcache clustermesh troubleshoot', () => {
  const cluster = { cluster: 'far', path: '/m/far', local: false, passed: true, checks: [] };

  it('checks what its options name, and fails if a check fails', async () => {
    const check = vi.spyOn(troubleshooting, 'troubleshoot').mockResolvedValue([cluster]);
    const words = 'clustermesh troubleshoot far --cluster own --kvstore-config /k --clustermesh-config /m';
    expect(await run(words)).toMatchObject({ status: 0, stdout: 'cluster far\n' });
    expect(check.mock.calls[0]?.[0]).toEqual({
      clusterName: 'own',
      clusterID: undefined,
      kvstoreConfig: '/k',
      clustermeshConfig: '/m',
      only: 'far',
    });
    check.mockResolvedValue([cluster, { ...cluster, passed: false }]);
    const json = await run(`${words} --kvstore etcd -o json`); // regression: --kvstore was unknown
    expect(json.status).toBe(1);
    expect(JSON.parse(json.stdout)).toEqual({ clusters: [cluster, { ...cluster, passed: false }] });
  });

  it('without options asks the running agent for its configurations (regression: required --config)', async () => {
    const check = vi.spyOn(troubleshooting, 'troubleshoot').mockResolvedValue([cluster]);
    const settingsOf = (values: Readonly<Record<string, unknown>>): Answers => ({
      '/v1/settings': {
        settings: Object.fromEntries(
          Object.entries(values).map(([key, value]) => [key, { value, from: 'file' }]),
        ),
      },
    });
    const mesh = { cluster: 'own', 'cluster-id': 7, 'kvstore-config': null, 'clustermesh-config': '/m' };
    expect(await run('clustermesh troubleshoot far', settingsOf(mesh))).toMatchObject({
      status: 0,
      stdout: 'cluster far\n',
      asked: [SOCKET, '/v1/settings'],
    });
    expect(check.mock.calls[0]?.[0]).toEqual({
      clusterName: 'own',
      clusterID: 7,
      kvstoreConfig: undefined,
      clustermeshConfig: '/m',
      only: 'far',
    });
    const none = await run('clustermesh troubleshoot --socket /s', settingsOf({ cluster: 'own' }));
    expect(none).toMatchObject({ status: 1, stderr: 'dpcache: the process at /s uses no etcd\n' });
    expect(check).toHaveBeenCalledTimes(1);
  });
});

describe('dpcache sysdump', () => {
  it('reports an archive that cannot be read with its remedy, also if it breaks before it is served', async () => {
    const broken = new ArchiveError('truncated', '/dump.zip', 'ends early: copy the archive again');
    const failed = { status: 1, stderr: 'dpcache: /dump.zip: ends early: copy the archive again\n' };
    const examined = vi.spyOn(examine, 'examineSysdump').mockRejectedValueOnce(broken);
    expect(await run('sysdump /dump.zip -o json')).toMatchObject(failed);
    const cluster = { name: 'own', id: 7 };
    examined.mockResolvedValueOnce({ findings: [], cluster, endpoints: 'ciliumendpoints' } as never);
    vi.spyOn(serveFiles, 'readServeOptions').mockResolvedValue({ socket: 'served' });
    vi.spyOn(runAgent, 'followMesh').mockRejectedValueOnce(broken);
    expect(await run('sysdump /dump.zip -o json --serve 81')).toMatchObject(failed);
  });
});

describe('--serve of a diagnosis', () => {
  it('of a sysdump runs an agent with its objects, and its page at the address', async () => {
    const report = { findings: [], cluster: { name: 'own', id: 7 }, endpoints: 'ciliumendpointslices' };
    vi.spyOn(examine, 'examineSysdump').mockResolvedValue(report as never);
    const objects = vi.spyOn(examine, 'sysdumpObjects').mockReturnValue(nothing() as never);
    const serve = vi.spyOn(serveFiles, 'readServeOptions').mockResolvedValue({ socket: 'served' });
    const follow = vi.spyOn(runAgent, 'followMesh').mockResolvedValue();
    const { status } = await run('sysdump /dump.zip -o json --serve 127.0.0.2:81');
    expect(status).toBe(0);
    const [options, how] = follow.mock.calls[0] ?? [];
    expect(options).toMatchObject({
      clusterName: 'own',
      clusterID: 7,
      kubernetes: { ifInCluster: false, endpoints: 'ciliumendpointslices', identities: 'crd' },
    });
    expect(options?.kubernetes?.watch).toEqual(['services', 'endpoints', 'nodes', 'identities']);
    options?.kubernetes?.objects?.();
    expect(objects.mock.calls).toEqual([['/dump.zip']]);
    expect(how).toEqual({ serve: { socket: 'served' } });
    expect(serve.mock.calls[0]?.[0]).toMatchObject({
      socketIsDefault: false,
      listen: { host: '127.0.0.2', port: 81 },
      ui: true,
    });
    follow.mockClear();
    await run('sysdump /dump.zip -o json');
    expect(follow).not.toHaveBeenCalled();
  });

  it.each(['sysdump', 'replay'])(
    'of a %s beyond loopback is refused before the input is read (regression: afterwards, with --listen-token)',
    async (command) => {
      for (const address of ['0.0.0.0:80', '[::]:80', '127.evil.example:80']) {
        const { status, stderr } = await run(`${command} /missing --serve ${address}`);
        expect({ address, status }).toEqual({ address, status: 2 });
        expect(stderr).toContain(`argument '${address}' is invalid. It must be an address of this machine`);
        expect(stderr).toContain('forward the port');
      }
      for (const address of ['80', 'localhost:80', '[::1]:80', '127.0.0.2:80'])
        expect((await run(`${command} /missing --serve ${address}`)).stderr).toContain('/missing');
    },
  );

  const TAPE = new URL('../../tapes/late-delete-of-a-reused-ip.jsonl.gz', import.meta.url).pathname;

  it('of a replay runs an agent with the settings and the state of the tape', async () => {
    vi.spyOn(serveFiles, 'readServeOptions').mockResolvedValue({ socket: 'served' });
    const follow = vi.spyOn(runAgent, 'followMesh').mockResolvedValue();
    expect((await run(`replay ${TAPE} --ignore-version -q --serve 81`)).status).toBe(0);
    const [options, how] = follow.mock.calls[0] ?? [];
    expect(options).toMatchObject({ kvstore: 'memory', clusterName: 'default', load: [], manifests: [] });
    expect(how).toEqual({ serve: { socket: 'served' } });
    const keys: unknown[] = [];
    for await (const key of options?.keys?.() ?? []) keys.push(key);
    const objects: unknown[] = [];
    for await (const object of options?.kubernetes?.objects?.() ?? []) objects.push(object);
    expect(keys.length + objects.length).toBeGreaterThan(0);
  });
});

it('an error of a request names the advice of its process', async () => {
  expect((await run('config show', { unserved: 'ENOENT' })).stderr).toContain('start one with dpcache agent');
  expect((await run('monitor', { unserved: 'ENOENT' })).stderr).toContain('start one with dpcache agent');
  expect((await run('operator status', { unserved: 'ENOENT' })).stderr).toContain(
    'start one with dpcache operator',
  );
  expect((await run('kvstoremesh status', { unserved: 'ENOENT' })).stderr).toContain(
    'start one with dpcache kvstoremesh',
  );
});
