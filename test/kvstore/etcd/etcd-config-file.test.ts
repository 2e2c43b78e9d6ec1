import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, describe, expect, it, vi } from 'vitest';
import { parse } from 'yaml';
import { messageOf } from '../../../src/base/failure.ts';
import { EtcdBackend } from '../../../src/kvstore/etcd/etcd-backend.ts';
import { type EtcdConfig, EtcdConfigError } from '../../../src/kvstore/etcd/etcd-config.ts';
import { loadEtcdConfig, loadEtcdConfigFile } from '../../../src/kvstore/etcd/etcd-config-file.ts';
import { leastCpuTime } from '../../base/support/cpu-time.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { spoiltBytes, spoiltJson } from '../../base/support/spoilt-json.ts';
import { until } from '../../base/support/until.ts';
import { TestAuthority } from './support/certificates.ts';

const folder = mkdtempSync(join(tmpdir(), 'etcd-config-'));
afterAll(() => rmSync(folder, { recursive: true }));

function file(name: string, content: string): string {
  const path = join(folder, name);
  writeFileSync(path, content);
  return path;
}

const authority = new TestAuthority('etcd-config-file');
const { ca } = authority;
const { certificate: cert, key } = authority.issue('client');
const other = authority.issue('client');
const garbage = file('garbage.pem', '-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n');
const TLS = 'endpoints: [https://a:1]\n';

describe('an etcd configuration file', () => {
  it('of a Cilium clustermesh is read with its certificates', async () => {
    const { config, files, parts } = await loadEtcdConfig(
      `endpoints:\n- https://a.mesh.cilium.io:2379\ntrusted-ca-file: ${ca}\nkey-file: ${key}\ncert-file: ${cert}\n`,
    );
    expect(config).toMatchObject({
      endpoints: ['https://a.mesh.cilium.io:2379'],
      tls: {
        ca: readFileSync(ca),
        certificate: readFileSync(cert),
        key: readFileSync(key),
        insecureSkipVerify: false,
      },
      auth: undefined,
    });
    expect(files).toEqual([ca, cert, key]);
    expect(parts.slice(1)).toEqual([ca, cert, key].map((path) => readFileSync(path)));
  });

  it('may contain a user, times, and endpoints without a scheme', async () => {
    const { config } = await loadEtcdConfig(
      'endpoints: ["10.0.0.1:2379", "[fd00::1]:2379"]\nusername: u\npassword: p\ndial-timeout: 1m30s\nkeep-alive-time: 20000000000\nkeep-alive-timeout: 500ms\nnew-field: 1\n',
    );
    expect(config).toMatchObject({
      endpoints: ['http://10.0.0.1:2379', 'http://[fd00::1]:2379'],
      tls: undefined,
      auth: { username: 'u', password: 'p' },
      deadlineMs: 90_000,
      keepAliveTimeMs: 20_000,
      keepAliveTimeoutMs: 500,
    });
  });

  it('may contain the addresses of hosts', async () => {
    const { config } = await loadEtcdConfig(
      `${TLS}cilium-host-aliases:\n- hostname: A\n  ips: [192.0.2.10, 'FD00::1']\n- hostname: b.c\n  ips: [192.0.2.11]\n`,
    );
    expect(config.hostAliases).toEqual(
      new Map([
        ['a', ['192.0.2.10', 'fd00::1']],
        ['b.c', ['192.0.2.11']],
      ]),
    );
    expect((await loadEtcdConfig(`${TLS}cilium-host-aliases: []`)).config.hostAliases?.size).toBe(0);
  });

  // The first column is the name of the test. It must not name a folder of this run.
  it.each([
    ['is not YAML: Flow sequence in block collection must be', 'endpoints: ['],
    ['must be a YAML object with fields', '[]'],
    ['endpoints []: must contain at least one URL', 'endpoints: []'],
    // Regressions: the message had the password.
    [
      'endpoints[0] "https://a:99999": must be an http or https URL',
      'endpoints: ["https://u:se/cr@et@a:99999"]',
    ],
    ['endpoints[0] "a": must have a port, such as 2379', 'endpoints: ["u:secret@a"]'],
    ['endpoints[0] 7', 'endpoints: [7]'],
    ['endpoints[0] "ftp://a:1": must be an http or https URL', 'endpoints: [ftp://a:1]'],
    ['endpoints[0] "http://": must be an http or https URL', 'endpoints: ["http://"]'],
    // Regression: without a port, the client connected to port 443.
    ['endpoints[0] "http://a": must have a port, such as 2379', 'endpoints: ["http://a"]'],
    ['endpoints[1] "[fd00::1]": must have a port, such as 2379', 'endpoints: [a:1, "[fd00::1]"]'],
    ['must use one scheme: http or https', 'endpoints: [http://a:1, https://b:1]'],
    ['username 7', 'endpoints: [a:1]\nusername: 7'],
    ['insecure-transport "yes"', 'endpoints: [a:1]\ninsecure-transport: "yes"'],
    ...['"soon"', '"in 10s"', '"10s more"', '"1.s"', '"1..5s"', '-1', 'true'].map((time) => [
      `dial-timeout ${time}: must be a duration, such as 10s`,
      `endpoints: [a:1]\ndial-timeout: ${time}`,
    ]),
    ...[
      ['[0].hostname is missing', '[{ips: [192.0.2.1]}]'],
      ['[0].ips []: must contain at least one IP address', '[{hostname: a, ips: []}]'],
      ['[0].ips[0] "a" is not a valid IP address', '[{hostname: a, ips: [a]}]'],
      ['[0].ips[0] "" is missing', '[{hostname: a, ips: [""]}]'],
      [
        '[1].hostname "a": has addresses already',
        '[{hostname: A, ips: [192.0.2.1]}, {hostname: a, ips: ["::2"]}]',
      ],
    ].map(([fault, list]) => [`cilium-host-aliases${fault}`, `${TLS}cilium-host-aliases: ${list}`]),
    ['cert-file and key-file: set both or none', `endpoints: [a:1]\ncert-file: ${cert}`],
    ['cert-file and key-file: set both', `endpoints: [a:1]\nkey-file: ${key}`],
    ['trusted-ca-file "/nowhere/ca.pem"', 'endpoints: [a:1]\ntrusted-ca-file: /nowhere/ca.pem'],
    ['contains no PEM', `endpoints: [a:1]\nca-file: ${file('half.pem', '')}`],
    ['trusted-ca-file is not a certificate', `${TLS}ca-file: ${garbage}`],
    ['cert-file and key-file: ', `${TLS}cert-file: ${garbage}\nkey-file: ${key}`],
    ['the key does not match the certificate', `${TLS}cert-file: ${cert}\nkey-file: ${other.key}`],
    ['is a folder, not a file', `${TLS}ca-file: ${folder}`],
    ['ca-file "/dev/zero" is a device, not a file', `${TLS}ca-file: /dev/zero`],
    ['is larger than 1 MiB', `${TLS}ca-file: ${file('large.pem', 'x'.repeat((1 << 20) + 1))}`],
    ['is larger than 64 KiB', `${TLS}${'#'.repeat(64 << 10)}`],
    ['has more than 4096 words', `${TLS}${'a: 1\n'.repeat(2000)}`],
    ['has a value of more than 4096 characters', `${TLS}a: ${'x'.repeat(4097)}`],
  ])('is rejected: %s', async (message, content) => {
    await expect(loadEtcdConfig(content)).rejects.toThrow(message);
  });

  it.each([
    ['*secret', 'Unresolved alias (the anchor must be set before the alias)'],
    ['|secret', 'Block scalar header includes extra characters at line 1, column 12'],
    ['a, or : {', 'Nested mappings are not allowed in compact mappings at line 1, column 11'],
  ])(
    'with a password that is not YAML is rejected without it (regression: in the log): %s',
    async (password, problem) => {
      const message = await loadEtcdConfig(`password: ${password}`).catch(messageOf);
      expect(message).toBe(`is not YAML: ${problem}`);
    },
  );

  it('may have 64 KiB, with values of 4096 characters', async () => {
    const content = `${TLS}${`#${'x'.repeat(1022)}\n`.repeat(63)}a: ${'x'.repeat(900)}`;
    const { config } = await loadEtcdConfig(`${content}${'\n'.repeat((64 << 10) - content.length)}`);
    expect(config.endpoints).toEqual(['https://a:1']);
    await expect(loadEtcdConfig(`${TLS}a: ${'x'.repeat(4096)}`)).resolves.toBeDefined();
  });

  it.each([
    ['1.25s', 1250],
    ['1h2m3s4ms', 3_723_004],
    ['1500us', 1.5],
    ['1500µs', 1.5],
    ['2500000ns', 2.5],
    ['0s', undefined],
    [0, undefined],
    [1_500_000, 1.5],
  ])('parses times like Go: %s', async (time, ms) => {
    const { config } = await loadEtcdConfig(`endpoints: [a:1]\ndial-timeout: ${time}`);
    expect(config.deadlineMs).toBe(ms);
  });

  it.each([
    ['10', 10_000],
    ['9s', 10_000],
    ['11s', 11_000],
    ['0', undefined],
  ])('pings at most every ten seconds, as gRPC for Go: %s (regression: 10 was 10 ns)', async (time, ms) => {
    const { config } = await loadEtcdConfig(`endpoints: [a:1]\nkeep-alive-time: ${time}`);
    expect(config.keepAliveTimeMs).toBe(ms);
  });

  it.each([
    ['HTTPS://a:1', 'https://a:1'], // regression: http, to the host HTTPS
    ['https://a:1/path?x#y', 'https://a:1'], // regression: the path was a part of the host
    ['http://user:secret@a:1', 'http://a:1'],
    ['http://user:sec@ret@a:1', 'http://a:1'], // regression: the host had the end of the password
    ['http://[::1]:1//', 'http://[::1]:1'],
  ])(
    'connects to the host and port of an endpoint, like clients of etcd in Go: %s',
    async (url, endpoint) => {
      const { config } = await loadEtcdConfig(`endpoints: ["${url}"]`);
      expect(config.endpoints).toEqual([endpoint]);
    },
  );

  it('of more than 64 KiB is rejected if it has fewer characters (regression: its end was ignored)', async () => {
    const comments = `# ${'é'.repeat(2000)}\n`.repeat(20);
    const path = file('large.yaml', `${TLS}${comments}username: u\n`);
    await expect(loadEtcdConfigFile(path)).rejects.toThrow('is larger than 64 KiB');
  });

  it('connects with TLS if it names an authority, unless it disables TLS', async () => {
    const read = async (more: string): Promise<EtcdConfig> =>
      (await loadEtcdConfig(`endpoints: [a:1]\ntrusted-ca-file: ${ca}\n${more}`)).config;
    expect(await read('')).toMatchObject({
      endpoints: ['https://a:1'],
      tls: { ca: readFileSync(ca), certificate: undefined, insecureSkipVerify: false },
    });
    expect((await read('insecure-skip-tls-verify: true')).tls?.insecureSkipVerify).toBe(true);
    expect(await read('insecure-transport: true')).toMatchObject({
      endpoints: ['http://a:1'],
      tls: undefined,
    });
  });

  it('does not read the files of TLS with insecure-transport', async () => {
    const { config, files } = await loadEtcdConfig(
      'endpoints: [a:1]\ntrusted-ca-file: /missing\ncert-file: /missing\ninsecure-transport: true',
    );
    expect(config).toMatchObject({ endpoints: ['http://a:1'], tls: undefined });
    expect(files).toEqual([]);
  });

  it('may contain a user without a password, and URLs that end in a slash', async () => {
    const { config } = await loadEtcdConfig('endpoints: [http://a:1/]\nusername: u');
    expect(config).toMatchObject({ endpoints: ['http://a:1'], auth: { username: 'u', password: '' } });
  });

  it('does not show an invalid password', async () => {
    const refusal = loadEtcdConfig('endpoints: [a:1]\nusername: u\npassword: [secret]');
    await expect(refusal).rejects.toThrow(/^password: /);
  });
});

/** Configurations as written by Cilium's charts, and one with all settings. */
const WRITTEN: readonly string[] = [
  'endpoints:\n- https://a.mesh.cilium.io:2379\ntrusted-ca-file: /ca\nkey-file: /key\ncert-file: /cert\n',
  '---\nendpoints:\n- http://127.0.0.1:2379\n',
  'endpoints: ["10.0.0.1:2379", "[fd00::1]:2379"]\nusername: u\npassword: p\ndial-timeout: 1m30s\nkeep-alive-time: 20000000000\ninsecure-transport: true\n',
];

describe('a damaged configuration', () => {
  const noFile = (): Promise<Buffer> => Promise.reject(new Error('there is no such file'));
  const accepted = async (content: string): Promise<EtcdConfig | undefined> => {
    try {
      return (await loadEtcdConfig(content, noFile)).config;
    } catch (error) {
      expect(error).toBeInstanceOf(EtcdConfigError);
      expect(messageOf(error).length).toBeLessThan(1024);
      return undefined;
    }
  };

  it.each([
    ['bytes flipped, left out or added', spoiltBytes(WRITTEN)],
    [
      'fields removed, duplicated, retyped, buried',
      spoiltJson(WRITTEN.map((text) => JSON.stringify(parse(text)))),
    ],
  ])('is read or rejected, never anything else: %s', async (_, spoilt) => {
    await fc.assert(
      fc.asyncProperty(spoilt, async ({ bytes }) => {
        const content = Buffer.from(bytes).toString();
        const config = await accepted(content);
        if (config === undefined) return;
        expect(config.endpoints.length).toBeGreaterThan(0);
        for (const endpoint of config.endpoints) expect(() => new URL(endpoint)).not.toThrow();
        expect(await accepted(content)).toEqual(config);
      }),
    );
  });
});

/** Texts that could take a YAML parser a long time, of the maximum length. */
const HOSTILE: readonly (readonly [string, string])[] = [
  ['distinct keys', Array.from({ length: 9000 }, (_, i) => `k${i}: 1\n`).join('')],
  ['keys of a flow', `{${Array.from({ length: 9000 }, (_, i) => `k${i}: 1,`).join('')}}`],
  ['anchors', Array.from({ length: 5000 }, (_, i) => `- &a${i} x\n`).join('')],
  ['an open quote', `a: "${'x\n'.repeat(32_000)}`],
  ...['! ', '!!str ', '[', '{', '- ', '-\n', '? ', ': ', '\n', ' \n', '%a\n', '---\n', '&a '].map(
    (text) => [text, text.repeat((64 << 10) / text.length)] as const,
  ),
];

describe('a hostile configuration', () => {
  it.each(HOSTILE)(
    'of 64 KiB is rejected at once: %j (freeze: seconds in the parser)',
    async (_what, text) => {
      for (const content of [text, text.slice(0, 4000)]) {
        const rejected = (): Promise<void> =>
          expect(loadEtcdConfig(content)).rejects.toThrow(EtcdConfigError);
        expect(await leastCpuTime(rejected, 500)).toBeLessThan(500); // at most 30 ms
      }
    },
  );
});

describe('a path that is not a file', () => {
  it('is rejected without being opened: a FIFO would wait for its writer, a device never end (freeze)', async () => {
    const fifo = join(folder, 'fifo');
    execFileSync('mkfifo', [fifo]);
    await expect(loadEtcdConfigFile(fifo)).rejects.toThrow('is a FIFO, not a file');
    await expect(loadEtcdConfigFile('/dev/zero')).rejects.toThrow('is a device, not a file');
    await expect(loadEtcdConfigFile(folder)).rejects.toThrow('is a folder, not a file');
    await expect(loadEtcdConfigFile(file('huge.yaml', '\n'.repeat(1 << 20)))).rejects.toThrow(
      'larger than 64 KiB',
    );
    const good = file('good.yaml', 'endpoints: [a:1]');
    expect((await loadEtcdConfigFile(good)).config.endpoints).toEqual(['http://a:1']);
  });
});

it('a followed file that cannot be applied is reported once, until the reason changes (regression: at each read)', async () => {
  const path = file('followed.yaml', 'endpoints: [http://127.0.0.1:1]\n');
  const clock = new ManualClock();
  const calls: string[] = [];
  const backend = await EtcdBackend.open(path, {
    clock,
    onUnusable: (reason) => calls.push(reason),
    onUsable: () => calls.push('usable'),
    onReload: () => calls.push('reload'),
  });
  let reason = 'no memory';
  const apply = vi.spyOn(backend, 'reconfigure').mockImplementation(() => {
    throw new Error(reason);
  });
  const nextRead = async (): Promise<void> => {
    const reads = apply.mock.calls.length;
    clock.advance(10_000);
    await until('the file is applied', () => apply.mock.calls.length > reads);
    await new Promise((resolve) => setImmediate(resolve));
  };
  file('followed.yaml', 'endpoints: [http://127.0.0.1:2]\n');
  for (let i = 0; i < 3; i++) await nextRead();
  expect(calls).toEqual(['no memory']);
  reason = 'no descriptor';
  await nextRead();
  apply.mockRestore();
  clock.advance(10_000);
  await until('the file is applied', () => calls.length === 4);
  expect(calls).toEqual(['no memory', 'no descriptor', 'usable', 'reload']);
  await backend.close();
});

it('open rejects a configuration in place of a path (regression: a TypeError of fs)', async () => {
  const opened = Reflect.apply(EtcdBackend.open, EtcdBackend, [{ endpoints: ['http://127.0.0.1:2379'] }]);
  await expect(opened).rejects.toMatchObject({
    name: 'UsageError',
    message: 'EtcdBackend.open: path must be a string, not {"endpoints":["http://127.0.0.1:2379"]}',
  });
});
