import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { gunzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import type { Ask } from '../../src/api/api-client.ts';
import { agentFiles, archive, isCut, MAX_BUNDLE_BYTES, textFile } from '../../src/client/bundle.ts';
import { withoutSecrets } from '../../src/process/without-secrets.ts';

const SECRET = 'pl4nted-S3cret';

/** Places of the secret in a log, a failure or a setting. */
const PLANTED: readonly string[] = [
  `Authorization: Bearer ${SECRET}`,
  `https://root:${SECRET}@etcd:2379`,
  `https://${SECRET}@etcd:2379`,
  `password: ${SECRET}`,
  `"etcd-password":"${SECRET}"`,
  `{\\"token\\":\\"${SECRET}\\"}`,
  `--listen-token=${SECRET}`,
  `-----BEGIN PRIVATE KEY-----\n${SECRET}\n-----END PRIVATE KEY-----`,
  `-----BEGIN CERTIFICATE-----\n${SECRET}`,
  `{"key":"-----BEGIN EC PRIVATE KEY-----\\n${SECRET}\\n-----END EC PRIVATE KEY-----"}`,
  `eyJhbGciOi.${SECRET}.c2ln`,
  `client_key = '${SECRET}'`,
  // User information of a URL, with characters that must be escaped and are not.
  `https://root:p@${SECRET}@etcd:2379/path`,
  `etcd at root:${SECRET}@etcd-0.etcd:2379`,
  `postgres://root:a:${SECRET}@db/x`,
  // Headers.
  `authorization: Negotiate ${SECRET}`,
  `Authorization=Token token ${SECRET}`,
  `"authorization":"ApiKey ${SECRET}"`,
  `Bearer a:${SECRET}`,
  `Cookie: a=1; session=${SECRET}`,
  `set-cookie: id=${SECRET}; HttpOnly`,
  `{"headers":{"cookie":"id=${SECRET}"}}`,
  `['Cookie', 'id=${SECRET}']`,
  `GET /v1?access_token=${SECRET}&b=1`,
  `https://s3/x?X-Amz-Signature=${SECRET}&b=1`,
  // kubeconfig: keys and certificates in base64, and the answer of a credential plugin.
  `    client-key-data: ${Buffer.from(`-----BEGIN RSA PRIVATE KEY-----\n${SECRET}`).toString('base64')}${SECRET}`,
  `{"status":{"clientKeyData":"x ${SECRET}","token":"y"}}`,
  `    password: two words ${SECRET}`,
  `password: |-\n  ${SECRET}\n  ${SECRET}\nuser: root`,
  `{"password":"with \\"quotes\\" ${SECRET}"}`,
  // Command lines and environments.
  `dpcache agent --listen-token ${SECRET}`,
  `["agent","--etcd-password","${SECRET}"]`,
  `DPCACHE_LISTEN_TOKEN=${SECRET}`,
  `export ETCD_PASSPHRASE="${SECRET}"`,
  `AWS_ACCESS_KEY_ID=${SECRET}`,
  `- name: ETCD_PASSWORD\n  value: ${SECRET}`,
  `{"name":"ETCD_PASSWORD","value":"${SECRET}"}`,
  `PresharedKey = ${SECRET}`,
];

describe('a bundle', () => {
  it('contains no planted secret, in any file', async () => {
    const ask: Ask = (path) =>
      Promise.resolve({ path, failures: PLANTED, password: SECRET, nested: JSON.stringify(PLANTED) });
    const { files, errors } = await agentFiles(ask);
    expect(errors).toEqual([]);
    for (const { text } of files) expect(() => JSON.parse(text)).not.toThrow();
    const lines = PLANTED.map((text) =>
      JSON.stringify({ level: 'error', msg: text, body: JSON.stringify({ text }) }),
    );
    const log = textFile(
      'log.txt',
      `half of a key ${SECRET}\n-----END PRIVATE KEY-----\n${lines.join('\n')}\n${PLANTED.join('\n\n')}\n`,
    );
    const packed = await archive([...files, log], new Date(0));
    const text = gunzipSync(packed).toString('latin1');
    expect(text).toContain('/v1/history');
    expect(text).not.toContain(SECRET);
  });

  it.each(PLANTED)('removes a secret: %s', (text) => {
    expect(withoutSecrets(text)).not.toContain(SECRET);
  });

  it('keeps addresses, labels and revisions', () => {
    const text =
      '{"prefix":"10.0.0.1/32","labels":["k8s:app=checkout"],"revision":88124,"url":"https://etcd:2379"}';
    expect(withoutSecrets(text)).toBe(text);
  });

  it('removes a certificate in base64', () => {
    expect(withoutSecrets('ca: LS0tLS1CRUdJTiBDRVJU+/9= b')).toBe('ca: [removed] b');
  });

  it.each([
    'fd00::1/128@3: cluster baltic, k8s:team=a@b, revision 7',
    'dpcache agent --token-file /run/token --listen 8080',
    'authenticated: user root',
    'kvstore key cilium/state/ip/v1/default/10.0.0.1',
    '{"name":"cart","value":"10.0.0.1"}',
    'the server closed the connection: check the log',
  ])('keeps a text without secrets: %s', (text) => {
    expect(withoutSecrets(text)).toBe(text);
  });

  it('removes secrets from lists, objects and names of fields', async () => {
    const ask: Ask = () =>
      Promise.resolve({
        tokens: [SECRET, 4],
        secret: { value: SECRET },
        password: 4711,
        [`https://root:${SECRET}@etcd`]: 1,
        cookie: [[SECRET]],
      });
    const { files } = await agentFiles(ask);
    for (const { text } of files) expect(text).not.toMatch(/pl4nted|4711/);
  });

  it('takes time that is linear in a text without line breaks', () => {
    const cost = (text: string): number => {
      const begun = process.cpuUsage();
      withoutSecrets(text);
      const { user, system } = process.cpuUsage(begun);
      return (user + system) / 1000;
    };
    for (const part of ['a.b-', 'a:', 'token', '://', 'name: x', '--token', 'eyJ.', '\\"', 'basic ']) {
      const small = Math.max(cost(part.repeat(2_000)), 5);
      expect(cost(part.repeat(40_000)), part).toBeLessThan(small * 200);
    }
  });

  it('is an archive that tar reads', async () => {
    const packed = await archive(
      [
        { name: 'a.txt', text: 'x'.repeat(513) },
        { name: 'b.json', text: '{}' },
      ],
      new Date(0),
    );
    const listed = execFileSync('tar', ['-tzvf', '-'], { input: packed, encoding: 'utf8' });
    expect(listed).toMatch(/-rw------- .* 513 .* a\.txt\n-rw------- .* 2 .* b\.json/);
  });

  it('has what answers, and the failures', async () => {
    const ask: Ask = (path) =>
      path === '/v1/status' ? Promise.resolve({ ok: 1 }) : Promise.reject(new Error('no answer'));
    const { files, errors } = await agentFiles(ask);
    expect(files.map(({ name }) => name)).toEqual(['status.json', 'errors.txt']);
    expect(errors).toEqual([
      '/v1/rejections, /v1/conflicts, /v1/digest, /v1/history?limit=1000, /v1/settings: no answer',
    ]);
    expect(files[1]?.text).toBe(`${errors.join('')}\n`);
  });

  it('knows which files it cuts', () => {
    expect(isCut({ name: 'a', text: 'x'.repeat(2 << 20) })).toBe(false);
    expect(isCut({ name: 'a', text: 'ä'.repeat((1 << 20) + 1) })).toBe(true);
  });

  it('stays below its limit for any answers', async () => {
    const ask: Ask = () => Promise.resolve({ noise: randomBytes(6 << 20).toString('latin1') });
    const { files } = await agentFiles(ask);
    const log = { name: 'log.txt', text: randomBytes(1 << 20).toString('latin1') };
    const packed = await archive([...files, log], new Date(0));
    expect(packed.length).toBeLessThan(MAX_BUNDLE_BYTES);
  });
});
