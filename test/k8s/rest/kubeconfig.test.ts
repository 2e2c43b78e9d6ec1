import { chmodSync, existsSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { inspect } from 'node:util';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { inClusterAccess, isInCluster } from '../../../src/k8s/rest/in-cluster.ts';
import { KubeconfigError, parseKubeconfig, readKubeconfig } from '../../../src/k8s/rest/kubeconfig.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { until } from '../../base/support/until.ts';

const PEM = '-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n';
const ENCODED = Buffer.from(PEM).toString('base64');

let folder = '';
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'dpcache-kubeconfig-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const EXEC = { apiVersion: 'client.authentication.k8s.io/v1', command: './plugin' };

interface Parts {
  readonly cluster?: object;
  readonly user?: object;
  readonly context?: object;
}

function text({ cluster = {}, user = {}, context = {} }: Parts = {}): string {
  return JSON.stringify({
    'current-context': 'here',
    clusters: [
      { name: 'other', cluster: { server: 'https://other' } },
      { name: 'c', cluster: { server: 'https://api:6443', ...cluster } },
    ],
    users: [{ name: 'u', user }],
    contexts: [{ name: 'here', context: { cluster: 'c', user: 'u', ...context } }],
  });
}

function parse(
  parts: Parts = {},
  clock: ManualClock = new ManualClock(),
): ReturnType<typeof parseKubeconfig> {
  return parseKubeconfig(text(parts), join(folder, 'config'), { clock });
}

function mistakes(parts: Parts | string): readonly string[] {
  try {
    parseKubeconfig(typeof parts === 'string' ? parts : text(parts), '/k/config');
  } catch (error) {
    if (error instanceof KubeconfigError)
      return error.rejections.map(({ field, reason }) => `${field}: ${reason}`);
    throw error;
  }
  return [];
}

describe('a kubeconfig', () => {
  it('contains server, namespace, authority and server name of its context', () => {
    const cluster = {
      'certificate-authority-data': ENCODED,
      'tls-server-name': 'kube.test',
      'disable-compression': true,
    };
    const read = parse({ cluster, context: { namespace: 'shop' } });
    expect(read.server).toBe('https://api:6443/');
    expect(read).toMatchObject({
      context: 'here',
      cluster: 'c',
      user: 'u',
      namespace: 'shop',
      serverName: 'kube.test',
      disableCompression: true,
    });
    expect(read.ca).toEqual({ data: Buffer.from(PEM) });
  });

  it('may omit the scheme, the namespace and the authority', () => {
    const serverOf = (server: string): string => parse({ cluster: { server } }).server;
    expect(serverOf('api:6443')).toBe('https://api:6443/');
    expect(serverOf('http://localhost:8001')).toBe('http://localhost:8001/');
    const { ca, serverName, insecureSkipVerify, namespace } = parse();
    expect({ ca, serverName, insecureSkipVerify, namespace }).toEqual({
      ca: undefined,
      serverName: undefined,
      insecureSkipVerify: false,
      namespace: 'default',
    });
  });

  it('may have empty or null optional fields, which are absent (regression: an empty server name and namespace)', () => {
    const cluster = { 'tls-server-name': '', 'proxy-url': '', 'certificate-authority-data': null };
    const exec = { ...EXEC, args: null, env: null, installHint: null };
    const read = parse({ cluster, context: { namespace: '' }, user: { exec, as: '' } });
    expect([read.serverName, read.namespace, read.ca]).toEqual([undefined, 'default', undefined]);
  });

  it('may have a context without a user, which is anonymous (regression: rejected)', async () => {
    for (const user of ['', undefined]) {
      const read = parse({ cluster: { server: 'http://127.0.0.1:8001' }, context: { user } });
      expect(read.user).toBe('');
      expect(await read.credentials.authorization()).toBeUndefined();
      expect(await read.credentials.certificate()).toBeUndefined();
    }
  });

  it('is read from a file, relative paths from its folder, and another context by name', async () => {
    const path = join(folder, 'config');
    writeFileSync(path, text({ cluster: { 'certificate-authority': 'pki/ca.crt' } }));
    const read = await readKubeconfig(path);
    expect(read.ca).toEqual({ file: join(folder, 'pki/ca.crt') });
    await expect(readKubeconfig(path, { context: 'there' })).rejects.toThrow(
      /no element is named "there": found here/,
    );
    await expect(readKubeconfig(join(folder, 'no'))).rejects.toThrow(
      /cannot read kubeconfig .*no such file or folder/,
    );
  });

  it.each<[string, Parts, readonly string[]]>([
    ['a proxy', { cluster: { 'proxy-url': 'http://p' } }, ['clusters[1].cluster.proxy-url: unsupported']],
    ['impersonation', { user: { as: 'root' } }, ['users[0].user.as: unsupported']],
    ['an old plugin', { user: { 'auth-provider': {} } }, ['users[0].user.auth-provider: unsupported']],
    [
      'a server of another scheme',
      { cluster: { server: 'ftp://x' } },
      ['clusters[1].cluster.server: invalid-url'],
    ],
    [
      'a certificate alone',
      { user: { 'client-certificate': 'c' } },
      ['users[0].user.client-key: missing-field'],
    ],
    ['a key alone', { user: { 'client-key': 'k' } }, ['users[0].user.client-certificate: missing-field']],
    [
      'a plugin that asks a person',
      { user: { exec: { ...EXEC, interactiveMode: 'Always' } } },
      ['users[0].user.exec.interactiveMode: unsupported'],
    ],
    [
      'what is no PEM',
      { cluster: { 'certificate-authority-data': 'AAAA' } },
      ['clusters[1].cluster.certificate-authority-data: invalid-pem'],
    ],
    [
      'an authority that is not looked at',
      { cluster: { 'certificate-authority': 'x', 'insecure-skip-tls-verify': true } },
      ['clusters[1].cluster.insecure-skip-tls-verify: contradiction'],
    ],
    [
      'several mistakes at once',
      { cluster: { server: 7, 'proxy-url': 'p' }, user: { token: 5, exec: { command: '' } } },
      [
        'clusters[1].cluster.proxy-url: unsupported',
        'clusters[1].cluster.server: wrong-type',
        'users[0].user.exec.apiVersion: missing-field',
        'users[0].user.exec.command: missing-field',
      ],
    ],
    ['a user who is not there', { context: { user: 'nobody' } }, ['users: unknown-name']],
  ])('is rejected by field for %s', (_, parts, expected) => {
    expect(mistakes(parts)).toEqual(expected);
  });

  it('reports one mistake once', () => {
    const exec = { ...EXEC, apiVersion: 'client.authentication.k8s.io/v1alpha1' };
    expect(mistakes({ user: { exec } })).toEqual(['users[0].user.exec.apiVersion: unknown-value']);
    const config = {
      'current-context': 'here',
      clusters: [{ name: 'c', cluster: 'https://api:6443' }],
      users: [{ name: 'u', user: {} }],
      contexts: [{ name: 'here', context: { cluster: 'c', user: 'u' } }],
    };
    expect(mistakes(JSON.stringify(config))).toEqual(['clusters[0].cluster: wrong-type']);
  });

  it('that is not YAML, or empty, is rejected with a message', () => {
    expect(() => parseKubeconfig('{', '/k/config')).toThrow(/kubeconfig \/k\/config is not YAML/);
    expect(mistakes('')).toEqual(['kubeconfig: wrong-type']);
    expect(mistakes('{}')).toEqual(['current-context: missing-field']);
  });

  it.each([
    ['users: [{user: {token: s3cret, token: s3cret2}}]', 'Map keys must be unique at line 1, column 32'],
    ['password: "\\s3cret"', 'Invalid escape sequence at line 1, column 12'],
    ['password: |s3cret', 'Block scalar header includes extra characters at line 1, column 12'],
  ])(
    'that is not YAML is rejected without its lines, because they may be secrets: %s',
    (content, problem) => {
      const error: unknown = (() => {
        try {
          return parseKubeconfig(content, 'config');
        } catch (thrown) {
          return thrown;
        }
      })();
      expect(error).toMatchObject({ message: `kubeconfig config is not YAML: ${problem}` });
      expect(inspect(error)).not.toContain('s3cret');
    },
  );

  it('with a user in the URL of the server uses the URL without it (regression: the status had the password)', () => {
    const server = 'https://admin:s3cret@api:6443/prefix?token=s3cret#s3cret';
    expect(parse({ cluster: { server } }).server).toBe('https://api:6443/prefix');
    expect(() => parse({ cluster: { server: 'https://admin:s3cret@api:99999' } })).toThrow(
      'server "https://api:99999": must be a URL',
    );
  });

  it('never shows a secret in its messages', () => {
    const user = { token: ['s3cret'], 'client-key-data': 's3cret', 'client-certificate-data': ENCODED };
    expect(() => parse({ user })).toThrow(KubeconfigError);
    expect(() => parse({ user })).not.toThrow(/s3cret/);
  });
});

describe('credentials', () => {
  it('are a token, or a name and password', async () => {
    expect(await parse({ user: { token: 't' } }).credentials.authorization()).toBe('Bearer t');
    const basic = await parse({ user: { username: 'u', password: 'p' } }).credentials.authorization();
    expect(basic).toBe(`Basic ${Buffer.from('u:p').toString('base64')}`);
    expect(await parse({}).credentials.authorization()).toBeUndefined();
  });

  it('may be a certificate and its key, as files or data, with or without a token', async () => {
    const files = { 'client-certificate': 'client.crt', 'client-key': 'client.key' };
    const shown = {
      certificate: { file: join(folder, 'client.crt') },
      key: { file: join(folder, 'client.key') },
    };
    for (const user of [files, { ...files, token: 't' }, { ...files, tokenFile: 'token' }])
      expect(await parse({ user }).credentials.certificate()).toEqual(shown);
    const data = { 'client-certificate-data': ENCODED, 'client-key-data': ENCODED };
    const pem = { data: Buffer.from(PEM) };
    expect(await parse({ user: { ...files, ...data } }).credentials.certificate()).toEqual({
      certificate: pem,
      key: pem,
    });
    expect(await parse({ user: { token: 't' } }).credentials.certificate()).toBeUndefined();
  });

  it('follow a token file that is renewed, even if it is empty, invalid or missing for a moment', async () => {
    const clock = new ManualClock();
    const file = join(folder, 'token');
    const { credentials } = parse({ user: { tokenFile: 'token' } }, clock);
    await expect(credentials.authorization()).rejects.toThrow(
      /cannot read a token from .*token: no such file or folder/,
    );
    writeFileSync(file, 't\nu');
    await expect(credentials.authorization()).rejects.toThrow(
      /cannot read a token from .*: .* invalid character/,
    );
    writeFileSync(file, 'one\n');
    expect(await credentials.authorization()).toBe('Bearer one');
    writeFileSync(file, 'two');
    expect(await credentials.authorization()).toBe('Bearer one');
    clock.advance(10_000);
    expect(await credentials.authorization()).toBe('Bearer two');
    writeFileSync(file, 'three');
    credentials.refused('Bearer two');
    expect(await credentials.authorization()).toBe('Bearer three');
    const write = (text: string) => () => writeFileSync(file, text);
    for (const spoil of [write(''), write('t\nu'), () => renameSync(file, `${file}.gone`)]) {
      spoil();
      clock.advance(10_000);
      expect(await credentials.authorization()).toBe('Bearer three');
    }
  });

  function plugin(script: string): void {
    writeFileSync(join(folder, 'plugin'), `#!/bin/sh\n${script}\n`);
    chmodSync(join(folder, 'plugin'), 0o755);
  }
  const says = (status: object): string =>
    `echo run >>runs; echo '${JSON.stringify({ kind: 'ExecCredential', apiVersion: EXEC.apiVersion, status })}'`;

  it('are read from a plugin, which is run again when they expire or are refused', async () => {
    const clock = new ManualClock();
    const status = { token: 'tN', expirationTimestamp: new Date(clock.wallTime() + 60_000).toISOString() };
    plugin(`${says(status)} | sed "s/tN/t$(wc -l <runs | tr -d ' ')/"`);
    const { credentials } = parse({ user: { exec: EXEC } }, clock);
    expect(await Promise.all([credentials.authorization(), credentials.authorization()])).toEqual([
      'Bearer t1',
      'Bearer t1',
    ]);
    clock.advance(60_000);
    // Callers that find the same expired credential share the next run.
    expect(await Promise.all([credentials.authorization(), credentials.authorization()])).toEqual([
      'Bearer t2',
      'Bearer t2',
    ]);
    credentials.refused('Bearer t2');
    expect(await credentials.authorization()).toBe('Bearer t3');
  });

  it('of a plugin may be a certificate; it receives the cluster if the kubeconfig requests it', async () => {
    plugin(
      `printf '%s' "$KUBERNETES_EXEC_INFO" >info; ${says({ clientCertificateData: PEM, clientKeyData: PEM })}`.replaceAll(
        '\\n',
        '\\\\n',
      ),
    );
    const { credentials } = parse({ user: { exec: { ...EXEC, provideClusterInfo: true } } });
    expect(await credentials.certificate()).toEqual({
      certificate: { data: Buffer.from(PEM) },
      key: { data: Buffer.from(PEM) },
    });
    expect(await credentials.authorization()).toBeUndefined();
    const told = JSON.parse(readFileSync(join(folder, 'info'), 'utf8'));
    expect(told.spec).toEqual({ interactive: false, cluster: { server: 'https://api:6443' } });
  });

  it('of a plugin that receives the cluster: its authority is read from its file, its extension is the configuration (regression: missing)', async () => {
    plugin(`printf '%s' "$KUBERNETES_EXEC_INFO" >info; ${says({ token: 't' })}`);
    writeFileSync(join(folder, 'ca.pem'), PEM);
    const config = { audience: 'a' };
    const cluster = {
      'certificate-authority': 'ca.pem',
      'tls-server-name': 'kube.test',
      'disable-compression': true,
      extensions: [
        { name: 'other', extension: {} },
        { name: 'client.authentication.k8s.io/exec', extension: config },
      ],
    };
    const { credentials } = parse({ cluster, user: { exec: { ...EXEC, provideClusterInfo: true } } });
    await credentials.authorization();
    expect(JSON.parse(readFileSync(join(folder, 'info'), 'utf8')).spec.cluster).toEqual({
      server: 'https://api:6443',
      'tls-server-name': 'kube.test',
      'disable-compression': true,
      'certificate-authority-data': ENCODED,
      config,
    });
    rmSync(join(folder, 'ca.pem'));
    credentials.refused('Bearer t');
    await expect(credentials.authorization()).rejects.toThrow(/cannot read .*ca.pem/);
  });

  it('of a plugin may depend on its arguments and environment', async () => {
    plugin(`TOKEN="$1-$2-$ONE-$TWO"; ${says({ token: 'TOKEN' })} | sed "s/TOKEN/$TOKEN/"`);
    const env = [{ name: 'ONE', value: '1' }, { name: 'TWO', value: '' }, { value: 'x' }, { name: 'y' }];
    const user = { exec: { ...EXEC, args: ['a', 'b'], env: env.slice(0, 2) } };
    expect(await parse({ user }).credentials.authorization()).toBe('Bearer a-b-1-');
    expect(mistakes({ user: { exec: { ...EXEC, env } } })).not.toEqual([]);
  });

  it.each([
    ['fails', 'echo no access >&2; exit 3', /the plugin .*plugin failed: exit status 3: no access$/],
    ['is killed', 'kill -9 $$', /the plugin .*plugin failed: ended by SIGKILL$/],
    ['says nothing', 'true', /is not JSON/],
    ['prints more than 1 MiB', 'head -c 1048577 /dev/zero', /more than 1 MiB in its standard output/],
    ['says something else', 'echo {}', /not an ExecCredential/],
    [
      'answers in another version',
      'echo \'{"kind":"ExecCredential","apiVersion":"x/v9"}\'',
      /failed: its output has another apiVersion than the kubeconfig, client\.authentication\.k8s\.io\/v1$/,
    ],
    ['gives nothing', says({}), /no token and no certificate/],
    ['gives a time that is none', says({ token: 't', expirationTimestamp: 'soon' }), /not an RFC 3339 time/],
    [
      'gives a day that does not exist',
      says({ token: 't', expirationTimestamp: '2099-02-30T00:00:00Z' }),
      /not an RFC 3339 time/,
    ],
  ])('of a plugin that %s are rejected with a clear message', async (_, script, message) => {
    plugin(script);
    await expect(parse({ user: { exec: EXEC } }).credentials.authorization()).rejects.toThrow(message);
  });

  it('of a plugin that fails are rejected without its arguments (regression: all of them)', async () => {
    plugin('exit 3');
    const exec = { ...EXEC, args: ['--token=s3cret'] };
    const error: unknown = await parse({ user: { exec } })
      .credentials.authorization()
      .catch((thrown) => thrown);
    expect(inspect(error)).toMatch(/failed: exit status 3\b/);
    expect(inspect(error)).not.toContain('s3cret');
  });

  it('of a plugin that prints without end, and ignores SIGTERM, fail immediately (regression: after a minute)', async () => {
    const clock = new ManualClock();
    plugin('trap "" TERM PIPE; while :; do echo "$0"; done');
    await expect(parse({ user: { exec: EXEC } }, clock).credentials.authorization()).rejects.toThrow(
      /the plugin .*plugin failed: more than 1 MiB in its standard output/,
    );
    expect(clock.pending).toBe(0);
  });

  it('of a plugin that does not end, and ignores SIGTERM, fail after a minute', async () => {
    const clock = new ManualClock();
    plugin('trap "" TERM; echo $$ >pid; exec sleep 600');
    const { credentials } = parse({ user: { exec: EXEC } }, clock);
    const given = credentials.authorization();
    const pid = (): number =>
      Number(existsSync(join(folder, 'pid')) && readFileSync(join(folder, 'pid'), 'utf8'));
    await until('the plugin runs', () => pid() > 0);
    clock.advance(60_000);
    await expect(given).rejects.toThrow(/the plugin .*plugin failed: still running after 60 s/);
    await until('the plugin is gone', () => {
      try {
        return !process.kill(pid(), 0);
      } catch {
        return true;
      }
    });
    plugin(says({ token: 'later' }));
    expect(await credentials.authorization()).toBe('Bearer later');
  });

  it('of a plugin that does not end fail with all processes that it has started (regression: one stayed for each minute)', async () => {
    const clock = new ManualClock();
    plugin('sleep 600 & echo $! >pid; wait');
    const given = parse({ user: { exec: EXEC } }, clock).credentials.authorization();
    const pid = (): number =>
      Number(existsSync(join(folder, 'pid')) && readFileSync(join(folder, 'pid'), 'utf8'));
    await until('the plugin runs', () => pid() > 0);
    clock.advance(60_000);
    await expect(given).rejects.toThrow(/still running after 60 s/);
    await until('its process is gone', () => {
      try {
        return readFileSync(`/proc/${pid()}/stat`, 'utf8').includes(') Z '); // not reaped yet
      } catch {
        return true;
      }
    });
  });

  it('of a plugin stay if an earlier credential is refused late (regression: each of many requests ran the plugin)', async () => {
    plugin(`${says({ token: 'tN' })} | sed "s/tN/t$(wc -l <runs | tr -d ' ')/"`);
    const { credentials } = parse({ user: { exec: EXEC } });
    const first = await credentials.authorization();
    credentials.refused(first);
    const running = credentials.authorization();
    credentials.refused(first);
    expect(await Promise.all([credentials.authorization(), running])).toEqual(['Bearer t2', 'Bearer t2']);
    credentials.refused(first);
    expect(await credentials.authorization()).toBe('Bearer t2');
    credentials.refused('Bearer t2');
    expect(await credentials.authorization()).toBe('Bearer t3');
  });

  it('of a plugin stay if an earlier certificate is refused late (regression: each connection ran the plugin)', async () => {
    const status = { clientCertificateData: PEM, clientKeyData: PEM };
    plugin(says(status).replaceAll('\\n', '\\\\n'));
    const { credentials } = parse({ user: { exec: EXEC } });
    const [first, again] = [await credentials.certificate(), await credentials.certificate()];
    expect(again).toBe(first);
    credentials.refused(undefined, first);
    const second = await credentials.certificate();
    expect(second).not.toBe(first);
    credentials.refused(undefined, first);
    expect(await credentials.certificate()).toBe(second);
    expect(readFileSync(join(folder, 'runs'), 'utf8')).toBe('run\nrun\n');
  });

  it('with a token that no header can contain are rejected by field (regression: each request failed without its name)', async () => {
    for (const token of ['t\n', 't\nu', 't\u2026']) {
      expect(mistakes({ user: { token } })).toEqual(['users[0].user.token: invalid-token']);
      plugin(says({ token }).replaceAll('\\n', '\\\\n'));
      const { credentials } = parse({ user: { exec: EXEC } });
      await expect(credentials.authorization()).rejects.toThrow(/plugin.*token/);
    }
  });

  it('of a plugin that is not installed fail with its hint', async () => {
    const user = { exec: { ...EXEC, command: 'no-such-plugin', installHint: 'get it' } };
    await expect(parse({ user }).credentials.authorization()).rejects.toThrow(
      /no such file or folder.*get it/,
    );
  });
});

describe('in a pod', () => {
  it('the service account is used, and its token is read again when it is rotated', async () => {
    const env = { KUBERNETES_SERVICE_HOST: 'fd00::1', KUBERNETES_SERVICE_PORT: '6443' };
    expect(isInCluster({ folder, env })).toBe(false);
    expect(() => inClusterAccess({ folder, env })).toThrow(/not in a pod with a service account/);
    writeFileSync(join(folder, 'token'), 'pod');
    expect(isInCluster({ folder, env: {} })).toBe(false);
    const access = inClusterAccess({ folder, env });
    expect(access.server).toBe('https://[fd00::1]:6443/');
    expect(access.ca).toEqual({ file: join(folder, 'ca.crt') });
    expect(await access.credentials.authorization()).toBe('Bearer pod');
  });
});
