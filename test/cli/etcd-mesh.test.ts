import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, renameSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { join } from 'node:path';
import { isDeepStrictEqual, promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { ApiClient } from '../../src/api/api-client.ts';
import { runCommand } from '../../src/cli/program.ts';
import { bytesOfText } from '../../src/kvstore/codec/bytes.ts';
import { EtcdBackend } from '../../src/kvstore/etcd/etcd-backend.ts';
import { temporaryFolder } from '../agent/support/temporary-folder.ts';
import { freePort } from '../base/support/free-port.ts';
import { until } from '../base/support/until.ts';
import { type EtcdProcess, startEtcd } from '../kvstore/etcd/support/etcd-process.ts';
import { ATLANTIC, dpcache, example, nothing } from './support/run.ts';
import { QUESTIONS, startAgent } from './support/running-agent.ts';

interface Recorded {
  readonly store: string;
  readonly key: string;
  readonly value: string;
}

const KEYS: readonly Recorded[] = readFileSync(example('mesh.jsonl'), 'utf8')
  .split('\n')
  .filter((line) => line !== '')
  .map((line) => JSON.parse(line) as Recorded);
const EXPECTED = readFileSync(new URL('../fixtures/mesh.expected.json', import.meta.url), 'utf8');
const OWN = 'atlantic';

const etcds = new Map<string, EtcdProcess>();

beforeAll(async () => {
  for (const name of new Set(KEYS.map(({ store }) => store))) {
    const [etcd] = await startEtcd();
    if (etcd === undefined) throw new Error('no etcd');
    etcds.set(name, etcd);
    const backend = new EtcdBackend({ endpoints: [etcd.url] });
    for (const { store, key, value } of KEYS)
      if (store === name) await backend.update(key, bytesOfText(value));
    await backend.close();
  }
});

afterAll(() => Promise.all([...etcds.values()].map((etcd) => etcd.dispose())));

/** Configurations as Kubernetes mounts them, beside a certificate and other files. */
function configurations(): { readonly folder: string; readonly words: readonly string[] } {
  const files = [...etcds].map(([name, etcd]) => [`mesh/${name}`, `endpoints:\n- ${etcd.url}\n`] as const);
  const folder = temporaryFolder({
    ...Object.fromEntries(files),
    'mesh/ca.crt': 'no configuration',
    own: `endpoints: ["${etcds.get(OWN)?.url}"]\ninsecure-transport: true\n`,
  });
  const kvstore = ['--kvstore', 'etcd', '--kvstore-config', join(folder, 'own')];
  return { folder, words: [...kvstore, '--clustermesh-config', join(folder, 'mesh'), '--cluster', OWN] };
}

interface State {
  readonly ipcache: Readonly<Record<string, { readonly hostIP?: string }>>;
  readonly nodes: readonly { readonly cluster: string; readonly addresses: readonly string[] }[];
  readonly services: Readonly<Record<string, object>>;
}

/**
 * Returns the state of the mesh from the kvstore of one cluster: nodes, their addresses and IPs.
 * Manifests and other clusters have the backends.
 */
function partOf(cluster: string): State {
  const { ipcache, nodes, services } = JSON.parse(EXPECTED) as State;
  const own = nodes.filter((node) => node.cluster === cluster);
  const hosts = new Set(own.flatMap(({ addresses }) => addresses.map((address) => address.split('=')[1])));
  const announced = new Set(KEYS.filter(({ store }) => store === cluster).map(({ key }) => key));
  const isOwn = ([prefix, { hostIP }]: [string, { readonly hostIP?: string }]): boolean =>
    hosts.has(hostIP ?? prefix.split('/')[0]) || announced.has(`cilium/state/ip/v1/default/${prefix}`);
  return {
    ipcache: Object.fromEntries(Object.entries(ipcache).filter(isOwn)),
    nodes: own,
    services: Object.fromEntries(Object.keys(services).map((name) => [name, {}])),
  };
}

describe('dpcache over three real etcds and a folder of configurations', () => {
  it('prints byte for byte the state of the original after following the same mesh', async () => {
    const { words } = configurations();
    const run = await dpcache(
      'agent',
      ...words,
      ...['--manifests', example('services.yaml'), '--once', '-o', 'json'],
    );
    expect(run.stderr).toBe('');
    expect(run.status).toBe(0);
    expect(run.stdout).toBe(EXPECTED);
  });

  it('answers, as a running agent, each question like one over the recorded mesh, and each path of its API', async () => {
    const { folder, words } = configurations();
    const manifests = ['--manifests', example('services.yaml')];
    const socket = ['--socket', join(folder, 'dpcache.sock')];
    const stop = new AbortController();
    const agent = await startAgent([...words, ...manifests, ...socket, '--listen', '0'], stop.signal);
    // The origins of claims differ: a real etcd has other revisions.
    const answerOf = async (...words: readonly string[]): Promise<unknown> => {
      const { stdout, ...rest } = await dpcache(...words);
      const alike = stdout
        .replaceAll(/(?:etcd|kvstore in memory), (\S+), revision \d+/g, 'store, $1')
        .replaceAll(/("store": ")\w+"|("revision": )\d+/g, '$1$2');
      return { ...rest, stdout: alike };
    };
    for (const question of QUESTIONS)
      expect(await answerOf(...question, ...socket)).toEqual(
        await answerOf(...question, ...ATLANTIC, ...manifests),
      );
    for (const question of [['status'], ['clustermesh', 'status'], ['ipcache', 'lookup', '10.10.0.12']])
      expect(await dpcache(...question, ...socket)).toMatchObject({ status: 0, stderr: '' });

    const [base] = /http:\/\/127\.0\.0\.1:\d+/.exec(agent.shown()) ?? [''];
    const api = (await (await fetch(`${base}/openapi.json`)).json()) as {
      readonly paths: Readonly<Record<string, Readonly<Record<string, unknown>>>>;
    };
    const values: Readonly<Record<string, string>> = {
      ip: '10.10.0.12',
      length: '32',
      namespace: 'shop',
      cluster: 'baltic',
      identity: '66536',
      writer: 'kvstore',
    };
    const asked: string[] = [];
    for (const path of Object.keys(api.paths).filter((each) => 'get' in (api.paths[each] ?? {}))) {
      const named = path.includes('/nodes/') ? 'baltic-node-1' : 'checkout';
      const at = path.replaceAll(/\{(\w+)\}/g, (_, name: string) => values[name] ?? named);
      const query = path === '/v1/search' ? '?q=checkout' : '';
      const answer = await fetch(`${base}${at}${query}`, { signal: stop.signal });
      asked.push(`${answer.status} ${at}`);
      await answer.body?.cancel();
    }
    // Repairs are answered over the unix socket only.
    expect(asked.filter((each) => !each.startsWith('200 '))).toEqual(['403 /v1/datapath/diff']);
    expect(asked.length).toBeGreaterThan(12);
    stop.abort();
    expect(await agent.ended).toBe(0);
  });

  it('prints the same if it may send only one request at a time', async () => {
    const { words } = configurations();
    const run = await dpcache(
      ...['agent', ...words, '--kvstore-opt', 'etcd.qps=50,etcd.bootstrapQps=1000,etcd.maxInflight=1'],
      ...['--manifests', example('services.yaml'), '--once', '-o', 'json'],
    );
    expect({ ...run, stdout: '' }).toEqual({ status: 0, stderr: '', stdout: '' });
    expect(run.stdout).toBe(EXPECTED);
  });

  it('without a mesh prints the state of the local cluster only', async () => {
    const { folder } = configurations();
    const { status, stdout, stderr } = await dpcache(
      ...['agent', '--kvstore', 'etcd', '--kvstore-config', join(folder, 'own'), '--cluster', OWN],
      ...['--manifests', example('services.yaml'), '--once', '-o', 'json'],
    );
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
    expect(JSON.parse(stdout)).toEqual(partOf(OWN));
  });

  it('records a file that --load reads as the same mesh', async () => {
    const { folder } = configurations();
    const mesh = ['--cluster', OWN, '--clustermesh-config', join(folder, 'mesh')];
    const recorded = await dpcache('record', ...mesh, '--kvstore-config', join(folder, 'own'));
    expect({ ...recorded, stdout: '' }).toEqual({ status: 0, stderr: '', stdout: '' });
    const load = join(temporaryFolder({ 'mesh.jsonl': recorded.stdout }), 'mesh.jsonl');
    const { status, stdout } = await dpcache(
      ...['agent', '--cluster', OWN, '--load', load, '--manifests', example('services.yaml')],
      ...['--once', '-o', 'json'],
    );
    expect(status).toBe(0);
    expect(stdout).toBe(EXPECTED);
  });

  it('record --follow writes a tape of the clusters of both configurations', async () => {
    const { folder } = configurations();
    const kvstores = ['--kvstore-config', join(folder, 'own'), '--clustermesh-config', join(folder, 'mesh')];
    const out = join(folder, 'tape');
    const stop = new AbortController();
    let logged = '';
    const words = ['record', '--cluster', OWN, ...kvstores, '--follow', '--out', out, '--log-level', 'info'];
    const ended = runCommand(words, {
      stdout: { write: () => {} },
      stderr: {
        write: (text) => {
          logged += text;
        },
      },
      stdin: nothing(),
      env: {},
      signal: stop.signal,
    });
    await until('every cluster is on the tape', async () => {
      const { status, stdout } = await dpcache('tape', 'check', out, '-o', 'json');
      return status === 0 && isDeepStrictEqual(JSON.parse(stdout).clusters, [...etcds.keys()].sort());
    });
    // An interrupt before the end of the initial sync is a failure.
    await until('the initial sync is done', () => logged.includes('end of the initial sync: done'));
    stop.abort();
    expect(await ended).toBe(0);
  });

  it('records every reachable cluster, and reports the others with status 1', async () => {
    const { folder } = configurations();
    const far = `endpoints: ["http://127.0.0.1:${await freePort()}"]\n`;
    const mesh = temporaryFolder({ far, broken: 'endpoints: 7\n' });
    const { status, stdout, stderr } = await dpcache(
      ...['record', '--cluster', OWN, '--kvstore-config', join(folder, 'own'), '--clustermesh-config', mesh],
    );
    expect(status).toBe(1);
    expect(stderr).toMatch(/^error --clustermesh-config .*broken: endpoints 7: .*$/m);
    expect(stderr).toMatch(
      /^error cluster far: the recording is incomplete: .*connection refused; check that etcd runs.*$/m,
    );
    const stores = stdout
      .trim()
      .split('\n')
      .map((line) => (JSON.parse(line) as Recorded).store);
    expect(new Set(stores)).toEqual(new Set([OWN]));
    expect(stores).toHaveLength(KEYS.filter(({ store }) => store === OWN).length);
  });

  it('reads the output of etcdctl', async () => {
    const url = etcds.get(OWN)?.url ?? '';
    const { stdout: answer } = await promisify(execFile)(
      'etcdctl',
      ['--endpoints', url, 'get', '--prefix', 'cilium', '-w', 'json'],
      { env: { ...process.env, ETCDCTL_API: '3' }, maxBuffer: 1 << 26 },
    );
    const load = join(temporaryFolder({ 'own.json': answer }), 'own.json');
    const { status, stdout } = await dpcache(
      ...['agent', '--cluster', OWN, '--load', load, '--manifests', example('services.yaml')],
      ...['--once', '-o', 'json'],
    );
    expect(status).toBe(0);
    expect(JSON.parse(stdout)).toEqual(partOf(OWN));
  });

  it('prints the state of every cluster', async () => {
    const { words } = configurations();
    const { status, stdout } = await dpcache('clustermesh', 'status', ...words, '-o', 'json');
    expect(status).toBe(0);
    const { clusters } = JSON.parse(stdout) as { clusters: readonly { name: string }[] };
    expect(clusters.map(({ name }) => name).sort()).toEqual([...etcds.keys()].sort());
    for (const cluster of clusters)
      expect(cluster).toMatchObject({ ready: true, connected: true, missing: [] });
  });

  it('waits for the first sync at most as long as --timeout', async () => {
    const { words } = configurations();
    const silent = createServer((socket) => socket.on('error', () => {})).listen(0, '127.0.0.1');
    onTestFinished(() => void silent.close());
    await once(silent, 'listening');
    const { port } = silent.address() as AddressInfo;
    const folder = temporaryFolder({ far: `endpoints: ["http://127.0.0.1:${port}"]\n` });
    const mesh = words.with(words.indexOf('--clustermesh-config') + 1, folder);
    let nodes: unknown[] = [];
    // On a busy machine the local cluster may take longer than a second, too.
    for (const timeout of ['1s', '5s', '20s']) {
      if (nodes.length === 4) break;
      const { status, stdout, stderr } = await dpcache(
        ...['node', 'list', ...mesh, '--timeout', timeout, '-o', 'json'],
      );
      expect(status).toBe(1);
      expect(stderr).toMatch(/^error cluster far is incomplete/m);
      nodes = JSON.parse(stdout);
    }
    expect(nodes).toHaveLength(4);
  });

  it('prints the state of the other clusters if one etcd is down, and the reason, with status 1', async () => {
    const { words } = configurations();
    const folder = temporaryFolder({ far: `endpoints: ["http://127.0.0.1:${await freePort()}"]\n` });
    const mesh = words.with(words.indexOf('--clustermesh-config') + 1, folder);
    const { status, stdout, stderr } = await dpcache('clustermesh', 'status', ...mesh);
    expect(status).toBe(1);
    expect(stdout).toMatch(/atlantic: connected, complete/);
    expect(stderr).toMatch(
      /^error cluster far is incomplete: .*: cannot connect to etcd at [\d.:]+: connection refused; check that etcd runs at the endpoint of the configuration$/m,
    );
  });
});

interface CopyingStatus {
  readonly ready?: boolean;
  readonly clusters?: readonly unknown[];
  readonly problems?: readonly string[];
  readonly blockers?: readonly string[];
}

interface CopyingProcess {
  readonly stop: AbortController;
  readonly socket: readonly string[];
  readonly stderr: readonly string[];
  readonly ended: Promise<number>;
  status(): Promise<CopyingStatus>;
}

describe('dpcache kvstoremesh over the same etcds', () => {
  it('copies the mesh so that an agent that reads only the copy prints the same, and keeps the copy when it ends', async () => {
    const { folder, words } = configurations();
    const remote = temporaryFolder(
      Object.fromEntries(
        [...etcds.keys()]
          .filter((name) => name !== OWN)
          .map((name) => [name, `endpoints: ["${etcds.get(OWN)?.url}"]\n`]),
      ),
    );
    const start = (name: string): CopyingProcess => {
      const stop = new AbortController();
      const socket = ['--socket', join(folder, name)];
      const stderr: string[] = [];
      const ended = runCommand(
        ['kvstoremesh', ...words.filter((word) => word !== '--kvstore' && word !== 'etcd'), ...socket],
        {
          stdout: { write: () => {} },
          stderr: { write: (text: string) => stderr.push(text) },
          stdin: nothing(),
          env: {},
          signal: stop.signal,
        },
      );
      const status = async (): Promise<CopyingStatus> => {
        const { stdout } = await dpcache('kvstoremesh', 'status', '-o', 'json', ...socket);
        return (stdout === '' ? {} : JSON.parse(stdout)) as CopyingStatus;
      };
      return { stop, socket, stderr, ended, status };
    };
    const isComplete = async (process: CopyingProcess): Promise<boolean> => {
      const { ready, clusters = [] } = await process.status();
      return ready === true && clusters.length === 2;
    };
    const one = start('kvstoremesh.sock');
    await until('the copy is complete', () => isComplete(one));
    const { stdout } = await dpcache('kvstoremesh', 'status', ...one.socket);
    expect(stdout).toMatch(/^CLUSTER +ID +STATE +KEYS +PENDING +LAST FAILURE\nbaltic +2 +ready +\d+ +0/);
    const two = start('standby.sock');
    const sentence = /^standby, because another kvstoremesh copies into this kvstore/;
    await until('a second one says that it waits', async () =>
      sentence.test((await two.status()).problems?.[0] ?? ''),
    );
    for (const [name, { stop }] of Object.entries({ 'kvstoremesh.sock': one, 'standby.sock': two })) {
      const client = new ApiClient(join(folder, name), stop.signal);
      expect(await client.ask('/readyz')).toEqual({ ready: true, blockers: [] });
    }
    // A standby whose folder cannot be read when it takes over was ready without clusters.
    const path = words[words.indexOf('--clustermesh-config') + 1] ?? '';
    renameSync(path, `${path}-away`);
    one.stop.abort();
    expect([await one.ended, one.stderr]).toEqual([0, []]);
    const unread = `--clustermesh-config ${path}: not read yet`;
    await until('the second one says what it cannot read', async () => {
      const { ready, blockers = [] } = await two.status();
      return ready === false && blockers.includes(unread);
    });
    renameSync(`${path}-away`, path);
    await until('the second one copies', () => isComplete(two));
    two.stop.abort();
    expect([await two.ended, two.stderr.join()]).toEqual([0, expect.stringContaining('another kvstoremesh')]);
    const agent = await dpcache(
      ...['agent', ...words.slice(0, 4), '--clustermesh-config', remote, '--cluster', OWN],
      ...['--manifests', example('services.yaml'), '--once', '-o', 'json'],
    );
    expect(agent).toEqual({ status: 0, stderr: '', stdout: EXPECTED });
  });

  it('reports missing options with status 2, and unreadable input with status 1', async () => {
    const { folder } = configurations();
    const run = (...more: readonly string[]): ReturnType<typeof dpcache> =>
      dpcache('kvstoremesh', '--no-socket', ...more);
    expect(await run()).toMatchObject({
      status: 2,
      stderr: expect.stringContaining('--kvstore-config <file>'),
    });
    const own = ['--kvstore-config', join(folder, 'own')];
    expect(await run(...own)).toMatchObject({
      status: 2,
      stderr: expect.stringContaining('--clustermesh-config'),
    });
    expect(await run(...own, '--clustermesh-config', join(folder, 'none'))).toMatchObject({
      status: 1,
      stderr: expect.stringContaining('no such'),
    });
    expect(await dpcache('kvstoremesh', 'status', '--socket', join(folder, 'none.sock'))).toMatchObject({
      status: 1,
      stderr: expect.stringContaining('start one with dpcache kvstoremesh'),
    });
  });
});
