import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { textOfBytes } from '../../../src/kvstore/codec/bytes.ts';
import { encodeClusterConfig } from '../../../src/kvstore/codec/cluster-config.ts';
import { MESH_RESOURCES, syncedKey } from '../../../src/kvstore/codec/keys.ts';
import { encodeTimestamp } from '../../../src/kvstore/codec/timestamp.ts';
import { temporaryFolder } from '../../agent/support/temporary-folder.ts';
import { freePort } from '../../base/support/free-port.ts';
import { until } from '../../base/support/until.ts';
import { type CommandResult, dpcache } from '../../cli/support/run.ts';
import { type CertificateFiles, TestAuthority } from '../../kvstore/etcd/support/certificates.ts';
import { EtcdProcess, isOpen, startEtcd } from '../../kvstore/etcd/support/etcd-process.ts';

const ROOT = 'root:root';
const CONFIG =
  textOfBytes(encodeClusterConfig({ id: 7, capabilities: { syncedCanaries: true, cached: false } })) ?? '';

let authority: TestAuthority;
let stranger: TestAuthority;
/** Requires client certificates. */
let secured: EtcdProcess;
/** Requires users. */
let guarded: EtcdProcess;
/** Has an expired certificate. */
let expired: EtcdProcess;
/** Requires neither. Tests change its keys. */
let open: EtcdProcess;
let client: CertificateFiles;

async function putMesh(etcd: EtcdProcess, heartbeatAt: number): Promise<void> {
  await etcd.ctl(['put', 'cilium/.heartbeat', textOfBytes(encodeTimestamp(heartbeatAt)) ?? '']);
  await etcd.ctl(['put', 'cilium/cluster-config/baltic', CONFIG]);
  for (const resource of MESH_RESOURCES.filter((each) => each !== 'endpointslices'))
    await etcd.ctl(['put', syncedKey('baltic', resource), 'now']);
  await etcd.ctl(['put', 'cilium/state/nodes/v1/baltic/n1', '{}']);
  await etcd.ctl(['put', 'cilium/state/nodes/v1/baltic/n2', '{}']);
}

beforeAll(async () => {
  authority = new TestAuthority('test authority');
  stranger = new TestAuthority('another authority');
  client = authority.issue('client', 100);
  const tls = { ca: authority.ca, ...authority.issue('server', 100) };
  const ports = { client: await freePort(), peer: await freePort() };
  expired = new EtcdProcess('old', ports, { tls: { ca: authority.ca, ...authority.issue('late', -1) } });
  const [[first], [second], [third]] = await Promise.all([
    startEtcd(1, { tls, flags: ['--client-cert-auth'] }),
    startEtcd(1, { flags: ['--bcrypt-cost', '4'] }),
    startEtcd(),
    expired.start({ waitHealthy: false }),
  ]);
  if (first === undefined || second === undefined || third === undefined) throw new Error('no etcd');
  secured = first;
  guarded = second;
  open = third;
  await until('the third etcd listens', () => isOpen(ports.client));
  await Promise.all([secured, guarded, open].map((etcd) => putMesh(etcd, Date.now())));
  await guarded.ctl(['user', 'add', ROOT]);
  await guarded.ctl(['user', 'grant-role', 'root', 'root']);
  await guarded.ctl(['user', 'add', 'remote:secret']);
  await guarded.ctl(['role', 'add', 'remote']);
  for (const prefix of [
    'cilium/.heartbeat',
    'cilium/cluster-config/',
    'cilium/synced/',
    'cilium/state/nodes/',
  ])
    await guarded.ctl(['role', 'grant-permission', 'remote', 'read', '--prefix', prefix]);
  for (const prefix of ['services', 'identities'])
    await guarded.ctl(['role', 'grant-permission', 'remote', 'read', '--prefix', `cilium/state/${prefix}/`]);
  await guarded.ctl(['user', 'grant-role', 'remote', 'remote']);
  await guarded.ctl(['auth', 'enable']);
  guarded.user = ROOT;
});

afterAll(async () => {
  await Promise.all([secured, guarded, expired, open].map((etcd) => etcd.dispose()));
});

interface Configured {
  readonly url?: string;
  readonly ca?: string;
  readonly files?: CertificateFiles;
}

/** Returns the configuration of the etcd with TLS, with changes. */
function configuration({ url = secured.url, ca = authority.ca, files = client }: Configured = {}): string {
  return `endpoints: ["${url}"]
trusted-ca-file: ${ca}
cert-file: ${files.certificate}
key-file: ${files.key}
`;
}

function withUser(password = 'secret'): string {
  return `endpoints: ["${guarded.url}"]\nusername: remote\npassword: ${password}\n`;
}

interface Report {
  readonly clusters: readonly {
    readonly cluster: string;
    readonly local: boolean;
    readonly passed: boolean;
    readonly checks: readonly {
      readonly step: string;
      readonly subject: string;
      readonly status: string;
      readonly text: string;
      readonly remedy?: string;
    }[];
  }[];
}

function check(files: Readonly<Record<string, string>>, ...words: string[]): Promise<CommandResult> {
  const folder = temporaryFolder(files);
  return dpcache('clustermesh', 'troubleshoot', '--clustermesh-config', folder, ...words);
}

/** Returns the checks of one configuration of the cluster `baltic` that did not pass, and the names of the steps. */
async function problems(content: string): Promise<{ status: number; steps: string[]; failed: string[] }> {
  const { status, stdout } = await check({ baltic: content }, '-o', 'json');
  const { clusters } = JSON.parse(stdout) as Report;
  const checks = clusters.flatMap((cluster) => cluster.checks);
  return {
    status,
    steps: [...new Set(checks.map(({ step }) => step))],
    failed: checks
      .filter((each) => each.status !== 'ok')
      .map(({ step, subject, text, remedy }) => `${step} ${subject}: ${text}: ${remedy}`),
  };
}

describe('dpcache clustermesh troubleshoot', () => {
  it('prints a line for each check of a healthy cluster, and exits with 0', async () => {
    const { status, stdout, stderr } = await check({ baltic: configuration(), 'ca.crt': 'no configuration' });
    expect(stderr).toBe('');
    const stable = stdout
      .replaceAll(/valid to \S+/g, 'valid to DATE')
      .replaceAll(/\d+ m?s old/g, 'N s old')
      .replaceAll(secured.url, 'URL')
      .replace(/(id of etcd: )\w+/, '$1ID')
      .replace(/file \S+baltic/, 'file PATH');
    expect(stable).toBe(`cluster baltic
  ✓ file PATH: 1 endpoint
  ✓ TLS cert-file: subject CN=client; issuer CN=test authority; valid to DATE
  ✓ TCP URL: connected to 127.0.0.1
  ✓ TLS URL: subject CN=server; issuer CN=test authority; valid to DATE
  ✓ auth URL: accepted without a user
  ✓ cluster id of etcd: ID
  ✓ heartbeat cilium/.heartbeat: N s old
  ✓ cluster-config cilium/cluster-config/baltic: id 7, with canaries
  ✓ canaries cilium/synced/baltic/: complete: nodes, services, identities, ip
  ✓ right to read cilium/synced/baltic/: 4 keys
  ✓ right to read cilium/state/nodes/v1/baltic/: 2 keys
  ✓ right to read cilium/state/services/v1/baltic/: 0 keys
  ✓ right to read cilium/state/identities/v1/id/: 0 keys
  ✓ right to read cilium/state/ip/v1/default/: 0 keys
`);
    expect(status).toBe(0);
  });

  it('names the authority of the server if the configuration has another one', async () => {
    expect(await problems(configuration({ ca: stranger.ca }))).toEqual({
      status: 1,
      steps: ['file', 'tls', 'tcp'],
      failed: [
        expect.stringMatching(
          /^tls https:\S+: certificate rejected \(\w+\): subject CN=server; issuer CN=test authority; .*: set trusted-ca-file to the authority that signed/,
        ),
      ],
    });
  });

  it('reports a client certificate of another authority, although TLS 1.3 rejects it only after the handshake', async () => {
    const { status, failed } = await problems(configuration({ files: stranger.issue('client', 100) }));
    expect(failed).toEqual([
      expect.stringMatching(
        /^tls https:\S+: \S+ alert bad certificate: check that the authority of the server has signed cert-file$/,
      ),
    ]);
    expect(status).toBe(1);
  });

  it('reports expired certificates of the server and of the client, and those that expire soon', async () => {
    const server = await problems(configuration({ url: expired.url }));
    expect(server.failed).toEqual([
      expect.stringMatching(
        /^tls https:\S+: has expired: subject CN=late; .*: renew the certificate of the server$/,
      ),
    ]);
    const late = await problems(configuration({ files: authority.issue('client', -1) }));
    expect(late.failed[0]).toMatch(/^tls cert-file: has expired: subject CN=client; .*: renew cert-file$/);
    const soon = await problems(configuration({ files: authority.issue('client', 14) }));
    expect(soon.failed).toEqual([
      expect.stringMatching(/^tls cert-file: expires in 13 days: .*: renew cert-file$/),
    ]);
    expect([server.status, late.status, soon.status]).toEqual([1, 1, 0]);
  });

  it('reports a port without a server, and a server without TLS', async () => {
    const closed = await problems(configuration({ url: `https://127.0.0.1:${await freePort()}` }));
    expect(closed.failed).toEqual([expect.stringMatching(/^tcp .*: connection refused: .*: check the port/)]);
    expect(closed.steps).toEqual(['file', 'tls', 'tcp']);
    const plain = await problems(configuration({ url: guarded.url.replace('http:', 'https:') }));
    expect(plain.failed).toEqual([
      expect.stringMatching(/^tls .*: check that the port is that of an etcd with TLS/),
    ]);
    expect([closed.status, plain.status]).toEqual([1, 1]);
  });

  it('reports the remedy of a failed connection once (regression: twice)', async () => {
    const { failed, steps } = await problems(`endpoints: ["${secured.url.replace('https:', 'http:')}"]\n`);
    expect(steps).toEqual(['file', 'tcp', 'auth']);
    expect(failed).toEqual([
      expect.stringMatching(
        /^auth .*: check that etcd runs at the endpoint with this scheme \(http or https\)/,
      ),
    ]);
    expect(failed[0]?.match(/check that etcd runs/g)).toHaveLength(1);
  });

  it('reports an endpoint of IPv6 without a server; its address needs no DNS', async () => {
    const place = `[::1]:${await freePort()}`;
    const { failed, steps } = await problems(`endpoints: ["http://${place}"]\n`);
    expect(steps).toEqual(['file', 'tcp']);
    expect(failed).toEqual([
      `tcp http://${place}: connection refused: ${place}: check the port, and that the server runs`,
    ]);
  });

  it('reports a name that DNS does not know', async () => {
    const { failed, status } = await problems(configuration({ url: 'https://baltic.invalid:2379' }));
    expect(failed).toEqual([expect.stringMatching(/^dns baltic\.invalid: .*: check the /)]);
    expect(status).toBe(1);
  });

  it('reports missing files: of the configuration, of a certificate in it, and of the local kvstore', async () => {
    const named = await problems(configuration({ ca: '/nowhere/ca.crt' }));
    expect(named.failed).toEqual([
      expect.stringMatching(/^file .*trusted-ca-file .*no such file or folder: check the file/),
    ]);
    expect(named.steps).toEqual(['file']);
    const none = await check({ baltic: configuration() }, 'adriatic');
    expect(none.stdout).toMatch(
      /^cluster adriatic\n {2}✗ file \S+adriatic: does not exist, or is not an etcd configuration/,
    );
    const own = await dpcache('clustermesh', 'troubleshoot', '--kvstore-config', '/nowhere/own');
    expect(own.stdout).toMatch(
      /^cluster default \(local\)\n {2}✗ file \/nowhere\/own: no such file or folder/,
    );
    const folder = await dpcache('clustermesh', 'troubleshoot', '--clustermesh-config', '/nowhere');
    expect(folder.stderr).toMatch(/^dpcache: --clustermesh-config \/nowhere: no such file or folder/);
    expect([named.status, none.status, own.status, folder.status]).toEqual([1, 1, 1, 1]);
  });

  it('reports a cluster without a configuration of its name; the local one needs none', async () => {
    const folder = temporaryFolder({ adriatic: configuration(), own: configuration() });
    const mesh = [
      '--clustermesh-config',
      folder,
      '--kvstore-config',
      join(folder, 'own'),
      '--cluster',
      'own',
    ];
    const { status, stdout } = await dpcache('clustermesh', 'troubleshoot', ...mesh, '-o', 'json');
    const { clusters } = JSON.parse(stdout) as Report;
    const found = clusters.map(({ cluster, local, passed, checks }) => {
      const config = checks.find(({ step }) => step === 'cluster-config');
      return [cluster, local, passed, config?.status, config?.text];
    });
    const own = clusters[0]?.checks.filter(({ step }) => step === 'read').map(({ subject }) => subject);
    expect(own).toEqual([
      'cilium/state/nodes/v1/own/',
      'cilium/state/identities/v1/id/',
      'cilium/state/ip/v1/default/',
    ]);
    expect(found).toEqual([
      ['own', true, true, 'warning', 'does not exist'],
      ['adriatic', false, false, 'failed', 'does not exist'],
    ]);
    expect(status).toBe(1);
  });

  it('reports the one prefix that the user may not read, and a wrong password', async () => {
    const right = await problems(withUser());
    expect(right.failed).toEqual([
      expect.stringMatching(
        /^read cilium\/state\/ip\/v1\/default\/: .*permission denied.*: grant read on the prefix cilium\/state\/ip\/v1\/default\/ to user remote$/,
      ),
    ]);
    const password = await problems(withUser('wrong'));
    expect(password.failed).toEqual([
      expect.stringMatching(
        /^auth http:\S+: etcd at [\d.:]+ rejects the user or the password: check username and password of the configuration$/,
      ),
    ]);
    expect(password.steps).toEqual(['file', 'tcp', 'auth']);
    expect([right.status, password.status]).toEqual([1, 1]);
  });

  it('reports a heartbeat that is missing, too old, or in the future', async () => {
    const config = `endpoints: ["${open.url}"]\n`;
    const beat = async (secondsAgo: number): Promise<{ status: number; failed: string[] }> => {
      const time = textOfBytes(encodeTimestamp(Date.now() - secondsAgo * 1000)) ?? '';
      await open.ctl(['put', 'cilium/.heartbeat', time]);
      return problems(config);
    };
    const old = await beat(150);
    expect(old.failed).toEqual([expect.stringMatching(/^heartbeat \S+: 2 min old: check that the cluster/)]);
    const ahead = await beat(-300);
    expect(ahead.failed).toEqual([
      expect.stringMatching(/^heartbeat \S+: \d min in the future: check the clocks/),
    ]);
    await open.ctl(['del', 'cilium/.heartbeat']);
    const missing = await problems(config);
    expect(missing.failed).toEqual([expect.stringMatching(/^heartbeat \S+: does not exist: check that/)]);
    const recent = await beat(100);
    expect(recent.failed).toEqual([]);
    expect([old.status, ahead.status, missing.status, recent.status]).toEqual([1, 0, 1, 0]);
  });

  it('reports endpoints of several etcds, and one of several that does not answer', async () => {
    const mixed = await problems(
      `endpoints: ["${open.url}", "${guarded.url}"]\nusername: root\npassword: root\n`,
    );
    expect(mixed.failed).toEqual([
      expect.stringMatching(
        /^cluster-id etcd: several etcds: \S+ has \w+, \S+ has \w+: name only the members of one/,
      ),
    ]);
    const half = await problems(`endpoints: ["http://127.0.0.1:${await freePort()}", "${open.url}"]\n`);
    expect(half.failed).toEqual([expect.stringMatching(/^tcp .*connection refused/)]);
    expect(half.steps).toContain('read');
    expect([mixed.status, half.status]).toEqual([1, 1]);
  });

  it('checks the keys that agents read: of a copy below cilium/cache, and slices if there is nothing else', async () => {
    const capabilities = {
      syncedCanaries: true,
      cached: true,
      endpointSlicesExportMode: 'endpointslices-only',
    } as const;
    const value = textOfBytes(encodeClusterConfig({ id: 8, capabilities })) ?? '';
    await open.ctl(['put', 'cilium/cluster-config/caspian', value]);
    for (const resource of ['nodes', 'identities', 'ip'] as const)
      await open.ctl(['put', syncedKey('caspian', resource, 'cache'), 'now']);
    const { status, stdout } = await check({ caspian: `endpoints: ["${open.url}"]\n` }, '-o', 'json');
    const checks = (JSON.parse(stdout) as Report).clusters.flatMap((cluster) => cluster.checks);
    expect(checks.find(({ step }) => step === 'canaries')).toMatchObject({
      status: 'failed',
      text: 'missing: endpointslices',
    });
    expect(checks.filter(({ step }) => step === 'read').map(({ subject }) => subject)).toEqual([
      'cilium/synced/caspian/',
      'cilium/cache/nodes/v1/caspian/',
      'cilium/cache/endpointslices/v1/caspian/',
      'cilium/cache/identities/v1/caspian/id/',
      'cilium/cache/ip/v1/caspian/',
    ]);
    expect(status).toBe(1);
  });

  it('reports a file name that is not a cluster name, and ids that two clusters share (regression: neither)', async () => {
    const value =
      textOfBytes(encodeClusterConfig({ id: 7, capabilities: { syncedCanaries: false, cached: false } })) ??
      '';
    await open.ctl(['put', 'cilium/cluster-config/caspian', value]);
    await open.ctl(['put', 'cilium/.heartbeat', textOfBytes(encodeTimestamp(Date.now())) ?? '']);
    const config = `endpoints: ["${open.url}"]\n`;
    const files = { baltic: configuration(), caspian: config, '-x': config };
    const { status, stdout } = await check(files, '--cluster', 'own', '--cluster-id', '9', '-o', 'json');
    const failed = (JSON.parse(stdout) as Report).clusters.flatMap(({ cluster, checks }) =>
      checks
        .filter((each) => each.status === 'failed')
        .map(({ step, text }) => `${cluster}: ${step}: ${text}`),
    );
    expect(failed).toEqual([
      expect.stringMatching(/^-x: file: the file name is not a valid cluster name/),
      'baltic: cluster-config: id 7 is also that of caspian',
      'caspian: cluster-config: id 7 is also that of baltic',
    ]);
    expect(status).toBe(1);
    const local = await check({ caspian: config }, '--cluster', 'own', '--cluster-id', '7');
    expect(local.stdout).toContain(
      '✗ cluster-config cilium/cluster-config/caspian: id 7 is also that of own:',
    );
  });

  it('accepts id 0 of several clusters, as agents do (regression: failed as a shared id)', async () => {
    const value = textOfBytes(
      encodeClusterConfig({ id: 0, capabilities: { syncedCanaries: false, cached: false } }),
    );
    for (const name of ['adria', 'caspian'])
      await open.ctl(['put', `cilium/cluster-config/${name}`, value ?? '']);
    const config = `endpoints: ["${open.url}"]\n`;
    const { stdout } = await check({ adria: config, caspian: config });
    expect(stdout).toMatch(/id 0/);
    expect(stdout).not.toMatch(/is also that of/);
  });

  it('rejects a cluster without a configuration, and a command line without one', async () => {
    const empty = await check({ 'ca.crt': 'no configuration' });
    expect(empty).toMatchObject({ status: 1, stdout: '' });
    expect(empty.stderr).toMatch(/^dpcache: --clustermesh-config \S+: has no etcd configuration/);
    const unnamed = await dpcache('clustermesh', 'troubleshoot', '--socket', '/nowhere/a.sock');
    expect(unnamed).toMatchObject({ status: 1, stdout: '' });
    expect(unnamed.stderr).toMatch(/no process listens on this socket; set its socket with --socket, or add/);
  });
});
