import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Command } from 'commander';
import { describe, expect, it, vi } from 'vitest';
import { parseConfig } from '../../../src/cli/config-file.ts';
import { addAgentOptions, addConfiguration, agentSettings } from '../../../src/cli/configuration.ts';
import * as serveFiles from '../../../src/process/serve-files.ts';
import { temporaryFolder } from '../../agent/support/temporary-folder.ts';
import { ATLANTIC, dpcache, dpcacheWith } from '../support/run.ts';

/** Returns the options that commander parses from a command line, the environment and a file. */
async function optionsOf(
  words: readonly string[],
  env: Readonly<Record<string, string>> = {},
  file?: string,
): Promise<unknown> {
  const io = {
    stdout: { write: () => {} },
    stderr: { write: () => {} },
    stdin: { async *[Symbol.asyncIterator]() {} },
    env,
    signal: new AbortController().signal,
  };
  let found: unknown;
  const program = new Command().exitOverride();
  const agent = program.command('agent').action(({ config: _, ...flags }: { config?: string }) => {
    found = flags;
  });
  addConfiguration(addAgentOptions(agent), io);
  const config = file === undefined ? [] : ['--config', join(temporaryFolder({ 'a.yaml': file }), 'a.yaml')];
  await program.parseAsync(['agent', ...words, ...config], { from: 'user' });
  return found;
}

/** Each setting, set in each of the three ways, with the settings that it requires. */
const SAID: Readonly<Record<string, { flags: readonly string[]; env?: string; file?: string }>> = {
  socket: { flags: ['--socket', '/run/a.sock'] },
  listen: { flags: ['--listen', '65535'] },
  'listen-name': {
    flags: ['--listen-name', 'agent.example', '--listen-name', 'b'],
    env: 'agent.example,b',
    file: '[agent.example, b]',
  },
  'listen-token': { flags: ['--listen-token', '/t'] },
  'listen-cert': { flags: ['--listen-cert', '/c'] },
  'listen-key': { flags: ['--listen-key', '/k'] },
  'listen-client-ca': { flags: ['--listen-client-ca', '/ca'] },
  ui: { flags: ['--ui'], env: 'true' },
  'state-dir': { flags: ['--state-dir', '/s'] },
  'import-cilium-state': { flags: ['--state-dir', '/s', '--import-cilium-state', '/c'] },
  'history-memory': { flags: ['--history-memory', '1MiB'] },
  'history-disk': { flags: ['--state-dir', '/s', '--history-disk', '1GiB'] },
  tape: { flags: ['--tape', '/t'] },
  'tape-size': { flags: ['--tape', '/t', '--tape-size', '16MiB'] },
  datapath: { flags: ['--datapath', 'linux'] },
  'datapath-pins': { flags: ['--datapath', 'linux', '--datapath-pins', '/p'] },
  'datapath-cgroup': { flags: ['--datapath', 'linux', '--datapath-cgroup', '/c'] },
  'datapath-services': { flags: ['--datapath', 'linux', '--datapath-services', 'off'] },
  'datapath-source-ranges': { flags: ['--datapath', 'linux', '--datapath-source-ranges', 'all'] },
  'datapath-routing': { flags: ['--datapath', 'linux', '--datapath-routing', 'tunnel'] },
  'datapath-remote-cidrs': {
    flags: ['--datapath', 'linux', '--datapath-remote-cidrs', '203.0.113.0/24, 2001:db8::/32'],
    file: '[203.0.113.0/24, "2001:db8::/32"]',
  },
  'datapath-layout': { flags: ['--datapath', 'linux', '--datapath-layout', '1.8'] },
  'datapath-capacity': { flags: ['--datapath', 'linux', '--datapath-capacity', '16777216'] },
  'datapath-service-capacity': { flags: ['--datapath', 'linux', '--datapath-service-capacity', '1000'] },
  'datapath-dry-run': { flags: ['--datapath', 'linux', '--datapath-dry-run'], env: 'true' },
  'follow-nothing': { flags: ['--follow-nothing'], env: 'true' },
  cluster: { flags: ['--cluster', 'atlantic'] },
  kvstore: { flags: ['--kvstore-config', '/e.yaml', '--kvstore', 'etcd'] },
  'kvstore-config': { flags: ['--kvstore', 'etcd', '--kvstore-config', '/e.yaml'], env: '/e.yaml' },
  'kvstore-opt': {
    flags: [
      '--clustermesh-config',
      '/m',
      '--kvstore-opt',
      'etcd.qps=20',
      '--kvstore-opt',
      'etcd.maxInflight=3',
    ],
    env: 'etcd.qps=20,etcd.maxInflight=3',
    file: '[etcd.qps=20, etcd.maxInflight=3]',
  },
  'clustermesh-config': { flags: ['--clustermesh-config', '/m'] },
  'clustermesh-cache-ttl': { flags: ['--clustermesh-cache-ttl', '1h30m'] },
  'service-v2': { flags: ['--service-v2', 'slices'] },
  'fail-static': { flags: ['--no-fail-static'], env: 'false' },
  load: { flags: ['--load', '/a', '--load', '/b'], env: '/a,/b', file: '[/a, /b]' },
  manifests: { flags: ['--manifests', '/a'] },
  'cluster-id': { flags: ['--cluster-id', '255'] },
  timeout: { flags: ['--timeout', '30s'] },
  'max-connected-clusters': { flags: ['--max-connected-clusters', '511'] },
  'node-name': { flags: ['--node-name', 'n1'] },
  kubeconfig: { flags: ['--kubeconfig', '/k'] },
  context: { flags: ['--kubeconfig', '/k', '--context', 'a'], env: 'a' },
  k8s: { flags: ['--k8s', 'off'] },
  'k8s-load': { flags: ['--k8s-load', '/a', '--k8s-load', '/b'], env: '/a,/b', file: '[/a, /b]' },
  'k8s-watch': { flags: ['--k8s-watch', 'services,nodes'], file: '[services, nodes]' },
  'k8s-endpoints': { flags: ['--k8s-endpoints', 'pods'] },
  'k8s-identities': { flags: ['--k8s-identities', 'crd'] },
  'k8s-service-proxy-name': { flags: ['--k8s-service-proxy-name', 'mine'] },
  'k8s-headless-services': { flags: ['--k8s-headless-services'], env: 'true' },
  'k8s-host-ips': { flags: ['--k8s-host-ips'], env: 'true' },
  'k8s-dual-stack': { flags: ['--k8s-dual-stack'], env: 'true' },
  'k8s-node-annotations': { flags: ['--k8s-node-annotations'], env: 'true' },
  'k8s-encrypt-key': { flags: ['--k8s-encrypt-key', '255'] },
  'k8s-node-name': { flags: ['--k8s-node-name', 'n1'] },
  'remote-node-identities': { flags: ['--no-remote-node-identities'], env: 'false' },
  encryption: { flags: ['--encryption'], env: 'true' },
  'node-encryption': { flags: ['--node-encryption'], env: 'true' },
  'host-firewall': { flags: ['--host-firewall'], env: 'true' },
  underlay: { flags: ['--underlay', 'ipv6'] },
  'log-level': { flags: ['--log-level', 'debug'] },
  'log-format': { flags: ['--log-format', 'json'] },
};

/** Other settings that a setting requires. */
const CONTEXT: Readonly<Record<string, readonly string[]>> = {
  kvstore: ['--kvstore-config', '/e.yaml'],
  'kvstore-config': ['--kvstore', 'etcd'],
  'kvstore-opt': ['--clustermesh-config', '/m'],
  context: ['--kubeconfig', '/k'],
  'import-cilium-state': ['--state-dir', '/s'],
  'history-disk': ['--state-dir', '/s'],
  'tape-size': ['--tape', '/t'],
  'datapath-pins': ['--datapath', 'linux'],
  'datapath-cgroup': ['--datapath', 'linux'],
  'datapath-services': ['--datapath', 'linux'],
  'datapath-source-ranges': ['--datapath', 'linux'],
  'datapath-routing': ['--datapath', 'linux'],
  'datapath-remote-cidrs': ['--datapath', 'linux'],
  'datapath-layout': ['--datapath', 'linux'],
  'datapath-capacity': ['--datapath', 'linux'],
  'datapath-service-capacity': ['--datapath', 'linux'],
  'datapath-dry-run': ['--datapath', 'linux'],
};

describe('every option of an agent', () => {
  it('is a setting', () => {
    expect(agentSettings().map(({ key }) => key)).toEqual(Object.keys(SAID));
  });

  it.each(Object.entries(SAID))('--%s means the same in a file and in the environment', async (key, said) => {
    const { flags, env = flags.at(-1) ?? '', file = env } = said;
    vi.spyOn(serveFiles, 'serveContradictions').mockReturnValue([]);
    const context = CONTEXT[key] ?? [];
    const wanted = await optionsOf(flags);
    expect(wanted).not.toEqual(await optionsOf([]));
    expect(await optionsOf(context, {}, `${key}: ${file}\n`)).toEqual(wanted);
    const variable = `DPCACHE_${key.toUpperCase().replaceAll('-', '_')}`;
    expect(await optionsOf(context, { [variable]: env })).toEqual(wanted);
  });

  it('is read from a flag first, then from the environment, then from a file', async () => {
    const level = async (...said: Parameters<typeof optionsOf>): Promise<unknown> => {
      const options = (await optionsOf(...said)) as { logLevel: string };
      return options.logLevel;
    };
    const file = 'log-level: error';
    expect(await level([])).toBe('warn');
    expect(await level([], {}, file)).toBe('error');
    expect(await level([], { DPCACHE_LOG_LEVEL: 'info' }, file)).toBe('info');
    expect(await level(['--log-level', 'warn'], { DPCACHE_LOG_LEVEL: 'info' }, file)).toBe('warn');
    expect(await level([], { DPCACHE_LOG_LEVEL: '' }, file)).toBe('error'); // an empty value is ignored
  });

  it('can be disabled if a flag can disable it', async () => {
    const wanted = await optionsOf(['--no-socket']);
    expect(await optionsOf([], {}, 'socket: false')).toEqual(wanted);
    expect(await optionsOf([], { DPCACHE_SOCKET: 'false' })).toEqual(wanted);
  });
});

it('the status of a process needs no flags of this process (regression: refused with status 2)', async () => {
  const env = { DPCACHE_MCS_API: 'true', DPCACHE_LISTEN: '0.0.0.0:80' };
  const { status, stderr } = await dpcacheWith(env, 'operator', 'status', '--socket', '/nowhere');
  expect({ status, stderr }).toEqual({ status: 1, stderr: expect.stringContaining('no process listens') });
});

describe('dpcache config check', () => {
  const check = async (text: string): Promise<{ status: number; said: string }> => {
    const path = join(temporaryFolder({ 'a.yaml': text }), 'a.yaml');
    const { status, stdout, stderr } = await dpcache('config', 'check', path);
    return { status, said: (stdout + stderr).replaceAll(path, 'a.yaml') };
  };

  it('reports every problem in one run, with key, value and allowed values', async () => {
    const text =
      'log-level: loud\ncluster-id: 900\nclustr: a\nencryption: 1\nload: [a, {}]\nlisten: [1]\nzzz: 1\n';
    expect(await check(text)).toEqual({
      status: 1,
      said: [
        'a.yaml: listen: [1]: It must be a string or a number.',
        'a.yaml: load: {}: It must be a string or a number.',
        'a.yaml: cluster-id: 900: It must be a number from 0 to 511.',
        'a.yaml: encryption: 1: It must be true or false.',
        'a.yaml: log-level: "loud": Allowed choices are trace, debug, info, warn, error, silent.',
        'a.yaml: clustr: unknown setting; did you mean cluster?',
        'a.yaml: zzz: unknown setting',
        '',
      ].join('\n'),
    });
  });

  it('prints its problems as JSON, on stdout and with the same status', async () => {
    const json = async (text: string): Promise<unknown> => {
      const path = join(temporaryFolder({ 'a.yaml': text }), 'a.yaml');
      const { status, stdout, stderr } = await dpcache('config', 'check', path, '-o', 'json');
      expect(stderr).toBe('');
      const { file, ...document } = JSON.parse(stdout);
      expect(file).toBe(path);
      return { status, ...document };
    };
    expect(await json('cluster: a\n')).toEqual({ status: 0, valid: true, problems: [] });
    expect(await json('clustr: a\nzzz: 1\n')).toEqual({
      status: 1,
      valid: false,
      problems: ['clustr: unknown setting; did you mean cluster?', 'zzz: unknown setting'],
    });
  });

  it.each([
    ['- a', 'a.yaml: ["a"]: must be a map of settings\n'],
    ['cluster: a\ncluster: b', 'a.yaml: line 2: Map keys must be unique\n'],
    ['datapath-capacity: 5', 'a.yaml: --datapath-capacity requires --datapath linux\n'],
    [
      'datapath-remote-cidrs: 10.0.0.0/33',
      'a.yaml: datapath-remote-cidrs: "10.0.0.0/33": \'10.0.0.0/33\' is not a CIDR.\n',
    ],
    ['datapath-pins: here', 'a.yaml: datapath-pins: "here": It must be an absolute path.\n'],
    [
      'datapath-routing: bgp',
      'a.yaml: datapath-routing: "bgp": Allowed choices are auto, direct, tunnel, off.\n',
    ],
    // regression: was valid, and no agent started with it
    [
      'import-cilium-state: /s',
      'a.yaml: --import-cilium-state requires --state-dir, because the imported state is stored there\n',
    ],
    [
      'history-disk: 128MiB',
      'a.yaml: --history-disk requires --state-dir, because its files are stored there\n',
    ],
    [
      'history-disk: 1GiB\nstate-dir: /s\nhistory-memory: off',
      'a.yaml: --history-disk requires --history-memory, which is off\n',
    ],
    ['kvstore: etcd', 'a.yaml: --kvstore etcd requires --kvstore-config <file>\n'],
    ['listen-token: a', 'a.yaml: --listen-token requires --listen <address>\n'],
    ['ui: true', 'a.yaml: --ui requires --listen <address>, because the page is served over TCP\n'],
    [
      'listen: 10.0.0.1:80\nlisten-cert: a\nkvstore: etcd',
      [
        'a.yaml: --kvstore etcd requires --kvstore-config <file>\n',
        'a.yaml: --listen-cert and --listen-key require each other\n',
        'a.yaml: --listen 10.0.0.1 requires --listen-token or --listen-client-ca, because other machines can reach this address\n',
      ].join(''),
    ],
    [
      'listen: 80\nlisten-client-ca: a',
      'a.yaml: --listen-client-ca requires --listen-cert and --listen-key\n',
    ],
  ])('%j is rejected', async (text, said) => {
    expect(await check(text)).toEqual({ status: 1, said });
  });

  it('names every unreadable or invalid file, unless none is to be read', async () => {
    const files = {
      'a.yaml': 'mesh',
      'etcd.yaml': 'endpoints: 7\n',
      'mesh/far': 'endpoints: [https://10.0.0.1:2379]\nca-file: /no/ca\n',
      kubeconfig: 'clusters: 7',
      token: '',
    };
    const folder = temporaryFolder(files);
    const text = [
      'listen: 0.0.0.0:80',
      `listen-token: ${folder}/token`,
      'kvstore: etcd',
      `kvstore-config: ${folder}/etcd.yaml`,
      `clustermesh-config: ${folder}/mesh`,
      `kubeconfig: ${folder}/kubeconfig`,
      'manifests: [/no/manifests]',
      'k8s-watch: nodes',
    ].join('\n');
    writeFileSync(join(folder, 'a.yaml'), text);
    const { status, stderr } = await dpcache('config', 'check', join(folder, 'a.yaml'));
    expect([status, stderr]).toEqual([1, expect.stringContaining('--listen-token')]);
    const said = stderr.trimEnd().split('\n');
    for (const what of [
      `--listen-token ${folder}/token: the file is empty`,
      `--kvstore-config ${folder}/etcd.yaml: `,
      `--clustermesh-config ${folder}/mesh/far: `,
      `--kubeconfig ${folder}/kubeconfig: `,
      '--manifests /no/manifests: no such file or folder',
    ])
      expect(said).toContainEqual(expect.stringContaining(what));
    expect(said).toHaveLength(5);
    expect(await dpcache('config', 'check', '--no-files', join(folder, 'a.yaml'))).toMatchObject({
      status: 0,
    });
  });

  it('accepts a valid file, and an empty one', async () => {
    for (const text of ['', 'log-level: debug', 'timeout: 30s\nlisten: 127.0.0.1:8080\nload: /dev/null\n'])
      expect(await check(text)).toEqual({ status: 0, said: 'a.yaml: valid\n' });
  });

  it('checks the file of an operator or a kvstoremesh by their settings', async () => {
    const path = join(
      temporaryFolder({ 'a.yaml': 'leader-election-lease-duration: 30s\nlisten-token: a\n' }),
      'a.yaml',
    );
    expect(await dpcache('config', 'check', '--of', 'operator', path)).toMatchObject({
      status: 1,
      stderr: `${path}: --listen-token requires --listen <address>\n`,
    });
    const contradictory = join(temporaryFolder({ 'b.yaml': 'endpoint-gc-interval: 0\n' }), 'b.yaml');
    expect(await dpcache('config', 'check', '--of', 'operator', contradictory)).toMatchObject({
      status: 1,
      stderr: expect.stringContaining('--endpoint-gc-interval 0 requires'),
    });
    expect(await dpcache('config', 'check', '--of', 'kvstoremesh', path)).toMatchObject({
      status: 1,
      stderr: `${path}: leader-election-lease-duration: unknown setting\n`,
    });
  });

  it('rejects a FIFO and a file that is too large (regression: waited for a writer for ever)', async () => {
    const folder = temporaryFolder({ 'large.yaml': `#${'x'.repeat(1024 * 1024)}` });
    const fifo = join(folder, 'fifo');
    execFileSync('mkfifo', [fifo]);
    const fault = `${fifo}: is a FIFO, not a file\n`;
    const checked = { status: 1, stderr: `dpcache: file ${fault}` };
    expect(await dpcache('config', 'check', fifo)).toMatchObject(checked);
    const started = { status: 1, stderr: `dpcache: --config ${fault}` };
    expect(await dpcache('agent', '--once', '--config', fifo)).toMatchObject(started);
    const large = join(folder, 'large.yaml');
    expect(await dpcache('config', 'check', large)).toMatchObject({
      status: 1,
      stderr: `dpcache: file ${large}: the file is larger than 1048576 bytes\n`,
    });
  });

  it('reports a missing file as its argument (regression: as --config, which was not given)', async () => {
    expect(await dpcache('config', 'check', '/nowhere')).toMatchObject({
      status: 1,
      stderr: 'dpcache: file /nowhere: no such file or folder: check the path\n',
    });
  });
});

describe('an invalid setting ends a command', () => {
  const WRONG = 'log-level: loud\nclustr: a\n';

  it('with status 1 if it is in a file, and names all of them', async () => {
    const path = join(temporaryFolder({ 'a.yaml': WRONG }), 'a.yaml');
    const { status, stderr } = await dpcache('agent', '--once', '--config', path);
    expect(status).toBe(1);
    expect(stderr).toContain('log-level: "loud": Allowed choices are');
    expect(stderr).toContain('clustr: unknown setting; did you mean cluster?');
  });

  it('and escapes the text that it quotes (regression)', async () => {
    const path = join(temporaryFolder({ 'a.yaml': '"\\e[2J\\u009b1m": 1\n' }), 'a.yaml');
    const { status, stderr } = await dpcache('agent', '--once', '--config', path);
    expect(status).toBe(1);
    expect(stderr).toBe(`dpcache: --config ${path}: \\u001b[2J\\u009b1m: unknown setting\n`);
    const checked = await dpcache('config', 'check', path);
    expect(checked.stderr).toBe(`${path}: \\u001b[2J\\u009b1m: unknown setting\n`);
  });

  it('with status 2 if it is in the environment', async () => {
    const { status, stderr } = await dpcacheWith({ DPCACHE_CLUSTER_ID: '900' }, 'agent', '--once');
    expect(status).toBe(2);
    expect(stderr).toContain('DPCACHE_CLUSTER_ID "900": It must be a number from 0 to 511.');
  });

  it('and names a variable that is almost a setting', async () => {
    const env = { DPCACHE_LOGLEVEL: 'debug', DPCACHE_SERVICE_HOST: '10.0.0.1' };
    const { status, stderr } = await dpcacheWith(env, 'agent', '--once', ...ATLANTIC);
    expect({ status, stderr }).toEqual({
      status: 0,
      stderr: 'dpcache: unknown environment variable DPCACHE_LOGLEVEL: did you mean DPCACHE_LOG_LEVEL?\n',
    });
  });
});

it.each([
  ['DPCACHE_LOAD', ATLANTIC.at(-1) ?? ''],
  ['DPCACHE_KVSTORE_CONFIG', '/nowhere/etcd.yaml'], // also a setting of operators, which needs no DPCACHE_KVSTORE there
])('the setting %s does not make a question start another agent', async (variable, value) => {
  const { status, stderr } = await dpcacheWith(
    { [variable]: value, DPCACHE_SOCKET: '/nowhere/a.sock' },
    'status',
  );
  expect(stderr).toContain('/nowhere/a.sock: no process listens on this socket');
  expect(status).toBe(1);
});

it('a file may be any YAML and never crashes the check', () => {
  for (const text of [
    '{',
    'a: &a [*a]',

    '__proto__: 1',
    'constructor: {}',
    'load: null',
    '\u0000',
  ])
    expect(parseConfig(text, agentSettings()).problems.length).toBeGreaterThan(0);
});

it.each([
  ['cluster: *s3cret', 'Unresolved alias (the anchor must be set before the alias)'],
  ['cluster: a\ntoken: |s3cret', 'line 2: Block scalar header includes extra characters'],
  ['cluster: "\\s3cret"', 'line 1: Invalid escape sequence'],
])('a problem of YAML does not repeat the text, which may be a secret (regression): %s', (text, problem) => {
  expect(parseConfig(text, agentSettings()).problems).toEqual([problem]);
});

it('names the line of an error of the syntax', () => {
  const { problems } = parseConfig('cluster: a\nload: [a\nlisten: 1\n', agentSettings());
  expect(problems).toEqual([expect.stringMatching(/^line 3: /)]);
});
