import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { loadEtcdConfig } from '../../../src/kvstore/etcd/etcd-config-file.ts';

const folder = mkdtempSync(join(tmpdir(), 'etcd-config-'));
afterAll(() => rmSync(folder, { recursive: true }));

function file(name: string, content: string): string {
  const path = join(folder, name);
  writeFileSync(path, content);
  return path;
}

const pem = (what: string): string => `-----BEGIN ${what}-----\nAA==\n-----END ${what}-----\n`;
const ca = file('ca.pem', pem('CERTIFICATE'));
const cert = file('cert.pem', pem('CERTIFICATE'));
const key = file('key.pem', pem('PRIVATE KEY'));

describe('an etcd configuration file', () => {
  it('of a Cilium clustermesh is read with its certificates', async () => {
    const { config } = await loadEtcdConfig(
      `endpoints:\n- https://a.mesh.cilium.io:2379\ntrusted-ca-file: ${ca}\nkey-file: ${key}\ncert-file: ${cert}\n`,
    );
    expect(config).toMatchObject({
      endpoints: ['https://a.mesh.cilium.io:2379'],
      tls: {
        ca: Buffer.from(pem('CERTIFICATE')),
        key: Buffer.from(pem('PRIVATE KEY')),
        insecureSkipVerify: false,
      },
      auth: undefined,
    });
  });

  it('may name a user, times, and endpoints without a scheme', async () => {
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

  it.each([
    ['endpoints: [', 'no YAML'],
    ['[]', 'must be YAML with fields'],
    ['endpoints: []', 'endpoints'],
    ['endpoints: [7]', 'endpoints 7'],
    ['endpoints: [ftp://a:1]', 'endpoints "ftp://a:1"'],
    ['endpoints: [http://a:1, https://b:1]', 'endpoints'],
    ['endpoints: [a:1]\nusername: 7', 'username 7'],
    ['endpoints: [a:1]\ninsecure-transport: "yes"', 'insecure-transport "yes"'],
    ['endpoints: [a:1]\ndial-timeout: soon', 'dial-timeout "soon"'],
    [`endpoints: [a:1]\ncert-file: ${cert}`, 'cert-file and key-file'],
    ['endpoints: [a:1]\ntrusted-ca-file: /nowhere/ca.pem', 'trusted-ca-file "/nowhere/ca.pem"'],
    [`endpoints: [a:1]\nca-file: ${file('half.pem', '')}`, 'holds no PEM'],
  ])('%j is refused: %s', async (content, message) => {
    await expect(loadEtcdConfig(content)).rejects.toThrow(message);
  });

  it('does not show a password that is wrong', async () => {
    const refusal = loadEtcdConfig('endpoints: [a:1]\nusername: u\npassword: [secret]');
    await expect(refusal).rejects.toThrow(/^password: /);
  });
});
