import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { ApiServer } from '../../src/api/server/api-server.ts';
import { temporaryFolder } from '../agent/support/temporary-folder.ts';
import { testApp } from '../api/support/test-app.ts';
import { TestAuthority } from '../kvstore/etcd/support/certificates.ts';
import { dpcache } from './support/run.ts';

const TOKEN = 'planted-token';

/** Serves an app with an own claim over TCP, with a token. Returns its origin. */
async function serve(
  identity: number,
  tls?: { readonly cert: string; readonly key: string },
): Promise<string> {
  const { app, model } = testApp();
  model.ipcache.upsert('10.7.0.1', { identity, source: 'kvstore' });
  const tcp = { host: '127.0.0.1', port: 0, token: TOKEN, ...(tls && { tls }) };
  const server = new ApiServer({ app, tcp });
  await server.start();
  onTestFinished(() => server.stop());
  return new URL(server.url ?? '').origin;
}

function tokenFile(text = `${TOKEN}\n`): string {
  return join(temporaryFolder({ token: text }), 'token');
}

describe('dpcache diff of agents over https', () => {
  const authority = new TestAuthority('agents');
  const { certificate, key } = authority.issue('agent');
  const tls = { cert: readFileSync(certificate, 'utf8'), key: readFileSync(key, 'utf8') };

  it('compares them with the token and the CA of the files', async () => {
    const operands = [await serve(7, tls), await serve(8, tls), '--token-file', tokenFile()];
    const { status, stdout, stderr } = await dpcache('diff', ...operands, '--ca-file', authority.ca);
    expect([status, stderr]).toEqual([1, '']);
    expect(stdout).toContain('kvstore: 1 of 2 claims differs');
    expect(stdout).toMatch(/10\.7\.0\.1 +a: 7 +b: 8/);
  });

  it('names the option if no known authority has signed the certificate', async () => {
    const url = await serve(7, tls);
    const { status, stderr } = await dpcache('diff', url, url, '--token-file', tokenFile());
    expect(status).toBe(1);
    expect(stderr).toContain(`${url}: `);
    expect(stderr).toContain('give the CA of the agent with --ca-file');
  });

  it('names https if the agent does not serve it (regression: the message of OpenSSL, with a pointer and a line break)', async () => {
    const url = (await serve(7)).replace('http:', 'https:');
    const { stderr } = await dpcache('diff', url, url);
    expect(stderr).toBe(`dpcache: ${url}: protocol error; use http:// if it serves no https\n`);
  });

  it.each([
    ['one\ntwo', 'the token must be one line of ASCII characters'],
    ['tökén', 'the token must be one line of ASCII characters'],
    ['\n', 'the file is empty'],
  ])('rejects the token %j, which no header can contain (regression: a stack trace)', async (text, why) => {
    const [url, file] = [await serve(7), tokenFile(text)];
    const { status, stderr } = await dpcache('diff', url, url, '--token-file', file);
    expect([status, stderr]).toEqual([1, `dpcache: --token-file ${file}: ${why}\n`]);
  });

  it('repeats no token if the agent rejects it', async () => {
    const url = await serve(7, tls);
    const flags = ['--ca-file', authority.ca, '--token-file', tokenFile('planted-other')];
    const { status, stdout, stderr } = await dpcache('diff', url, url, ...flags);
    expect([status, stderr.includes(url)]).toEqual([1, true]);
    expect(stderr).toMatch(/; give the token of the agent with --token-file\n$/);
    expect(stdout + stderr).not.toContain('planted');
  });
});

describe('dpcache diff of agents over http', () => {
  it('sends the token to this machine', async () => {
    const url = await serve(7);
    expect(await dpcache('diff', url, url, '--token-file', tokenFile())).toMatchObject({
      status: 0,
      stderr: '',
    });
  });

  it('refuses to send the token to another machine, whichever operand it is', async () => {
    const remote = 'http://192.0.2.1:8080';
    for (const operands of [
      [remote, 'unix:/tmp/none.sock'],
      ['unix:/tmp/none.sock', remote],
    ]) {
      const { status, stdout, stderr } = await dpcache('diff', ...operands, '--token-file', tokenFile());
      expect([status, stdout]).toEqual([2, '']);
      expect(stderr).toContain(
        `dpcache: ${remote}: the token would be sent in clear text: use https://, or run the command on that machine\n`,
      );
    }
  });

  it('follows no redirect, which could carry the token to another server', async () => {
    const asked: (string | undefined)[] = [];
    const other = createServer((request, response) => {
      asked.push(request.headers.authorization);
      response.end('{}');
    });
    let location = '';
    const first = createServer((_, response) => {
      response.writeHead(302, { location, 'content-type': 'application/json' });
      response.end('{}');
    });
    for (const server of [first, other]) {
      await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
      onTestFinished(() => void server.close());
    }
    location = `http://127.0.0.1:${(other.address() as AddressInfo).port}/`;
    const url = `http://127.0.0.1:${(first.address() as AddressInfo).port}`;
    const { status, stderr } = await dpcache('diff', url, url, '--token-file', tokenFile());
    expect([status, stderr]).toEqual([1, `dpcache: ${url}: unexpected status 302 of the agent\n`]);
    expect(asked).toEqual([]);
  });
});
