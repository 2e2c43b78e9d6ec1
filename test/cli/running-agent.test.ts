import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { ApiClient } from '../../src/api/api-client.ts';
import type { StatusDocument } from '../../src/api/status-document.ts';
import { OUTPUT_CLOSED } from '../../src/cli/io.ts';
import { runCommand } from '../../src/cli/program.ts';
import { temporaryFolder } from '../agent/support/temporary-folder.ts';
import { runFolder } from '../base/support/run-folder.ts';
import { ATLANTIC, dpcache, dpcacheReading, example, nothing } from './support/run.ts';
import { QUESTIONS, type RunningAgent, startAgent } from './support/running-agent.ts';

const folder = runFolder('dpcache-');
const SOCKET = ['--socket', join(folder, 'dpcache.sock')];
const stop = new AbortController();
let agent: RunningAgent;

beforeAll(async () => {
  const words = [...ATLANTIC, '--manifests', example('services.yaml'), ...SOCKET, '--listen', '0'];
  agent = await startAgent(words, stop.signal);
});

afterAll(async () => {
  stop.abort();
  expect(await agent.ended).toBe(0);
});

it('an agent that ends before it shows changes fails its start with its output (regression: the tests waited for ever)', async () => {
  await expect(startAgent(['--nothing'], stop.signal)).rejects.toThrow(/status 2 .*--nothing/s);
});

describe('a running agent', () => {
  it.each(QUESTIONS.map((words) => [words.join(' '), words] as const))('answers %s', async (_, words) => {
    const own = await dpcache(...words, ...ATLANTIC, '--manifests', example('services.yaml'));
    expect(await dpcache(...words, ...SOCKET)).toEqual(own);
    expect(own.stdout + own.stderr).not.toBe('');
  });

  it('answers status and clustermesh status', async () => {
    const { status, stdout } = await dpcache('status', ...SOCKET);
    expect(status).toBe(0);
    expect(stdout).toContain('339 prefixes, 12 nodes, 5 services with 156 backends');
    expect((await dpcache('clustermesh', 'status', ...SOCKET)).stdout).toContain(
      'baltic: connected, complete',
    );
  });

  it('ends a monitor that is interrupted with status 0', async () => {
    const interrupt = new AbortController();
    const written: string[] = [];
    const output = { write: (text: string) => void written.push(text) };
    const status = runCommand(['monitor', ...SOCKET], {
      stdout: output,
      stderr: output,
      stdin: nothing(),
      env: {},
      signal: interrupt.signal,
    });
    await expect.poll(() => written).toEqual([expect.stringContaining('Changes after revision')]);
    interrupt.abort();
    expect([await status, written.length]).toEqual([0, 1]);
  });

  it('looks up the lines of its standard input, in order, wherever they are cut', async () => {
    async function* input(): AsyncGenerator<string> {
      yield `10.10.0.12\n${' '.repeat(200)}`;
      yield '9.9.9';
      yield '.9\nnonsense\r\n\n172.20.7.7';
    }
    const { status, stdout } = await dpcacheReading(input(), 'ipcache', 'lookup', '-', ...SOCKET);
    expect(status).toBe(1); // some objects are unknown
    const found = stdout
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line));
    expect(found).toMatchObject([
      { ip: '10.10.0.12', entry: { podName: 'checkout-00000' } },
      { ip: '9.9.9.9', entry: null },
      { ip: 'nonsense', entry: null, error: 'not a valid IP address' },
      { ip: '172.20.7.7', entry: { prefix: '172.20.0.0/16' } },
    ]);
  });

  it('looks up many thousands of lines, and IPs from the command line', async () => {
    const ips = Array.from({ length: 5_000 }, (_, i) => `10.10.${i >> 8}.${i & 255}`);
    async function* input(): AsyncGenerator<string> {
      yield ips.join('\n');
    }
    const { stdout } = await dpcacheReading(input(), 'ipcache', 'lookup', '-', ...SOCKET);
    expect(
      stdout
        .trimEnd()
        .split('\n')
        .map((line) => JSON.parse(line).ip),
    ).toEqual(ips);
    const named = await dpcache('ipcache', 'lookup', '10.10.0.12', '10.10.0.13', ...SOCKET);
    expect(named.status).toBe(0);
    expect(named.stdout.trimEnd().split('\n')).toHaveLength(2);
  });

  it('rejects options that only a new agent would use', async () => {
    const wrong = await dpcache('ipcache', 'list', '--cluster', 'nowhere', ...SOCKET);
    expect({ ...wrong, stderr: wrong.stderr.split('\n')[0] }).toEqual({
      status: 2,
      stdout: '',
      stderr:
        'dpcache: --cluster has no effect, because a running agent is asked: remove it, or add a source such as --load; --of-cluster selects one cluster',
    });
    expect(await dpcache('node', 'get', 'a/b', '--node-name', 'x', ...SOCKET)).toMatchObject({ status: 2 });
    expect(await dpcache('status', '--log-level', 'error', ...SOCKET)).toMatchObject({ status: 0 });
  });

  it('rejects an unknown source', async () => {
    const { status, stderr } = await dpcache('ipcache', 'list', '--source', 'bogus', ...SOCKET);
    expect([status, stderr]).toEqual([
      2,
      expect.stringContaining('Allowed choices are kube-apiserver, local'),
    ]);
  });

  it('counts lists, and prints a part of them', async () => {
    const count = async (...words: readonly string[]): Promise<string> =>
      (await dpcache(...words, '--count', ...SOCKET)).stdout;
    expect(await count('ipcache', 'list')).toBe('339\n');
    expect(await count('ipcache', 'list', '--of-cluster', 'nowhere')).toBe('0\n');
    expect(await count('node', 'list')).toBe('12\n');
    const some = await dpcache('ipcache', 'list', '--limit', '3', '-o', 'name', ...SOCKET);
    expect(some.stdout.trimEnd().split('\n')).toHaveLength(3);
    for (const wrong of [
      ['--limit', '0'],
      ['--limit', '3', '--count'],
      ['--count', '--watch'],
    ])
      expect(await dpcache('node', 'list', ...wrong, ...SOCKET)).toMatchObject({ status: 2 });
  });

  it.each([
    [OUTPUT_CLOSED, 0, ''],
    [undefined, 1, 'dpcache: interrupted: the list is incomplete\n'],
  ])('ends a list whose output ends with %j', async (reason, status, why) => {
    const ended = new AbortController();
    let stderr = '';
    let text = '';
    const stdout = {
      write: (part: string) => {
        text += part;
        ended.abort(reason);
      },
    };
    const io = { stdout, stderr: { write: (part: string) => (stderr += part) }, stdin: nothing(), env: {} };
    const words = ['ipcache', 'list', '-o', 'name', ...SOCKET];
    expect(await runCommand(words, { ...io, signal: ended.signal })).toBe(status);
    expect([text === '', stderr]).toEqual([false, why]);
  });

  it('prints the cluster of an identity, as the list does', async () => {
    const { stdout } = await dpcache('identity', 'get', '132076', ...SOCKET);
    expect(stdout.split('\n')[1]).toMatch(/^132076 +baltic +\d+ /);
  });

  it('logs where it can be queried', () => {
    expect(agent.shown()).toContain(`dpcache status --socket ${folder}/dpcache.sock`);
    expect(agent.shown()).toMatch(/API: http:\/\/127\.0\.0\.1:\d+\/v1\/status/);
  });

  it('rejects a second agent on its socket', async () => {
    const second = await dpcache('agent', ...ATLANTIC, ...SOCKET);
    expect(second).toMatchObject({ status: 1 });
    expect(second.stderr).toContain(`is in use by the process with pid ${process.pid}`);
  });
});

it('an error of the API is printed like any other (regression: as a sentence behind the name of the program)', async () => {
  const { status, stderr } = await dpcache(
    'ipcache',
    'get',
    '10.10.0.12',
    '--at',
    '2020-01-01T00:00:00Z',
    ...SOCKET,
  );
  expect([status, stderr]).toEqual([1, expect.stringMatching(/^dpcache: [a-z][^\n]*[^.\n]\n$/)]);
});

describe('without an agent', () => {
  it('a question prints how to start one', async () => {
    expect(await dpcache('status', '--socket', join(folder, 'none.sock'))).toEqual({
      status: 1,
      stdout: '',
      stderr: `dpcache: ${folder}/none.sock: no process listens on this socket; start one with dpcache agent, set its socket with --socket, or add a source with --load or --kvstore\n`,
    });
  });

  it.each(['monitor', 'datapath diff'])('%s names no option that it does not have', async (command) => {
    const { stderr } = await dpcache(...command.split(' '), '--socket', join(folder, 'none.sock'));
    expect(stderr).toMatch(/start one with dpcache agent, or set its socket with --socket\n$/);
  });

  it.each([
    [['--listen', 'x'], 2, /It must be a port or address:port/],
    [['--listen', '127.0.0.1:70000'], 2, /It must be a port/],
    [['--listen', '0.0.0.0:0'], 2, /requires --listen-token or --listen-client-ca/],
    [['--listen', '0', '--listen-token', '/nowhere'], 1, /--listen-token \/nowhere: no such file/],
    [['--listen', '0', '--listen-cert', '/dev/null'], 2, /require each other/],
    [
      ['--listen', '0', '--listen-token', '/dev/null'],
      1,
      /--listen-token \/dev\/null: is a device, not a file/,
    ],
  ])('an agent with %j: status %i', async (words, status, why) => {
    const run = await dpcache('agent', ...ATLANTIC, '--no-socket', ...words);
    expect(run.status).toBe(status);
    expect(run.stderr).toMatch(why);
  });
});

it('an agent whose TCP address is in use ends with status 1 and the remedy', async () => {
  const taken = createServer().listen(0, '127.0.0.1');
  onTestFinished(() => void taken.close());
  await once(taken, 'listening');
  const { port } = taken.address() as AddressInfo;
  const { status, stderr } = await dpcache('agent', ...ATLANTIC, '--no-socket', '--listen', String(port));
  expect({ status, stderr }).toEqual({
    status: 1,
    stderr: `dpcache: cannot serve the API: address already in use: 127.0.0.1:${port}; set another address with --listen\n`,
  });
});

describe('an agent that is starting', () => {
  it('reports its current step and its reason to wait, in its status and in /readyz', async () => {
    const silent = createServer((socket) => socket.on('error', () => {})).listen(0, '127.0.0.1');
    onTestFinished(() => void silent.close());
    await once(silent, 'listening');
    const { port } = silent.address() as AddressInfo;
    const dir = temporaryFolder({ own: `endpoints: ["http://127.0.0.1:${port}"]\n` });
    const socket = join(dir, 'dpcache.sock');
    const ended = new AbortController();
    const ignored = { write: () => {} };
    const words = ['agent', '--socket', socket, '--kvstore', 'etcd', '--kvstore-config', join(dir, 'own')];
    const io = { stdout: ignored, stderr: ignored, stdin: nothing(), env: {}, signal: ended.signal };
    const run = runCommand(words, io);
    await once(silent, 'connection');
    const { stdout } = await dpcache('status', '--socket', socket);
    expect(stdout).toMatch(/^ {2}warning: local kvstore: running/m);
    const { ask } = new ApiClient(socket, ended.signal);
    const { steps } = (await ask('/v1/status')) as StatusDocument;
    expect(steps.map(({ name, state }) => `${name}: ${state}`)).toEqual([
      ...[
        'API: done',
        'engines: done',
        'history: done',
        'recorded mesh: done',
        'manifests: done',
        'local kvstore: running',
      ],
      ...['clusters: pending', 'initial sync of the local cluster: pending'],
      ...['initial sync of the remote clusters: pending', 'end of the initial sync: pending'],
    ]);
    await expect(ask('/readyz')).rejects.toMatchObject({
      problem: { blockers: [expect.stringMatching(/^step 6 of 10, local kvstore: running for \d+ s$/)] },
    });
    ended.abort();
    expect(await run).toBe(0);
  });
});
