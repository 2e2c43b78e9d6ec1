import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import files from 'node:fs/promises';
import { Server as HTTPServer, type IncomingMessage, request } from 'node:http';
import { request as requestTLS } from 'node:https';
import { syncBuiltinESMExports } from 'node:module';
import { connect, createServer, Socket } from 'node:net';
import { networkInterfaces } from 'node:os';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { getRequestListener } from '@hono/node-server';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { AgentError, ApiClient } from '../../../src/api/api-client.ts';
import type { RefusalReason } from '../../../src/api/metrics/process-metrics.ts';
import { uiPath } from '../../../src/api/routes/ui-routes.ts';
import { ApiServer, type ApiServerOptions, isLoopback } from '../../../src/api/server/api-server.ts';
import { defaultSocketPath } from '../../../src/api/server/socket-path.ts';
import { listenOnSocket } from '../../../src/api/server/unix-socket.ts';
import { systemClock } from '../../../src/base/system-clock.ts';
import { settle } from '../../agent/support/fake-clock.ts';
import { temporaryFolder } from '../../agent/support/temporary-folder.ts';
import { bytesInUse } from '../../base/support/garbage.ts';
import { TestAuthority } from '../../kvstore/etcd/support/certificates.ts';
import { type TestApp, testApp } from '../support/test-app.ts';

async function serve(options: Omit<ApiServerOptions, 'app'>, app: TestApp = testApp()): Promise<ApiServer> {
  const server = new ApiServer({ app: app.app, ...options });
  onTestFinished(() => server.stop());
  await server.start();
  return server;
}

const NEVER = new AbortController().signal;

/** Sends a request unchanged, with any headers. */
function send(
  url: string,
  headers: Readonly<Record<string, string>> = {},
): Promise<{ status: number; body: string }> {
  return new Promise((resolve, reject) => {
    const sent = request(url, { headers }, (answer) => {
      let body = '';
      answer.on('data', (part: Buffer) => {
        body += part;
      });
      answer.on('end', () => resolve({ status: answer.statusCode ?? 0, body }));
    });
    sent.on('error', reject);
    sent.end();
  });
}

/** Sends raw bytes and returns the answer until the connection is closed. */
async function sendRaw(server: ApiServer, bytes: string): Promise<string> {
  const { port } = new URL(server.url ?? '');
  const socket = connect(Number(port), '127.0.0.1');
  socket.on('error', () => {}); // it may be closed while we write
  socket.write(bytes);
  let text = '';
  socket.on('data', (part: Buffer) => {
    text += part;
  });
  await once(socket, 'close');
  return text;
}

/** Fails unless a monitor receives a change after `renew`, on its first connection. */
async function monitorReceives(
  server: ApiServer,
  world: TestApp,
  headers: Readonly<Record<string, string>>,
  renew: () => void = () => {},
): Promise<void> {
  const monitor = request(`${server.url}/v1/monitor`, { headers });
  onTestFinished(() => void monitor.destroy());
  const answered = once(monitor, 'response');
  monitor.end();
  const [answer]: [IncomingMessage] = (await answered) as never;
  const closed = once(
    answer.on('error', () => {}),
    'close',
  ).then(() => ['closed']);
  await Promise.race([once(answer, 'data'), closed]);
  renew();
  world.model.ipcache.upsert('10.0.0.9', { identity: 9, source: 'k8s' });
  const next = Promise.race([once(answer, 'data'), closed]);
  await settle();
  await world.model.clock.advance(50);
  expect(String((await next)[0])).toContain('10.0.0.9/32');
}

/** Starts an {@link ApiServer} over TCP, and returns its server of Node.js. */
async function serveHTTP(): Promise<HTTPServer> {
  const listening = vi.spyOn(HTTPServer.prototype, 'listen');
  await serve({ tcp: { host: '127.0.0.1', port: 0 } });
  const [server] = listening.mock.contexts;
  listening.mockRestore();
  return server as HTTPServer;
}

/** Starts a process that listens on a socket, with an accept queue of one connection. */
async function listenElsewhere(path: string): Promise<ChildProcess> {
  const options = JSON.stringify({ path, backlog: 1 });
  const code = `require('node:net').createServer().listen(${options}, () => console.log('listening'))`;
  const child = spawn(process.execPath, ['-e', code], { stdio: ['ignore', 'pipe', 'ignore'] });
  onTestFinished(() => void child.kill('SIGKILL'));
  await once(child.stdout, 'data');
  return child;
}

/** Leaves the socket of a killed process. */
async function leaveSocket(path: string): Promise<void> {
  const child = await listenElsewhere(path);
  child.kill('SIGKILL');
  await once(child, 'exit');
  expect(existsSync(path)).toBe(true);
}

describe('a unix socket', () => {
  it('answers its user only, and is removed when the agent ends', async () => {
    const folder = join(temporaryFolder({}), 'run');
    const path = join(folder, 'dpcache.sock');
    const umask = process.umask();
    const server = await serve({ socket: path });
    expect([process.umask(), ...[folder, path].map((name) => statSync(name).mode & 0o777)]).toEqual([
      ...[umask, 0o700, 0o600],
    ]);
    expect(readdirSync(folder)).toEqual(['dpcache.sock']);
    expect(await new ApiClient(path, NEVER).ask('/v1/ipcache/lookup/10.9.9.9')).toMatchObject({
      identity: 77,
    });
    await expect(new ApiClient(path, NEVER).ask('/v1/ipcache/lookup/x')).rejects.toMatchObject({
      problem: { status: 400, field: 'ip' },
    });
    await server.stop();
    expect(existsSync(path)).toBe(false);
    await expect(new ApiClient(path, NEVER).ask('/healthz')).rejects.toThrow(
      'no process listens on this socket',
    );
  });

  it('has a default path in the runtime folder of the user, or in /run/dpcache', () => {
    const folders = ['/run/user', '', undefined];
    expect(folders.map((folder) => defaultSocketPath({ XDG_RUNTIME_DIR: folder }))).toEqual([
      ...['/run/user/dpcache.sock', '/run/dpcache/dpcache.sock', '/run/dpcache/dpcache.sock'],
    ]);
  });

  it('that is in use is rejected with the pid of its server', async () => {
    const path = join(temporaryFolder({}), 'dpcache.sock');
    await serve({ socket: path });
    const holder = `the process with pid ${process.pid}`;
    await expect(serve({ socket: path })).rejects.toMatchObject({
      ...{ name: 'SocketInUseError', holder },
      message: `${path} is in use by ${holder}: stop it, or set another socket with --socket`,
    });
    expect(await new ApiClient(path, NEVER).ask('/healthz')).toMatchObject({ status: 'ok' });
  });

  it('that a killed agent left is taken over', async () => {
    const path = join(temporaryFolder({}), 'dpcache.sock');
    await leaveSocket(path);
    await expect(new ApiClient(path, NEVER).ask('/healthz')).rejects.toThrow(
      'no process listens on this socket',
    );
    await serve({ socket: path });
    expect(await new ApiClient(path, NEVER).ask('/healthz')).toMatchObject({ status: 'ok' });
  });

  it('of a process that accepts no connections is rejected, and kept', async () => {
    const path = join(temporaryFolder({}), 'dpcache.sock');
    const other = await listenElsewhere(path);
    other.kill('SIGSTOP');
    const waiting = Array.from({ length: 8 }, () => connect(path).on('error', () => {}));
    onTestFinished(() => {
      for (const socket of waiting) socket.destroy();
    });
    const { ino } = statSync(path);
    await expect(serve({ socket: path })).rejects.toThrow('is in use by another process');
    expect(statSync(path).ino).toBe(ino);
  });

  it('that another agent takes over first stays with it', async () => {
    const folder = temporaryFolder({});
    const path = join(folder, 'dpcache.sock');
    await leaveSocket(path);
    const { rename } = files;
    const renaming = vi.spyOn(files, 'rename').mockImplementationOnce(async (from, to) => {
      rmSync(from);
      await serve({ socket: path });
      await rename(from, to);
    });
    onTestFinished(() => {
      renaming.mockRestore();
      syncBuiltinESMExports();
    });
    syncBuiltinESMExports();
    await expect(serve({ socket: path })).rejects.toThrow(`is in use by the process with pid ${process.pid}`);
    expect(renaming).toHaveBeenCalledOnce();
    expect(await new ApiClient(path, NEVER).ask('/healthz')).toMatchObject({ status: 'ok' });
    expect(readdirSync(folder)).toEqual(['dpcache.sock']);
  });

  it('of another program that sends nothing is rejected', async () => {
    const path = join(temporaryFolder({}), 'dpcache.sock');
    const other = createServer((socket) => socket.on('error', () => {}).end('nonsense\n')).listen(path);
    onTestFinished(() => void other.close());
    await once(other, 'listening');
    await expect(serve({ socket: path })).rejects.toThrow('is in use by another process');
  });

  it('of another program that accepts connections and never answers is rejected after 2 s', async () => {
    const path = join(temporaryFolder({}), 'dpcache.sock');
    const other = createServer((socket) => socket.on('error', () => {}).resume()).listen(path);
    onTestFinished(() => void other.close());
    await once(other, 'listening');
    const timeout = vi.spyOn(AbortSignal, 'timeout').mockReturnValueOnce(AbortSignal.abort());
    await expect(serve({ socket: path })).rejects.toThrow('is in use by another process');
    expect(timeout).toHaveBeenCalledExactlyOnceWith(2_000);
  });

  it('of another program that closes the connection in the middle of its answer is rejected', async () => {
    const path = join(temporaryFolder({}), 'dpcache.sock');
    const other = createServer((socket) => {
      socket.on('error', () => {});
      socket.once('data', () => socket.end('HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{'));
    }).listen(path);
    onTestFinished(() => void other.close());
    await once(other, 'listening');
    await expect(serve({ socket: path })).rejects.toThrow('is in use by another process');
  });

  it('that is a file or a folder is rejected, and the file is kept', async () => {
    const folder = temporaryFolder({ file: 'precious' });
    mkdirSync(join(folder, 'folder'));
    for (const name of ['file', 'folder'])
      await expect(serve({ socket: join(folder, name) })).rejects.toThrow('exists and is not a socket');
    expect(readFileSync(join(folder, 'file'), 'utf8')).toBe('precious');
    expect(readdirSync(folder).sort()).toEqual(['file', 'folder']);
  });

  it('whose path is longer than the system allows is rejected, not cut', async () => {
    const folder = temporaryFolder({});
    const fits = join(folder, 'x'.repeat(107 - folder.length - 1));
    await serve({ socket: fits });
    expect(existsSync(fits)).toBe(true);
    await expect(serve({ socket: `${fits}x` })).rejects.toThrow('at most 107 bytes');
    expect(readdirSync(folder)).toHaveLength(1);
  });

  it('that cannot be linked to its path is closed, and its temporary file is removed', async () => {
    const folder = temporaryFolder({});
    const linking = vi.spyOn(files, 'link').mockRejectedValueOnce(new Error('no space'));
    onTestFinished(() => {
      linking.mockRestore();
      syncBuiltinESMExports();
    });
    syncBuiltinESMExports();
    const server = createServer();
    onTestFinished(() => void server.close());
    await expect(listenOnSocket(server, join(folder, 's'))).rejects.toThrow('no space');
    expect([server.listening, readdirSync(folder)]).toEqual([false, []]);
  });

  it('whose temporary path would be longer than the system allows is rejected', async () => {
    const folder = temporaryFolder({});
    const inFolderOf = (length: number): string => {
      const inner = join(folder, 'x'.repeat(length - folder.length - 1));
      return join(inner, 's');
    };
    const temporary = '/.01234567';
    await serve({ socket: inFolderOf(107 - temporary.length) });
    await expect(serve({ socket: inFolderOf(108 - temporary.length) })).rejects.toThrow('at most 107 bytes');
  });

  it('of another server at the same path remains when the first one ends (regression: it removed the file)', async () => {
    const path = join(temporaryFolder({}), 'dpcache.sock');
    const first = await serve({ socket: path });
    rmSync(path);
    await serve({ socket: path });
    await first.stop();
    expect(await new ApiClient(path, NEVER).ask('/healthz')).toMatchObject({ status: 'ok' });
  });

  it('is served by one of several servers that start at the same time', async () => {
    const path = join(temporaryFolder({}), 'dpcache.sock');
    const starts = await Promise.allSettled(Array.from({ length: 5 }, () => serve({ socket: path })));
    expect(starts.filter(({ status }) => status === 'fulfilled')).toHaveLength(1);
    for (const start of starts)
      if (start.status === 'rejected')
        expect(String(start.reason)).toContain('is in use by the process with pid');
    expect(await new ApiClient(path, NEVER).ask('/healthz')).toMatchObject({ status: 'ok' });
  });

  it('is removed by a server that is stopped while it starts', async () => {
    const path = join(temporaryFolder({}), 'dpcache.sock');
    const server = new ApiServer({ app: testApp().app, socket: path, tcp: { host: '127.0.0.1', port: 0 } });
    const started = server.start();
    await server.stop();
    await started;
    expect(existsSync(path)).toBe(false);
    expect(server.url).toBeUndefined();
  });

  it('whose folder cannot be created is an error that names the folder', async () => {
    const folder = temporaryFolder({ file: '' });
    await expect(serve({ socket: join(folder, 'file', 'dpcache.sock') })).rejects.toThrow(folder);
  });
});

describe('TCP', () => {
  it.each([
    ...['127.0.0.1', '127.9.9.9', 'localhost', 'LocalHost.', '::1', '[::1]'].map((host) => [host, true]),
    ...['10.0.0.1', '127.example', '::', '::127.0.0.1', '0.0.0.0', 'localhost.example'].map((host) => [
      host,
      false,
    ]),
  ] as [string, boolean][])('on %s is reachable from this machine only: %s', (host, isLocal) => {
    expect(isLoopback(host)).toBe(isLocal);
  });

  it('answers requests only for the names of this agent', async () => {
    const server = await serve({ tcp: { host: '127.0.0.1', port: 0 } });
    const url = `${server.url}/healthz`;
    const port = new URL(url).port;
    expect((await send(url)).status).toBe(200);
    expect((await send(url, { host: `localhost:${port}` })).status).toBe(200);
    const rebound = await send(url, { host: `stranger.example:${port}` });
    expect([rebound.status, JSON.parse(rebound.body)]).toMatchObject([
      403,
      { field: 'Host', value: 'stranger.example' },
    ]);
  });

  it('compares names without regard to case and a final dot', async () => {
    const server = await serve({ tcp: { host: 'LocalHost', port: 0 } });
    for (const host of ['localhost', 'LOCALHOST', 'localhost.', '127.0.0.1', '[::1]']) {
      expect((await send(`${server.url}/healthz`, { host })).status).toBe(200);
    }
  });

  it.each([
    'a@localhost',
    'localhost@stranger.example',
    '[::1',
    'local host',
    'localhost/x',
    'localhost:99999',
  ])('rejects the Host %j with a problem', async (host) => {
    const server = await serve({ tcp: { host: '127.0.0.1', port: 0 } });
    const answer = await sendRaw(
      server,
      `GET /healthz HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`,
    );
    expect(answer).toMatch(/^HTTP\/1\.1 400 .*application\/problem\+json.*"status":400/s);
  });

  it.each(['0.0.0.0', '::'])('on every address (%s) answers to the names of loopback', async (host) => {
    const server = await serve({ tcp: { host, port: 0, token: 'secret' } });
    const { port } = new URL(server.url ?? '');
    const url = `http://${host === '::' ? '[::1]' : '127.0.0.1'}:${port}/healthz`;
    for (const [name, status] of [
      ['localhost', 401],
      ['127.0.0.1', 401],
      ['[::1]', 401],
      ['stranger.example', 403],
    ] as const)
      expect([name, (await send(url, { host: name })).status]).toEqual([name, status]);
  });

  it('on one address other than loopback does not answer to the names of loopback', async () => {
    const server = await serve({ tcp: { host: '127.0.0.1', port: 0 } });
    expect((await send(`${server.url}/healthz`, { host: 'localhost' })).status).toBe(200);
    const address = Object.values(networkInterfaces())
      .flat()
      .find((found) => found?.internal === false && found.family === 'IPv4')?.address;
    if (address === undefined) return;
    const beyond = await serve({ tcp: { host: address, port: 0, token: 'secret' } });
    expect((await send(`${beyond.url}/healthz`, { host: 'localhost' })).status).toBe(403);
    expect((await send(`${beyond.url}/healthz`, { host: address })).status).toBe(401);
  });

  it('answers pages of its own origin only', async () => {
    const server = await serve({ tcp: { host: '127.0.0.1', port: 0 } });
    expect((await send(`${server.url}/healthz`, { origin: server.url ?? '' })).status).toBe(200);
    for (const origin of ['http://stranger.example', 'null', 'http://127.0.0.1:1'])
      expect((await send(`${server.url}/healthz`, { origin })).status).toBe(403);
  });

  it('with a token answers every request that has it', async () => {
    const server = await serve({ tcp: { host: '127.0.0.1', port: 0, token: 'secret' } });
    const url = `${server.url}/healthz`;
    for (const authorization of ['', 'Bearer', 'Bearer wrong', 'Bearer secret2', 'Basic secret']) {
      const { status, body } = await send(url, { authorization });
      expect(status).toBe(401);
      expect(body).not.toContain('secret');
    }
    expect((await send(url, { authorization: 'Bearer secret' })).status).toBe(200);
  });

  it('keeps its token if the certificate of a renewal is invalid', async () => {
    const server = await serve({ tcp: { host: '127.0.0.1', port: 0, token: 'former' } });
    const { url } = server;
    const tls = { cert: 'no certificate', key: 'no key' };
    expect(() => server.renew({ token: 'next', tls })).toThrow();
    const statusOf = async (token: string): Promise<number> =>
      (await send(`${url}/healthz`, { authorization: `Bearer ${token}` })).status;
    expect([await statusOf('former'), await statusOf('next')]).toEqual([200, 401]);
  });

  it('with a valid token answers under every name, and without it under its own names only', async () => {
    const tcp = { host: '127.0.0.1', port: 0, token: 'secret', names: ['Agent.example.'] };
    const server = await serve({ tcp });
    const status = async (host: string, authorization: string): Promise<number> =>
      (await send(`${server.url}/healthz`, { host, authorization })).status;
    expect(await status('other.example', 'Bearer secret')).toBe(200);
    expect(await status('other.example', 'Bearer wrong')).toBe(403);
    expect(await status('agent.example', 'Bearer wrong')).toBe(401);
    const other = {
      host: 'other.example',
      authorization: 'Bearer secret',
      origin: 'http://stranger.example',
    };
    expect((await send(`${server.url}/healthz`, other)).status).toBe(403);
  });

  it('without a token answers under the added names', async () => {
    const server = await serve({ tcp: { host: '127.0.0.1', port: 0, names: ['agent.example'] } });
    const status = async (host: string): Promise<number> =>
      (await send(`${server.url}/healthz`, { host })).status;
    expect([await status('agent.example'), await status('other.example')]).toEqual([200, 403]);
  });

  it('reports the refused host or origin, or the missing token', async () => {
    const server = await serve({ tcp: { host: '127.0.0.1', port: 0, token: 'secret' } });
    const url = `${server.url}/healthz`;
    const refused = async (headers: Readonly<Record<string, string>>): Promise<unknown> =>
      JSON.parse((await send(url, headers)).body);
    const forbidden = { type: 'urn:dpcache:problem:forbidden', title: 'Forbidden', status: 403 };
    expect(await refused({ host: 'Stranger.example' })).toEqual({
      ...forbidden,
      detail: expect.stringMatching(/\.$/),
      ...{ field: 'Host', value: 'stranger.example' },
    });
    const authorization = 'Bearer secret';
    expect(await refused({ authorization, origin: 'http://stranger.example' })).toEqual({
      ...forbidden,
      detail: expect.stringMatching(/\.$/),
      ...{ field: 'Origin', value: 'http://stranger.example' },
    });
    const unauthorized = await fetch(url);
    expect([unauthorized.status, unauthorized.headers.get('www-authenticate')]).toEqual([401, 'Bearer']);
    expect(await unauthorized.json()).toEqual({
      ...{ type: 'urn:dpcache:problem:unauthorized', title: 'Bearer token required', status: 401 },
      detail: expect.stringMatching(/\.$/),
    });
  });

  it.each(['a renewal with another token', 'a stop'])(
    'closes the connections of monitors at %s',
    async (end) => {
      const server = await serve({ tcp: { host: '127.0.0.1', port: 0, token: 'secret' } });
      const monitor = request(`${server.url}/v1/monitor`, { headers: { authorization: 'Bearer secret' } });
      const answered = once(monitor, 'response');
      monitor.end();
      const [answer]: [IncomingMessage] = (await answered) as never;
      const closed = new Promise((resolve) => answer.on('error', () => {}).once('close', resolve));
      if (end === 'a stop') await server.stop();
      else server.renew({ token: 'next' });
      await closed;
    },
  );

  it('streams to monitors although a listener existed before the routes were loaded (regression: the head was written twice)', async () => {
    getRequestListener(() => new Response()); // replaces the global Response
    const late = new Response(null, { headers: { 'x-hono-already-sent': 'true' } });
    vi.resetModules();
    vi.doMock('@hono/node-server/utils/response', () => ({ RESPONSE_ALREADY_SENT: late }));
    onTestFinished(() => {
      vi.doUnmock('@hono/node-server/utils/response');
      vi.resetModules();
    });
    const world = (await import('../support/test-app.ts')).testApp();
    const server = await serve({ tcp: { host: '127.0.0.1', port: 0 } }, world);
    await monitorReceives(server, world, {});
  });

  it('keeps its connections when it is renewed with the same token', async () => {
    const world = testApp();
    const server = await serve({ tcp: { host: '127.0.0.1', port: 0, token: 'secret' } }, world);
    await monitorReceives(server, world, { authorization: 'Bearer secret' }, () =>
      server.renew({ token: 'secret' }),
    );
  });

  it('rejects a request with two Host headers', async () => {
    const server = await serve({ tcp: { host: '127.0.0.1', port: 0 } });
    const answer = await sendRaw(
      server,
      'GET /healthz HTTP/1.1\r\nHost: localhost\r\nhost: stranger.example\r\n\r\n',
    );
    expect(answer).toMatch(/^HTTP\/1\.1 400 .*application\/problem\+json.*connection: close.*"status":400/s);
  });

  it('reserves connections for clients with the token while others use theirs', async () => {
    const server = await serve({ tcp: { host: '127.0.0.1', port: 0, token: 'secret' } });
    const port = Number(new URL(server.url ?? '').port);
    const headers = { authorization: 'Bearer secret' };
    const monitor = request(`${server.url}/v1/monitor`, { headers }).on('error', () => {});
    onTestFinished(() => void monitor.destroy());
    const kept = once(monitor, 'response');
    monitor.end();
    await kept;
    const held = Array.from({ length: 1_100 }, () => connect(port, '127.0.0.1').resume());
    onTestFinished(() => {
      for (const socket of held) socket.destroy();
    });
    let closed = 0;
    const othersClosed = new Promise<void>((resolve) => {
      const onClose = (): void => void (++closed === held.length - 256 && resolve());
      for (const socket of held) socket.on('error', () => {}).on('close', onClose);
    });
    await Promise.all(held.map((socket) => once(socket, 'connect').catch(() => {})));
    expect((await send(`${server.url}/healthz`, headers)).status).toBe(200);
    await othersClosed;
    expect(monitor.destroyed).toBe(false);
  });

  it('answers on the unix socket while idle clients use all connections (regression: closed without an answer)', async () => {
    const path = join(temporaryFolder({}), 'dpcache.sock');
    await serve({ socket: path });
    const monitor = request({ socketPath: path, path: '/v1/monitor' })
      .on('error', () => {})
      .end();
    onTestFinished(() => void monitor.destroy());
    await once(monitor, 'response');
    const held: Socket[] = [];
    onTestFinished(() => {
      for (const socket of held) socket.destroy();
    });
    for (let at = 0; at < 1_030; at++) {
      const socket = connect(path).on('error', () => {});
      held.push(socket);
      await once(socket, 'connect'); // one after the other, because the accept queue is limited
    }
    expect(await new ApiClient(path, NEVER).ask('/healthz')).toMatchObject({ status: 'ok' });
    expect(monitor.destroyed).toBe(false);
  });

  it('closes the connection of a client that only read the page before others, as one without a token', async () => {
    const tcp = { host: '127.0.0.1', port: 0, token: 'secret' };
    // The answer never ends, because an idle connection would be closed after 30 s in any case.
    const server = await serve({ tcp, pathsWithoutToken: new Set(['/v1/monitor']) });
    const port = Number(new URL(server.url ?? '').port);
    const reader = connect(port, '127.0.0.1').on('error', () => {});
    onTestFinished(() => void reader.destroy());
    reader.write('GET /v1/monitor HTTP/1.1\r\nHost: localhost\r\n\r\n');
    await once(reader, 'data');
    const others = Array.from({ length: 256 }, () => connect(port, '127.0.0.1').on('error', () => {}));
    onTestFinished(() => {
      for (const socket of others) socket.destroy();
    });
    await expect.poll(() => reader.destroyed).toBe(true);
    expect(others.filter(({ destroyed }) => destroyed)).toEqual([]);
  });

  it('closes the connection that is idle longest, and none that waits for an answer, if all are in use', async () => {
    const server = await serve({ tcp: { host: '127.0.0.1', port: 0 } });
    const port = Number(new URL(server.url ?? '').port);
    const held: Socket[] = [];
    onTestFinished(() => {
      for (const socket of held) socket.destroy();
    });
    for (let at = 0; at < 1_030; at++) {
      const socket = connect(port, '127.0.0.1').on('error', () => {});
      held.push(socket);
      socket.write(`GET ${at === 0 ? '/v1/monitor' : '/healthz'} HTTP/1.1\r\nHost: localhost\r\n\r\n`);
      await once(socket, 'data');
    }
    const isClosed = (at: number): boolean => held[at]?.destroyed === true;
    await expect.poll(() => isClosed(1)).toBe(true);
    expect(isClosed(0)).toBe(false);
    expect(isClosed(1_029)).toBe(false);
    expect((await send(`${server.url}/healthz`)).status).toBe(200);
  });

  it('ends monitors that wait in a pipeline when their connection closes', async () => {
    const world = testApp();
    const server = await serve({ tcp: { host: '127.0.0.1', port: 0 } }, world);
    const socket = connect(Number(new URL(server.url ?? '').port), '127.0.0.1');
    socket.write('GET /v1/monitor HTTP/1.1\r\nHost: localhost\r\n\r\n'.repeat(3));
    await once(socket, 'data');
    const monitors = async (): Promise<string | undefined> =>
      /^dpcache_api_monitors (\d+)/m.exec(await (await world.app.request('/metrics')).text())?.[1];
    await expect.poll(monitors).toBe('3');
    socket.destroy();
    await expect.poll(monitors).toBe('0');
  });

  it('with a token serves its page to everyone, and nothing else', async () => {
    const page = [{ name: 'index.html', type: 'text/html', text: 'the page' }];
    const world = testApp(undefined, page);
    const tcp = { host: '127.0.0.1', port: 0, token: 'secret' };
    const server = new ApiServer({ app: world.app, tcp, pathsWithoutToken: new Set(page.map(uiPath)) });
    await server.start();
    onTestFinished(() => server.stop());
    const status = async (path: string): Promise<number> => (await fetch(`${server.url}${path}`)).status;
    expect(await Promise.all(['/', '/?x=1', '//', '/v1/status', '/x/..%2f'].map(status))).toEqual([
      ...[200, 200, 401, 401, 401],
    ]);
  });

  it('ignores an unknown expectation, but not the access of its request (regression: 417 without a problem)', async () => {
    const server = await serve({ tcp: { host: '127.0.0.1', port: 0 } });
    const expecting = { expect: 'an-answer' };
    expect((await send(`${server.url}/healthz`, expecting)).status).toBe(200);
    expect((await send(`${server.url}/healthz`, { ...expecting, host: 'other' })).status).toBe(403);
  });

  it('limits the size of headers', async () => {
    const server = await serve({ tcp: { host: '127.0.0.1', port: 0 } });
    expect((await send(`${server.url}/healthz`, { 'x-large': 'x'.repeat(20_000) })).status).toBe(431);
    expect((await send(`${server.url}/healthz`)).status).toBe(200);
  });

  it.each([
    ['an address that is too long', `GET /${'x'.repeat(20_000)} HTTP/1.1\r\nHost: localhost\r\n\r\n`, 431],
    ['no HTTP', '\x16\x03\x01\x02\x00\x01\x00\r\n\r\n', 400],
    [
      'two lengths',
      'POST /v1/lookup HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n',
      400,
    ],
    ['HTTP/1.0 without a Host', 'GET /healthz HTTP/1.0\r\n\r\n', 400],
    ['an address of no form', 'GET *x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n', 400],
  ])('reports %s, and closes the connection', async (_, bytes, status) => {
    const server = await serve({ tcp: { host: '127.0.0.1', port: 0 } });
    const answer = await sendRaw(server, bytes);
    const [head = '', body = ''] = answer.split('\r\n\r\n');
    expect(head).toMatch(new RegExp(`^HTTP/1\\.1 ${status} .*application/problem\\+json`, 's'));
    expect(head.toLowerCase()).toContain(`content-length: ${body.length}`);
    expect(JSON.parse(body)).toMatchObject({ status });
  });

  it('checks an Origin after 2,000 other headers (regression: Node.js ignored it)', async () => {
    const server = await serve({ tcp: { host: '127.0.0.1', port: 0 } });
    const others = 'a:\r\n'.repeat(2_010);
    const lines = `GET /healthz HTTP/1.1\r\nHost: localhost\r\n${others}Origin: http://evil.example\r\n`;
    expect(await sendRaw(server, `${lines}Connection: close\r\n\r\n`)).toMatch(/^HTTP\/1\.1 403 /);
  });

  it.each([
    ['ERR_HTTP_REQUEST_TIMEOUT', 408, 'The request was not received in time.'],
    ['HPE_HEADER_OVERFLOW', 431, 'The URL and the headers have more than 16384 bytes.'],
    ['HPE_INVALID_METHOD', 400, 'The request is not valid HTTP.'],
  ])('answers %s with %i, and closes the connection', async (code, status, detail) => {
    const server = await serveHTTP();
    const client = new PassThrough({ autoDestroy: false });
    const parts: Buffer[] = [];
    client.on('data', (part: Buffer) => parts.push(part));
    server.emit('clientError', Object.assign(new Error(), { code }), client);
    await settle();
    expect(client.destroyed).toBe(true);
    const [head = '', body = ''] = String(Buffer.concat(parts)).split('\r\n\r\n');
    expect(head).toContain(`HTTP/1.1 ${status} `);
    expect(JSON.parse(body)).toMatchObject({ status, detail });
  });

  it('limits the time of requests, and closes connections without traffic', async () => {
    const server = await serveHTTP();
    expect(server).toMatchObject({
      ...{ headersTimeout: 10_000, requestTimeout: 30_000 },
      ...{ keepAliveTimeout: 30_000, timeout: 60_000 },
    });
    const idle = new PassThrough();
    server.emit('timeout', idle);
    expect(idle.destroyed).toBe(true);
  });

  it('answers pipelined requests in order, and never writes into the middle of an answer', async () => {
    const server = await serve({ tcp: { host: '127.0.0.1', port: 0 } });
    const ask = (path: string): string => `GET ${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`;
    const answer = await sendRaw(
      server,
      `${ask('/healthz')}${ask('/v1/nodes')}${ask('/v1/monitor')}nonsense\r\n\r\n`,
    );
    expect(answer).not.toContain('HTTP/1.1 400');
  });

  it('never writes into the middle of an answer that is the only one', async () => {
    const server = await serve({ tcp: { host: '127.0.0.1', port: 0 } });
    const answer = await sendRaw(
      server,
      'GET /v1/monitor HTTP/1.1\r\nHost: localhost\r\n\r\nnonsense\r\n\r\n',
    );
    expect(answer).not.toContain('HTTP/1.1 400');
  });

  it('serves sixteen requests of a connection that wait for answers, and closes it at the next one', async () => {
    const world = testApp();
    const server = await serve({ tcp: { host: '127.0.0.1', port: 0 } }, world);
    const socket = connect(Number(new URL(server.url ?? '').port), '127.0.0.1');
    onTestFinished(() => void socket.destroy());
    const request = 'GET /v1/monitor HTTP/1.1\r\nHost: localhost\r\n\r\n';
    socket.on('error', () => {}).write(request.repeat(16));
    const monitors = async (): Promise<string | undefined> =>
      /^dpcache_api_monitors (\d+)/m.exec(await (await world.app.request('/metrics')).text())?.[1];
    await expect.poll(monitors).toBe('16');
    await settle();
    expect(socket.destroyed).toBe(false);
    socket.resume().write(request);
    await once(socket, 'close');
    await expect.poll(monitors).toBe('0');
  });

  it('closes the connection of a client that sends requests and reads nothing', async () => {
    const world = testApp();
    const server = await serve({ tcp: { host: '127.0.0.1', port: 0 } }, world);
    let asked = 0;
    const status = world.model.status.bind(world.model);
    world.model.status = () => {
      asked++;
      return status();
    };
    const socket = connect(Number(new URL(server.url ?? '').port), '127.0.0.1');
    socket.on('error', () => {});
    await once(socket, 'connect');
    socket.write('GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n'.repeat(500));
    socket.resume();
    await once(socket, 'close');
    expect(asked).toBeLessThanOrEqual(16);
    expect((await fetch(`${server.url}/healthz`)).status).toBe(200);
  });

  it('creates no error for each request after the connection was closed (regression: 2,000 requests took 50 ms)', async () => {
    const server = await serveHTTP();
    const requests: IncomingMessage[] = [];
    server.on('request', (request) => requests.push(request));
    const { port } = Object(server.address());
    const socket = connect(port, '127.0.0.1');
    socket.on('error', () => {}).write('GET /v1/monitor HTTP/1.1\r\nHost: localhost\r\n\r\n'.repeat(500));
    await once(socket.resume(), 'close');
    await settle();
    expect(requests.length).toBeGreaterThan(17);
    expect(requests.filter(({ errored }) => errored !== null).length).toBeLessThanOrEqual(17);
  });

  it('disconnects a client that sends requests and never reads (regression: it stayed connected forever)', async () => {
    const server = await serve({ tcp: { host: '127.0.0.1', port: 0 }, unreadMs: 50 });
    const socket = connect(Number(new URL(server.url ?? '').port), '127.0.0.1');
    onTestFinished(() => void socket.destroy());
    const disconnected = once(socket, 'error');
    await once(socket, 'connect');
    socket.pause();
    // One by one, because the limit of unanswered requests must not be reached. The client notices the end when it
    // writes.
    const requests = setInterval(() => socket.write('GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n'));
    onTestFinished(() => clearInterval(requests));
    await disconnected;
  });

  it('keeps a monitor without events connected', async () => {
    const world = testApp(undefined, undefined, systemClock);
    const server = await serve({ tcp: { host: '127.0.0.1', port: 0 }, unreadMs: 50 }, world);
    let monitor: Response | undefined;
    // On a busy machine a connection may be idle for too long before its request arrives.
    while (monitor === undefined)
      monitor = await fetch(`${server.url}/v1/monitor?from=0`).catch(() => undefined);
    const reader = monitor.body?.getReader();
    const readUntil = async (text: string): Promise<void> => {
      for (;;) {
        const { value, done = true } = (await reader?.read()) ?? {};
        expect(done, text).toBe(false);
        if (new TextDecoder().decode(value).includes(text)) return;
      }
    };
    await readUntil('event: synced');
    // Each of these connections is idle for as long as the monitor could be.
    for (let i = 0; i < 2; i++)
      await once(connect(Number(new URL(server.url ?? '').port), '127.0.0.1').resume(), 'close');
    world.model.ipcache.upsert('10.0.0.7', { identity: 9, source: 'k8s' });
    await readUntil('10.0.0.7/32');
    await reader?.cancel();
  });

  it.each(['Transfer-Encoding: chunked', `Content-Length: ${2 ** 21}`])(
    'closes the connection of a GET with a body, %s (regression: the body was read until the request timeout)',
    async (length) => {
      const server = await serve({ tcp: { host: '127.0.0.1', port: 0 } });
      const socket = connect(Number(new URL(server.url ?? '').port), '127.0.0.1').setEncoding('utf8');
      let answer = '';
      socket.on('data', (text) => {
        answer += text;
      });
      socket.write(`GET /healthz HTTP/1.1\r\nHost: localhost\r\n${length}\r\n\r\n5\r\nhello\r\n`);
      await once(socket, 'close');
      expect(answer).toMatch(/^HTTP\/1.1 400 .*A GET request must have no body\./s);
    },
  );

  it('does not report a bug if a client disconnects in the middle of its body', async () => {
    const world = testApp();
    const server = await serve({ tcp: { host: '127.0.0.1', port: 0 } }, world);
    for (const length of ['Transfer-Encoding: chunked', 'Content-Length: 500']) {
      const socket = connect(Number(new URL(server.url ?? '').port), '127.0.0.1');
      socket.write(
        `POST /v1/lookup HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n${length}\r\n\r\n5\r\n{"ips`,
      );
      await once(socket, 'connect');
      await settle();
      socket.destroy();
      await once(socket, 'close');
      await settle();
    }
    expect((await send(`${server.url}/healthz`)).status).toBe(200);
    expect(world.faults).toEqual([]);
  });

  it('ends the work of a client that disconnects (regression: it ran to the end, before that of others)', async () => {
    const world = testApp(undefined, undefined, systemClock);
    let read = 0;
    let isOver = false;
    onTestFinished(() => {
      isOver = true;
    });
    world.model.identities = function* () {
      for (; !isOver; read++) yield { identity: 1234, labels: [], cluster: 'own' };
    } as never;
    const server = await serve({ tcp: { host: '127.0.0.1', port: 0 } }, world);
    const socket = connect(Number(new URL(server.url ?? '').port), '127.0.0.1');
    socket.write('GET /v1/identities/count HTTP/1.1\r\nHost: localhost\r\n\r\n'.repeat(2));
    await expect.poll(() => read).toBeGreaterThan(0);
    socket.destroy();
    await expect
      .poll(async () => {
        const before = read;
        await settle();
        return read - before;
      })
      .toBe(0);
  });

  it('fails if its port is in use, and removes the socket', async () => {
    const first = await serve({ tcp: { host: '127.0.0.1', port: 0 } });
    const socket = join(temporaryFolder({}), 'dpcache.sock');
    const port = Number(new URL(first.url ?? '').port);
    await expect(serve({ socket, tcp: { host: '127.0.0.1', port } })).rejects.toThrow('EADDRINUSE');
    expect(existsSync(socket)).toBe(false);
  });
});

describe('a monitor over a connection', () => {
  it('that fails to open is an error with the reason, not a stream without events', async () => {
    const path = join(temporaryFolder({}), 'dpcache.sock');
    await serve({ socket: path });
    const lines = new ApiClient(path, NEVER).lines('/v1/monitor?types=pod');
    await expect(lines.next()).rejects.toMatchObject({ problem: { status: 400, field: 'types' } });
  });

  it('receives every change, and each key once if it was slow', async () => {
    const world = testApp(undefined, undefined, systemClock);
    const path = join(temporaryFolder({}), 'dpcache.sock');
    await serve({ socket: path }, world);
    const lines = new ApiClient(path, NEVER).lines('/v1/monitor?types=ip&from=0');
    const next = async (start: string): Promise<string> => {
      for (;;) {
        const { value = '', done } = await lines.next();
        if (done === true || value.startsWith(start)) return value;
      }
    };
    expect(await next('event')).toBe('event: synced');
    world.model.nodes.nodeUpdated({ cluster: 'baltic', name: 'node-2', source: 'clustermesh' });
    for (let identity = 1; identity <= 3; identity++)
      world.model.ipcache.upsert('10.0.0.7', { identity, source: 'k8s' });
    expect(await next('id: abc.4')).toBe('id: abc.4'); // 1 is of a node, 2 and 3 were overtaken
    expect(JSON.parse((await next('data: ')).slice('data: '.length))).toMatchObject({
      revision: 4,
      type: 'ip',
      kind: 'upsert',
      key: '10.0.0.7/32',
      value: { identity: 3 },
    });
    world.model.ipcache.delete('10.0.0.7', { source: 'k8s' });
    await next('event: change');
    expect(JSON.parse((await next('data: ')).slice('data: '.length))).toMatchObject({
      kind: 'delete',
      key: '10.0.0.7/32',
    });
    await lines.return();
  });

  it('that reconnects continues after its last event instead of its first revision', async () => {
    const { app, model } = testApp();
    for (let identity = 1; identity <= 3; identity++)
      model.ipcache.upsert('10.7.7.7', { identity, source: 'k8s' });
    const headers = { 'last-event-id': 'abc.2' };
    const reader = (await app.request('/v1/monitor?from=0', { headers })).body?.getReader();
    expect(new TextDecoder().decode((await reader?.read())?.value)).toContain('event: synced\nid: abc.2\n');
    await reader?.cancel();
  });

  it('of another run of the agent starts with a resync', async () => {
    const { app } = testApp();
    const answer = await app.request('/v1/monitor', { headers: { 'last-event-id': 'def.0' } });
    const reader = answer.body?.getReader();
    const first = await reader?.read();
    expect(new TextDecoder().decode(first?.value)).toContain('event: resync\n');
    await reader?.cancel();
  });

  it('sends a heartbeat while nothing changes', async () => {
    const { app, model } = testApp();
    const reader = (await app.request('/v1/monitor')).body?.getReader();
    await reader?.read();
    const beat = reader?.read();
    await settle();
    await model.clock.advance(5_000);
    expect(new TextDecoder().decode((await beat)?.value)).toMatch(
      /^event: heartbeat\nid: abc\.0\ndata: \{"revision":0,"at":"[^"]+","intervalMs":5000\}\n\n$/,
    );
    await reader?.cancel();
  });

  it('sends a heartbeat while only other kinds change, and continues from there', async () => {
    const { app, model } = testApp();
    const reader = (await app.request('/v1/monitor?types=node')).body?.getReader();
    await reader?.read();
    const beat = reader?.read();
    for (let i = 1; i <= 15; i++) {
      model.ipcache.upsert(`10.7.0.${i}`, { identity: i, source: 'k8s' });
      await settle();
      await model.clock.advance(1_000);
    }
    expect(new TextDecoder().decode((await beat)?.value)).toMatch(
      /^event: heartbeat\nid: abc\.5\ndata: \{"revision":5,/,
    );
    await reader?.cancel();
  });

  it('yields the event loop while it catches up', async () => {
    const { app, model } = testApp();
    for (let i = 0; i < 20_000; i++)
      model.ipcache.upsert(`10.7.${i >> 8}.${i & 255}`, { identity: 9, source: 'k8s' });
    const reader = (await app.request('/v1/monitor?from=0')).body?.getReader();
    let turns = 0;
    const count = (): void => {
      turns++;
      timer = setImmediate(count);
    };
    let timer = setImmediate(count);
    for (let part = 0; part < 20; part++) await reader?.read();
    clearImmediate(timer);
    expect(turns).toBeGreaterThan(15);
    await reader?.cancel();
  });

  it('shares its output with all monitors at the same position', async () => {
    const { app, model } = testApp();
    const readers = await Promise.all(
      Array.from({ length: 20 }, async () => (await app.request('/v1/monitor')).body?.getReader()),
    );
    for (const reader of readers) await reader?.read();
    const parts = readers.map((reader) => reader?.read());
    await settle();
    let reads = 0;
    const { labelsOf } = model;
    Object.assign(model, {
      labelsOf: (identity: number) => {
        reads++;
        return labelsOf(identity);
      },
    });
    model.ipcache.upsert('10.7.7.7', { identity: 9, source: 'k8s' });
    await model.clock.advance(50);
    const texts = await Promise.all(parts.map(async (part) => new TextDecoder().decode((await part)?.value)));
    expect(new Set(texts).size).toBe(1);
    expect(texts[0]).toContain('"key":"10.7.7.7/32"');
    expect(reads).toBe(1);
    for (const reader of readers) await reader?.cancel();
  });

  it('gives each of two monitors at one revision its own types (regression: they shared the output)', async () => {
    const { app, model } = testApp();
    model.ipcache.upsert('10.7.7.7', { identity: 9, source: 'k8s' });
    model.nodes.nodeUpdated({ cluster: 'baltic', name: 'node-7', source: 'clustermesh' });
    const changes = async (types: string): Promise<readonly string[]> => {
      const reader = (await app.request(`/v1/monitor?from=0&types=${types}`)).body?.getReader();
      let text = '';
      for (let part = 0; part < 2; part++) text += new TextDecoder().decode((await reader?.read())?.value);
      await reader?.cancel();
      return [...text.matchAll(/"type":"(\w+)"/g)].map(([, type = '']) => type);
    };
    expect(await changes('ip')).toEqual(['ip']);
    expect(await changes('node')).toEqual(['node']);
    expect(await changes('ip,node')).toEqual(['ip', 'node']);
    expect(await changes('ip')).toEqual(['ip']);
  });

  it('whose events cannot be encoded is closed, and the fault is reported as a bug', async () => {
    const world = testApp(undefined, undefined, systemClock);
    const path = join(temporaryFolder({}), 'dpcache.sock');
    await serve({ socket: path }, world);
    world.model.ipcache.upsert('10.0.0.9', { identity: 9, source: 'k8s' });
    const bug = new Error('bug');
    world.model.ipcache.lookupByPrefix = () => {
      throw bug;
    };
    const lines = new ApiClient(path, NEVER).lines('/v1/monitor?from=0');
    // The connection ends before or after the head of the response was sent.
    await expect(lines.next()).rejects.toThrow(/the agent (has stopped|closed the connection)/);
    expect(world.faults).toEqual([bug]);
    const metrics = await (await world.app.request('/metrics')).text();
    expect(metrics).toContain('dpcache_api_monitors 0');
  });

  it('that does not read uses little memory, and is released when it disconnects', async () => {
    const world = testApp();
    const server = await serve({ tcp: { host: '127.0.0.1', port: 0 } }, world);
    const { port } = new URL(server.url ?? '');
    const socket = connect(Number(port), '127.0.0.1');
    socket.pause();
    socket.write(`GET /v1/monitor HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\n\r\n`);
    await once(socket, 'connect');
    const before = await bytesInUse();
    for (let round = 0; round < 100; round++) {
      for (let i = 0; i < 1_000; i++)
        world.model.ipcache.upsert(`10.1.${i >> 8}.${i & 255}`, { identity: round + 1, source: 'k8s' });
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect((await bytesInUse()) - before).toBeLessThan(16 << 20);
    socket.destroy();
    await once(socket, 'close');
  });
});

it('counts each refused request and connection by its reason (regression: guesses of the token were not counted)', async () => {
  const authority = new TestAuthority('server');
  const { certificate, key } = authority.issue('agent');
  const [cert = '', pem = '', clientCA = ''] = [certificate, key, new TestAuthority('client').ca].map(
    (path) => readFileSync(path, 'utf8'),
  );
  const refused: RefusalReason[] = [];
  const onRefused = (reason: RefusalReason): void => void refused.push(reason);
  const tcp = { host: '127.0.0.1', port: 0, token: 'secret' };
  const { url } = await serve({ tcp, onRefused });
  for (const authorization of ['Bearer wrong', 'Bearer secret', 'Bearer wrong'])
    await send(`${url}/healthz`, { authorization });
  await send(`${url}/healthz`, { host: 'attacker.example' });
  expect(refused).toEqual(['unauthorized', 'unauthorized', 'forbidden']);
  const { url: secure } = await serve({ tcp: { ...tcp, tls: { cert, key: pem, clientCA } }, onRefused });
  const other = { cert, key: pem, rejectUnauthorized: false, agent: false };
  const [error] = await once(requestTLS(`${secure}/healthz`, other).end(), 'error');
  expect(error).toBeInstanceOf(Error);
  await expect.poll(() => refused.slice(3)).toEqual(['handshake']);
});

describe('a connection in a TLS handshake', () => {
  const authority = new TestAuthority('client');
  const { certificate, key } = authority.issue('agent');
  const [cert = '', pem = '', clientCA = ''] = [certificate, key, authority.ca].map((path) =>
    readFileSync(path, 'utf8'),
  );
  const tls = { cert, key: pem, clientCA };

  /** Starts a server, and opens a connection that sends nothing. */
  async function openSilent(): Promise<{ readonly server: ApiServer; readonly silent: Socket }> {
    const server = await serve({ tcp: { host: '127.0.0.1', port: 0, tls } });
    const silent = connect(Number(new URL(server.url ?? '').port), '127.0.0.1').on('error', () => {});
    onTestFinished(() => void silent.destroy());
    await once(silent, 'connect');
    const options = { cert, key: pem, rejectUnauthorized: false, agent: false };
    const next = requestTLS(`${server.url}/healthz`, options).end();
    const [answer]: [IncomingMessage] = (await once(next, 'response')) as never; // it was accepted after the silent one
    expect(answer.resume().statusCode).toBe(200);
    return { server, silent };
  }

  it('is closed by a stop (regression: the stop waited for it)', async () => {
    const { server, silent } = await openSilent();
    const closed = once(silent, 'close');
    await server.stop();
    await closed;
  });

  it('is closed when the client authority is replaced (regression: it was accepted with the former one)', async () => {
    const { server, silent } = await openSilent();
    const other = readFileSync(new TestAuthority('other').ca, 'utf8');
    server.renew({ tls: { ...tls, clientCA: other } });
    await expect.poll(() => silent.closed, { timeout: 5_000 }).toBe(true); // before the time limit of the handshake
  });

  it('is closed if the handshake is not complete in time (regression: it stayed open)', async () => {
    const { setTimeout } = Socket.prototype;
    let handshakes = 0;
    vi.spyOn(Socket.prototype, 'setTimeout').mockImplementation(function (this: Socket, ms, onTimeout) {
      const isFirst = ms === 10_000 && ++handshakes === 1;
      return setTimeout.call(this, isFirst ? 1 : ms, onTimeout);
    });
    const { silent } = await openSilent();
    await expect.poll(() => silent.closed).toBe(true);
  });
});

it('reports that the agent closed the connection in the middle of an answer', async () => {
  const path = join(temporaryFolder({}), 'dpcache.sock');
  const other = createServer((socket) => socket.end('HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n{')).listen(
    path,
  );
  onTestFinished(() => void other.close());
  await once(other, 'listening');
  await expect(new ApiClient(path, NEVER).ask('/v1/status')).rejects.toThrow('the agent has stopped');
});

it('reports that an answer is not from an agent', async () => {
  const path = join(temporaryFolder({}), 'dpcache.sock');
  const other = createServer((socket) => socket.end('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi')).listen(
    path,
  );
  onTestFinished(() => void other.close());
  await once(other, 'listening');
  await expect(new ApiClient(path, NEVER).ask('/v1/status')).rejects.toThrow(AgentError);
});

it('rejects an answer that does not end (regression: it filled the memory; a line took minutes)', async () => {
  const path = join(temporaryFolder({}), 'dpcache.sock');
  const chunk = Buffer.alloc(1 << 20, 'x');
  const other = createServer((socket) => {
    socket.on('error', () => {}).write('HTTP/1.1 200 OK\r\n\r\n');
    const send = (): void => void socket.write(chunk, (error) => error ?? send());
    send();
  }).listen(path);
  onTestFinished(() => void other.close());
  await once(other, 'listening');
  const { signal } = new AbortController();
  await expect(new ApiClient(path, signal).ask('/v1/status')).rejects.toThrow('more than 64 MiB');
  await expect(new ApiClient(path, signal).lines('/v1/monitor').next()).rejects.toThrow('more than 64 MiB');
});
