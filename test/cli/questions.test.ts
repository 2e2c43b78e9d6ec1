import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { Command } from 'commander';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { ApiServer } from '../../src/api/server/api-server.ts';
import { OUTPUT_CLOSED } from '../../src/cli/io.ts';
import { runCommand } from '../../src/cli/program.ts';
import { Questioner } from '../../src/cli/questions/questioner.ts';
import * as watching from '../../src/client/watch-changes.ts';
import { localTimeText } from '../../src/process/terminal.ts';
import { temporaryFolder } from '../agent/support/temporary-folder.ts';
import { testApp } from '../api/support/test-app.ts';
import { ATLANTIC, dpcache, example, nothing } from './support/run.ts';

const MESH = [...ATLANTIC, '--manifests', example('services.yaml')];

async function lines(...words: readonly string[]): Promise<readonly string[]> {
  const { status, stdout, stderr } = await dpcache(...words, ...MESH);
  expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
  return stdout.trimEnd().split('\n');
}

async function json(...words: readonly string[]): Promise<unknown> {
  const { status, stdout } = await dpcache(...words, ...MESH, '-o', 'json');
  expect(status).toBe(0);
  return JSON.parse(stdout);
}

describe('a question that cannot be answered', () => {
  it('a refused request to sources is reported in one line, not by a stack', async () => {
    const { status, stderr } = await dpcache('whois', 'x'.repeat(2_000), ...MESH);
    expect({ status, stderr }).toEqual({
      status: 1,
      stderr: expect.stringMatching(
        /^dpcache: .*[^.]; to ask a running agent, remove the options that name a source\n$/,
      ),
    });
  });

  it('export of the history: a former export is kept if no agent answers (regression: was emptied)', async () => {
    const file = join(temporaryFolder({ export: 'former\n' }), 'export');
    const { status } = await dpcache('history', '--export', file, '--socket', `${file}.sock`);
    expect([status, readFileSync(file, 'utf8')]).toEqual([1, 'former\n']);
  });

  it('export of the history: a full disk is reported in one line, not by a stack', async () => {
    const socket = join(temporaryFolder({}), 'agent.sock');
    const mark = { kind: 'mark', sequence: 1, at: '2026-11-23T14:03:05.000Z', mark: 'start', subject: '' };
    const retained = { from: mark.at, to: mark.at };
    const server = createServer((_, response) => {
      response.setHeader('content-type', 'application/json');
      response.end(JSON.stringify({ items: [mark], retained, changes: 1, more: false }));
    });
    await new Promise<void>((resolve) => server.listen(socket, resolve));
    onTestFinished(() => void server.close());
    const { status, stderr } = await dpcache('history', '--export', '/dev/full', '--socket', socket);
    expect({ status, stderr }).toEqual({
      status: 1,
      stderr: 'dpcache: --export /dev/full: no space left on device\n',
    });
  });
});

describe('a time in a sentence of an agent is printed in the local time zone (regression: UTC below tables with local times)', () => {
  const AT = '2026-11-23T14:03:05.000Z';

  /** Asks an agent whose answer to each request is this document. */
  async function ask(status: number, document: object, ...words: readonly string[]) {
    const socket = join(temporaryFolder({}), 'agent.sock');
    const server = createServer((_, response) => {
      response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(document));
    });
    await new Promise<void>((resolve) => server.listen(socket, resolve));
    onTestFinished(() => void server.close());
    return dpcache(...words, '--socket', socket);
  }

  it('in an answer, but not in its JSON', async () => {
    const cluster = { name: 'far', id: 1, state: 'failed', rejected: 0, missing: [], keys: {} };
    const clustermesh = {
      clusters: [{ ...cluster, knownAt: AT, failures: 1, lastFailure: 'refused', lastFailureAt: AT }],
      configProblems: [],
      steps: [],
    };
    const { stdout, stderr } = await ask(200, clustermesh, 'clustermesh', 'status');
    expect(stderr).toBe('');
    expect(stdout).toContain(
      `far: unreachable, serving the state of ${localTimeText(AT)}, 1 failure, the last at ${localTimeText(AT)}: refused\n`,
    );
    const shown = await ask(200, clustermesh, 'clustermesh', 'status', '-o', 'json');
    expect(JSON.parse(shown.stdout)).toEqual(clustermesh);
  });

  it('in the answer that an object did not exist, and in an error', async () => {
    const words = ['ipcache', 'get', '10.0.0.1', '--at', AT] as const;
    const missing = await ask(404, { status: 404, detail: 'It did not exist.' }, ...words);
    expect(missing.stderr).toBe(`dpcache: 10.0.0.1 at ${localTimeText(AT)}: not found\n`);
    const dropped = await ask(410, { status: 410, detail: `The moment ${AT} is not retained.` }, ...words);
    expect(dropped.stderr).toBe(`dpcache: the moment ${localTimeText(AT)} is not retained\n`);
  });
});

describe('dpcache ipcache', () => {
  it('list: list all prefixes, in the order of addresses', async () => {
    const rows = await lines('ipcache', 'list');
    expect(rows).toHaveLength(340);
    expect(rows[0]).toMatch(/^PREFIX +IDENTITY +HOST +KEY +SOURCE +POD$/);
    expect(rows[1]).toMatch(
      /^10\.10\.0\.1\/32 +remote-node +192\.168\.10\.1 +0 +kvstore \(atlantic\/atlantic-node-1\) +-$/,
    );
    expect(rows.at(-1)).toMatch(/^fd01:3::4\/128 /);
  });

  it('list --identity: only prefixes of that identity', async () => {
    const found = (await json('ipcache', 'list', '--identity', '132076')) as readonly { identity: number }[];
    expect(found.length).toBeGreaterThan(10);
    expect(new Set(found.map(({ identity }) => identity))).toEqual(new Set([132_076]));
  });

  it('list --label: only prefixes whose identity has the label', async () => {
    const found = (await json('ipcache', 'list', '--label', 'app=checkout')) as readonly {
      readonly labels: readonly string[];
    }[];
    expect(found.length).toBeGreaterThan(10);
    expect(found.every(({ labels }) => labels.includes('k8s:app=checkout'))).toBe(true);
    const all = (await json('ipcache', 'list')) as typeof found;
    expect(all.filter(({ labels }) => labels?.includes('k8s:app=checkout'))).toHaveLength(found.length);
  });

  it('get: the entry of an IP, by longest prefix match', async () => {
    expect(await json('ipcache', 'get', '172.20.7.7')).toEqual({
      prefix: '172.20.0.0/16',
      encryptKey: 0,
      identity: 66_540,
      source: 'kvstore',
      labels: expect.arrayContaining([expect.stringMatching(/^\w+:.+=/)]),
    });
    expect(await json('ipcache', 'get', '::ffff:10.20.0.12')).toMatchObject({
      prefix: '10.20.0.12/32',
      podName: 'checkout-00001',
      source: 'clustermesh',
      owner: 'baltic',
    });
    expect((await lines('ipcache', 'get', '10.20.0.12'))[1]).toMatch(
      /132072 \(app=checkout\).*shop\/checkout-00001$/,
    );
  });

  it('explain: every claim, and the rule that decided', async () => {
    const explained = await json('ipcache', 'explain', '10.10.0.12');
    expect(explained).toMatchObject({
      prefix: '10.10.0.12/32',
      decidedBy: 'endpoint-over-cidr',
      claims: [
        {
          key: '10.10.0.12',
          identity: 66_536,
          effective: true,
          shadowed: false,
          origin: {
            text: expect.stringMatching(/^atlantic's kvstore in memory, .*, revision \d+$/),
            cluster: 'atlantic',
            store: 'memory',
            key: 'cilium/state/ip/v1/default/10.10.0.12',
            revision: expect.any(Number),
          },
        },
        { key: '10.10.0.12/32', identity: 66_539, effective: false, shadowed: true },
      ],
    });
    expect((await lines('ipcache', 'explain', '10.10.0.12'))[0]).toBe(
      '10.10.0.12/32: the first claim (*) is effective, because the endpoint shadows the CIDR of the same address.',
    );
  });

  it('explain: the service that has an IP', async () => {
    expect(await lines('ipcache', 'explain', '172.16.0.10')).toEqual([
      '172.16.0.10: cluster IP of shop/checkout (8080/TCP)',
      '172.16.0.10/32: no source claims it, and no prefix contains it',
    ]);
  });

  it('explain: the node whose pod CIDR contains an unknown IP, and status 1', async () => {
    expect(await dpcache('ipcache', 'explain', '10.10.0.99', ...MESH)).toMatchObject({
      status: 1,
      stdout:
        '10.10.0.99: in pod CIDR 10.10.0.0/24 of node atlantic/atlantic-node-1\n' +
        '10.10.0.99/32: no source claims it, and no prefix contains it\n',
    });
  });

  it('whois: what matches a text, and status 1 if nothing does', async () => {
    expect((await lines('whois', '172.16.0.10'))[1]).toMatch(/^service +shop\/checkout +172\.16\.0\.10, /);
    expect(await json('whois', 'catalog', '--limit', '1')).toMatchObject({
      groups: [{ kind: 'service', items: [{ key: 'shop/catalog' }] }, { kind: 'pod' }, {}, {}],
    });
    expect(await dpcache('whois', 'nowhere', ...MESH)).toMatchObject({
      status: 1,
      stderr: 'dpcache: nowhere: not found\n',
    });
  });

  it.each([
    [['get', '9.9.9.9'], 'dpcache: 9.9.9.9: not found'],
    [['get', '9.9.9.0/24'], 'dpcache: 9.9.9.0/24: not found'],
    [
      ['explain', '9.9.9.9'],
      'dpcache: 9.9.9.9: no source claims it, and it is in no pod CIDR; dpcache status names incomplete sources',
    ],
    [['explain', '9.9.9.0/24'], 'dpcache: 9.9.9.0/24: not found'],
  ])('%j of an unknown object: status 1 and the reason', async (words, why) => {
    expect(await dpcache('ipcache', ...words, ...MESH)).toEqual({
      status: 1,
      stdout: '',
      stderr: `${why}\n`,
    });
    expect(await dpcache('ipcache', ...words, ...MESH, '-o', 'json')).toEqual({
      status: 1,
      stdout: 'null\n',
      stderr: '',
    });
  });
});

describe('dpcache service list and node list', () => {
  it('show every service with its clusters', async () => {
    const rows = await lines('service', 'list');
    expect(rows).toHaveLength(6);
    expect(rows[5]).toMatch(
      /^shop\/checkout +ClusterIP +172\.16\.0\.10 +http:8080\/TCP +24 backends \(12 baltic, 12 caspian\) +global shared +-$/,
    );
    const services = (await json('service', 'list')) as readonly { name: string }[];
    expect(services.find(({ name }) => name === 'ledger')).toMatchObject({
      namespace: 'bank',
      clusterIPs: ['172.16.0.12'],
      global: true,
      ports: { pg: '5432/TCP' },
      backends: expect.arrayContaining([
        { address: '10.30.0.15', cluster: 'caspian', ports: { pg: '5432/TCP' }, state: 'active' },
      ]),
    });
  });

  it('show list all nodes of the mesh', async () => {
    const rows = await lines('node', 'list');
    expect(rows).toHaveLength(13);
    expect(rows[5]).toMatch(/^baltic\/baltic-node-1 +clustermesh +InternalIP=192\.168\.20\.1 .* +3$/);
    expect(await json('node', 'list')).toHaveLength(12);
  });
});

describe('dpcache status', () => {
  it('shows clusters, counts and rejections', async () => {
    const rows = await lines('status');
    expect(rows[1]).toMatch(/^atlantic \(local\) +1 +ready +4 +- +5 +86 +0$/);
    expect(rows.join('\n')).toContain(
      '339 prefixes, 12 nodes, 5 services with 156 backends; 0 overruled claims, 3 CIDRs shadowed',
    );
    expect(rows.at(-1)).toBe('No items were rejected.');
    expect(await json('status')).toMatchObject({
      cluster: 'atlantic',
      clusterID: 1,
      clusters: [
        { name: 'atlantic', local: true, ready: true },
        { name: 'baltic', id: 2, state: 'ready', keys: { nodes: 4, services: 4, identities: 5, ip: 86 } },
        { name: 'caspian', id: 3 },
      ],
      rejected: { total: 0 },
    });
  });
});

describe('dpcache agent --once', () => {
  it('prints a summary', async () => {
    const rows = await lines('agent', '--once');
    expect(rows.length).toBeLessThan(50);
    expect(rows.filter((row) => /^\S/.test(row)).map((row) => row.replace(/ \(.*/, ''))).toEqual([
      'State of the mesh, as seen by cluster atlantic',
      ...['Clusters', 'Nodes', 'Services', 'Some prefixes'],
    ]);
  });
});

it('a watched list ends its stream of changes if the list cannot be read, so that the process ends', async () => {
  let stream: AbortSignal | undefined;
  vi.spyOn(watching, 'watchChanges').mockImplementation(async function* (_client, _type, signal) {
    stream = signal;
    yield;
  });
  const { status, stderr } = await dpcache('ipcache', 'list', '--watch', '--socket', '/nowhere/dpcache.sock');
  expect([status, stderr.includes('/nowhere/dpcache.sock')]).toEqual([1, true]);
  expect(stream?.aborted).toBe(true);
});

describe('a list of a running agent', () => {
  const CLEAR_SCREEN = '\u001B[H\u001B[2J';
  const claim = { identity: 7, source: 'kvstore' } as const;

  async function served(): Promise<{ readonly socket: string; readonly upsert: (ip: string) => void }> {
    const { app, model } = testApp();
    const upsert = (ip: string): void => void model.ipcache.upsert(ip, claim);
    upsert('10.7.0.1');
    const socket = join(temporaryFolder({}), 'agent.sock');
    const server = new ApiServer({ app, socket });
    await server.start();
    onTestFinished(() => server.stop());
    return { socket, upsert };
  }

  it.each([
    ['cleared screen of a terminal', true, [CLEAR_SCREEN, CLEAR_SCREEN]],
    ['an empty line', undefined, ['', '\n']],
  ])('that is watched is printed again only if it differs, after: %s', async (_of, isTTY, before) => {
    const { socket, upsert } = await served();
    const list = async (): Promise<string> =>
      (await dpcache('ipcache', 'list', '-o', 'name', '--socket', socket)).stdout;
    const lists: string[] = [];
    vi.spyOn(watching, 'watchChanges').mockImplementation(async function* () {
      lists.push(await list());
      yield;
      yield;
      upsert('10.7.0.2');
      lists.push(await list());
      yield;
    });
    const written = { stdout: '', stderr: '' };
    const status = await runCommand(['ipcache', 'list', '-w', '-o', 'name', '--socket', socket], {
      stdout: {
        isTTY,
        write: (text) => {
          written.stdout += text;
        },
      },
      stderr: {
        write: (text) => {
          written.stderr += text;
        },
      },
      stdin: nothing(),
      env: {},
      signal: new AbortController().signal,
    });
    expect(lists.map((text) => text.includes('10.7.0.2/32\n'))).toEqual([false, true]);
    expect(written).toEqual({
      stdout: lists.map((text, index) => `${before[index]}${text}`).join(''),
      stderr: 'dpcache: the agent has stopped\n',
    });
    expect(status).toBe(1);
  });

  it('that is watched is printed in parts and without comparison if it has more than 1 MiB', async () => {
    const { socket } = await served();
    const parts = ['a', 'b', 'c'].map((letter) => letter.repeat(2 ** 19 + 1));
    vi.spyOn(watching, 'watchChanges').mockImplementation(async function* () {
      yield;
      yield;
    });
    const written: string[] = [];
    const { signal } = new AbortController();
    const output = { write: (text: string): unknown => written.push(text) };
    const io = { stdout: output, stderr: { write: () => {} }, stdin: nothing(), env: {}, signal };
    const questioner = new Questioner(io, async (action) => void (await action()));
    const program = new Command();
    questioner.addList(questioner.addCommand(program, 'list', ''), 'ip', async () => ({
      print: async (_ask, _options, write) => {
        for (const part of parts) await write(part);
      },
      count: async () => parts.length,
    }));
    await program.parseAsync(['list', '-w', '--socket', socket], { from: 'user' });
    expect(written.map((text) => text.replaceAll(/(.)\1+/g, '$1'))).toEqual(['ab', 'c', '\n', 'ab', 'c']);
  });

  it.each([
    ['is complete', undefined, 0, ''],
    ['ends quietly if its reader has closed the output', OUTPUT_CLOSED, 0, ''],
    ['is incomplete if it is interrupted', 'SIGINT', 1, 'dpcache: interrupted: the list is incomplete\n'],
  ])('%s', async (_of, reason, expected, message) => {
    const { socket } = await served();
    const stop = new AbortController();
    let stderr = '';
    const status = await runCommand(['ipcache', 'list', '--socket', socket], {
      stdout: {
        write: () => {
          if (reason !== undefined) stop.abort(reason);
        },
      },
      stderr: {
        write: (text) => {
          stderr += text;
        },
      },
      stdin: nothing(),
      env: {},
      signal: stop.signal,
    });
    expect([status, stderr]).toEqual([expected, message]);
  });
});
