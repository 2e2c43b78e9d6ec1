import { mkdirSync, readFileSync, renameSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { connect } from 'node:tls';
import { describe, expect, it, onTestFinished } from 'vitest';
import { ApiServer } from '../../src/api/server/api-server.ts';
import { followCredentials } from '../../src/process/followed-credentials.ts';
import { createLog } from '../../src/process/log.ts';
import { readServeOptions } from '../../src/process/serve-files.ts';
import { FakeClock } from '../agent/support/fake-clock.ts';
import { temporaryFolder } from '../agent/support/temporary-folder.ts';
import { testApp } from '../api/support/test-app.ts';
import { TestAuthority } from '../kvstore/etcd/support/certificates.ts';

const NAMES = ['token', 'tls.crt', 'tls.key', 'ca.crt'] as const;

type Secret = Readonly<Record<(typeof NAMES)[number], string>>;

/** A folder of files that are links through `..data`, which the kubelet replaces by a rename. */
class MountedSecret {
  readonly folder = temporaryFolder({});
  #count = 0;

  constructor(secret: Secret) {
    this.replace(secret);
    for (const name of NAMES) symlinkSync(`..data/${name}`, this.path(name));
  }

  path(name: keyof Secret): string {
    return join(this.folder, name);
  }

  replace(secret: Secret): void {
    const version = `..version_${++this.#count}`;
    mkdirSync(join(this.folder, version));
    for (const name of NAMES) writeFileSync(join(this.folder, version, name), secret[name]);
    symlinkSync(version, join(this.folder, '..data_tmp'));
    renameSync(join(this.folder, '..data_tmp'), join(this.folder, '..data'));
  }
}

function issue(authority: TestAuthority, name: string, token: string): Secret {
  const { certificate, key } = authority.issue(name);
  const [crt, pem, ca] = [certificate, key, authority.ca].map((path) => readFileSync(path, 'utf8'));
  return { token, 'tls.crt': crt ?? '', 'tls.key': pem ?? '', 'ca.crt': ca ?? '' };
}

/**
 * Calls the server with a client certificate of `client` and a token. Returns the name of the server, and the
 * status.
 */
function ask(port: number, client: Secret, token: string): Promise<string> {
  return new Promise((resolve) => {
    const credentials = { cert: client['tls.crt'], key: client['tls.key'], rejectUnauthorized: false };
    const socket = connect({ host: '127.0.0.1', port, ...credentials });
    let text = '';
    let name = '';
    socket.once('secureConnect', () => {
      name = String(socket.getPeerCertificate().subject.CN);
      socket.write(
        `GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer ${token}\r\nConnection: close\r\n\r\n`,
      );
    });
    socket.on('data', (part) => {
      text += String(part);
    });
    socket.on('error', () => {});
    socket.on('close', () => resolve(`${name} ${/^HTTP\/1\.1 (\d+)/.exec(text)?.[1] ?? 'refused'}`));
  });
}

describe('the token, certificate and authority of --listen', () => {
  it('follow their files, and stay while new ones are invalid (regression: they were read once)', async () => {
    const [first, second] = [new TestAuthority('first'), new TestAuthority('second')];
    const old = issue(first, 'old', 'old-token');
    const mount = new MountedSecret(old);
    const { tcp, credentials } = await readServeOptions({
      socket: undefined,
      socketIsDefault: false,
      ui: false,
      names: [],
      listen: { host: '127.0.0.1', port: 0 },
      files: {
        token: mount.path('token'),
        cert: mount.path('tls.crt'),
        key: mount.path('tls.key'),
        clientCA: mount.path('ca.crt'),
      },
    });
    if (tcp === undefined || credentials === undefined) throw new Error('nothing is served');
    const server = new ApiServer({ app: testApp().app, tcp });
    const ended = new AbortController();
    onTestFinished(() => {
      ended.abort();
      return server.stop();
    });
    await server.start();
    const port = Number(new URL(server.url ?? '').port);
    const clock = new FakeClock();
    const lines: string[] = [];
    const counts = { reads: 0, failures: 0 };
    void followCredentials(tcp, {
      read: () => credentials().finally(() => counts.reads++),
      renew: (read) => server.renew(read),
      onFailure: () => counts.failures++,
      log: createLog('info', 'text', { write: (line) => lines.push(line) }),
      clock,
      signal: ended.signal,
    });
    const passes = async (ms: number): Promise<void> => {
      const { reads } = counts;
      await clock.advance(ms);
      await expect.poll(() => counts.reads).toBe(reads + 1);
      await expect.poll(() => clock.pending).toBe(1);
    };
    expect(await ask(port, old, 'old-token')).toBe('old 200');
    await passes(10_000);

    const broken: readonly Secret[] = [
      { ...old, token: '' },
      { ...old, 'tls.key': issue(first, 'other', '')['tls.key'] },
      { ...old, 'tls.crt': 'no certificate' },
      { ...old, 'ca.crt': 'no certificate' },
    ];
    for (const [at, secret] of broken.entries()) {
      mount.replace(secret);
      await passes(10_000);
      expect([at, counts.failures, lines.length]).toEqual([at, at, at * 2]); // half of it may be replaced
      await passes(1_000);
      expect([at, counts.failures, lines.length]).toEqual([at, at + 1, at * 2 + 1]);
      expect(lines.at(-1)).toMatch(
        /^error cannot reload the credentials of --listen: .*; the previous ones stay in use/,
      );
      expect(await ask(port, old, 'old-token')).toBe('old 200');
      mount.replace({ ...old, token: `old-token` });
      await passes(10_000);
      lines.push('good again');
    }

    const renewed = issue(second, 'new', 'new-token');
    mount.replace(renewed);
    await passes(10_000);
    expect(lines.at(-1)).toBe('info  reloaded the credentials of --listen\n');
    expect(await ask(port, renewed, 'new-token')).toBe('new 200');
    expect(await ask(port, renewed, 'old-token')).toBe('new 401');
    expect(await ask(port, old, 'new-token')).toBe('new refused');
  });

  it('are tried again if the server rejects them once, and each failure is counted', async () => {
    const clock = new FakeClock();
    const ended = new AbortController();
    onTestFinished(() => ended.abort());
    const renewed: (string | undefined)[] = [];
    let failures = 0;
    void followCredentials(
      { token: 'old' },
      {
        read: async () => ({ token: 'new' }),
        renew: ({ token }) => {
          renewed.push(token);
          if (renewed.length < 3) throw new Error('no memory');
        },
        onFailure: () => failures++,
        log: createLog('silent', 'text', { write: () => {} }),
        clock,
        signal: ended.signal,
      },
    );
    await clock.advance(10_000);
    await clock.advance(1_000);
    expect([renewed, failures]).toEqual([['new', 'new'], 1]);
    await clock.advance(9_999);
    expect(renewed).toHaveLength(2); // after two failures it retries slowly
    await clock.advance(1);
    await clock.advance(20_000);
    expect([renewed, failures]).toEqual([['new', 'new', 'new'], 1]);
  });

  it('close the connections of the former token or authority when it is replaced', async () => {
    const world = testApp();
    const server = new ApiServer({ app: world.app, tcp: { host: '127.0.0.1', port: 0, token: 'old' } });
    onTestFinished(() => server.stop());
    await server.start();
    const answer = await fetch(`${server.url}/v1/monitor`, { headers: { authorization: 'Bearer old' } });
    const reader = answer.body?.getReader();
    await reader?.read();
    const next = reader?.read();
    server.renew({ token: 'new' });
    await expect(next).rejects.toThrow();
    const status = async (token: string): Promise<number> =>
      (await fetch(`${server.url}/healthz`, { headers: { authorization: `Bearer ${token}` } })).status;
    expect([await status('old'), await status('new')]).toEqual([401, 200]);
    const authority = issue(new TestAuthority('other'), 'other', '');
    const monitor = await fetch(`${server.url}/v1/monitor`, { headers: { authorization: 'Bearer new' } });
    const events = monitor.body?.getReader();
    await events?.read();
    const after = events?.read();
    const tls = { cert: authority['tls.crt'], key: authority['tls.key'], clientCA: authority['ca.crt'] };
    server.renew({ token: 'new', tls });
    await expect(after).rejects.toThrow();
  });
});
