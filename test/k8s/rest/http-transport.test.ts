import { randomBytes } from 'node:crypto';
import { getEventListeners, once } from 'node:events';
import { createServer, type IncomingMessage, type RequestListener } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { gzipSync } from 'node:zlib';
import { afterEach, expect, it, vi } from 'vitest';
import { ApiError } from '../../../src/k8s/rest/api-error.ts';
import { textOf } from '../../../src/k8s/rest/api-transport.ts';
import {
  type ClientCertificate,
  type ClusterAccess,
  fixedCredentials,
} from '../../../src/k8s/rest/cluster-access.ts';
import { HttpTransport } from '../../../src/k8s/rest/http-transport.ts';
import { until } from '../../base/support/until.ts';

/** The time limit of a connection attempt. */
const CONNECT_MS = 10_000;

const never = new AbortController().signal;

const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

/** A transport to a server with this answer. */
async function wayTo(
  answer: RequestListener,
  access: Partial<ClusterAccess> = {},
  path = '',
): Promise<HttpTransport> {
  const server = createServer(answer).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const transport = new HttpTransport({
    server: `http://127.0.0.1:${port}${path}`,
    ca: undefined,
    serverName: undefined,
    insecureSkipVerify: false,
    credentials: fixedCredentials(undefined, undefined),
    ...access,
  });
  ends.push(
    () => server.close(),
    () => transport.close(),
  );
  return transport;
}

async function bodyOf(request: IncomingMessage): Promise<string> {
  let text = '';
  for await (const bytes of request) text += String(bytes);
  return text;
}

it('sends the request, below the path of the server, with the credentials', async () => {
  const seen: unknown[] = [];
  const credentials = fixedCredentials('Bearer t', undefined);
  const transport = await wayTo(
    async (request, response) => {
      const { method, url, headers } = request;
      const { accept, authorization, 'content-type': type, 'user-agent': agent } = headers;
      seen.push([method, url, accept, authorization, type, agent, await bodyOf(request)]);
      response.end('ok');
    },
    { credentials },
    '/clusters/c1/',
  );
  const ask = async (request: object): Promise<string> =>
    textOf((await transport.send({ path: '/api', signal: never, ...request })).body);
  const always = ['application/json', 'Bearer t'];
  expect(await ask({})).toBe('ok');
  expect(await ask({ method: 'POST', body: { a: 1 } })).toBe('ok');
  expect(await ask({ method: 'PATCH', body: [], contentType: 'application/json-patch+json' })).toBe('ok');
  expect(seen).toEqual([
    ['GET', '/clusters/c1/api', ...always, undefined, 'datapath-cache', ''],
    ['POST', '/clusters/c1/api', ...always, 'application/json', 'datapath-cache', '{"a":1}'],
    ['PATCH', '/clusters/c1/api', ...always, 'application/json-patch+json', 'datapath-cache', '[]'],
  ]);
});

it('returns the delay that the server requests, and decompresses answers', async () => {
  const transport = await wayTo((_request, response) => {
    response.writeHead(429, { 'retry-after': '3', 'content-encoding': 'gzip' });
    response.end(gzipSync('slow down'));
  });
  const { status, retryAfterMs, body } = await transport.send({ path: '/', signal: never });
  expect({ status, retryAfterMs }).toEqual({ status: 429, retryAfterMs: 3_000 });
  expect(await textOf(body)).toBe('slow down');
});

it.each([
  [204, {}],
  [200, { 'content-length': '0' }],
])('accepts an answer without a body, even if it claims to be compressed: %d %o', async (status, length) => {
  const transport = await wayTo((_request, response) => {
    response.writeHead(status, { 'content-encoding': 'gzip', ...length }).end();
  });
  const answer = await transport.send({ path: '/', signal: never });
  expect(answer.status).toBe(status);
  expect(await textOf(answer.body)).toBe('');
});

it('decompresses data that arrives faster than it is read', async () => {
  const text = randomBytes(1 << 20).toString('hex'); // half as long if compressed: many chunks
  const transport = await wayTo((_request, response) => {
    response.writeHead(200, { 'content-encoding': 'gzip' });
    response.end(gzipSync(text));
  });
  const { body } = await transport.send({ path: '/', gzip: true, signal: never });
  expect((await textOf(body, text.length)) === text).toBe(true);
});

it('invalidates only credentials that the server does not accept', async () => {
  const refused: unknown[] = [];
  const statuses = [200, 401, 403];
  const transport = await wayTo(
    (_request, response) => {
      response.writeHead(statuses.shift() ?? 500).end('');
    },
    {
      credentials: {
        ...fixedCredentials('Bearer t', undefined),
        refused: (authorization) => void refused.push(authorization),
      },
    },
  );
  const counts: number[] = [];
  for (let i = 0; i < 3; i++) {
    await textOf((await transport.send({ path: '/', signal: never })).body);
    counts.push(refused.length);
  }
  expect(counts).toEqual([0, 1, 1]);
  expect(refused).toEqual(['Bearer t']);
});

it('connects again after a 401, because a client certificate belongs to its connection (regression)', async () => {
  let isRenewed = false;
  const accepted = new Set<Socket>();
  const connections: Socket[] = [];
  const certificates = ['first', 'second'].map((file) => ({ certificate: { file }, key: { file } }));
  const refused: unknown[] = [];
  const certificate = (): Promise<ClientCertificate | undefined> => {
    isRenewed = connections.length > 0;
    return Promise.resolve(certificates[connections.length]);
  };
  const transport = await wayTo(
    ({ socket }, response) => {
      if (!connections.includes(socket)) connections.push(socket);
      if (isRenewed) accepted.add(socket);
      response.writeHead(accepted.has(socket) ? 200 : 401).end('');
    },
    {
      credentials: {
        ...fixedCredentials(undefined, undefined),
        certificate,
        refused: (_authorization, rejected) => void refused.push(rejected),
      },
    },
  );
  const statuses: number[] = [];
  for (let i = 0; i < 3; i++) {
    const { status, body } = await transport.send({ path: '/', signal: never });
    await textOf(body);
    statuses.push(status);
  }
  expect(statuses).toEqual([401, 200, 200]);
  expect(connections).toHaveLength(2);
  expect(refused, 'the certificate of the connection').toEqual(certificates.slice(0, 1));
});

it('distinguishes an unreachable server from a broken connection, and both from failed credentials', async () => {
  const breaking = await wayTo((request) => request.socket.destroy());
  await expect(breaking.send({ path: '/', signal: never })).rejects.toMatchObject({
    code: 'broken',
    message: 'the server closed the connection without a response',
  });
  const absent = await wayTo(() => {}, { server: 'http://127.0.0.1:1' });
  await expect(absent.send({ path: '/', signal: never })).rejects.toMatchObject({ code: 'unreachable' });
  const failure = new ApiError('credentials', 'the plugin failed');
  const certificate = (): Promise<never> => Promise.reject(failure);
  const without = await wayTo(() => {}, {
    credentials: { ...fixedCredentials(undefined, undefined), certificate },
  });
  await expect(without.send({ path: '/', signal: never })).rejects.toBe(failure);
});

it('rejects an answer that switches to another protocol (regression: the request had no result)', async () => {
  const transport = await wayTo(({ socket }) =>
    socket.write('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n'),
  );
  await expect(transport.send({ path: '/', signal: never })).rejects.toMatchObject({
    code: 'garbled',
    message: 'the server switched to another protocol',
  });
});

it.each(['read', 'broken'])(
  'a request whose answer is %s leaves no listener, and no timer that would end its connection',
  async (how) => {
    const timers = vi.spyOn(globalThis, 'setTimeout');
    const cleared = vi.spyOn(globalThis, 'clearTimeout');
    const transport = await wayTo((_request, response) => {
      if (how === 'read') return void response.end('ok');
      response.write('o');
      setImmediate(() => response.destroy());
    });
    const { signal } = new AbortController();
    const { body } = await transport.send({ path: '/', signal });
    if (how === 'read') expect(await textOf(body)).toBe('ok');
    else await expect(textOf(body)).rejects.toThrow('the server closed the connection during the response');
    expect(getEventListeners(signal, 'abort')).toHaveLength(0);
    const ofConnection = timers.mock.calls.findIndex(([, ms]) => ms === CONNECT_MS);
    expect(cleared).toHaveBeenCalledWith(timers.mock.results[ofConnection]?.value);
  },
);

it('aborts requests when connections are closed, and opens others afterwards', async () => {
  let hangs = true;
  let asked: () => void = () => {};
  const isAsked = new Promise<void>((resolve) => {
    asked = resolve;
  });
  const transport = await wayTo((_request, response) => {
    asked();
    if (!hangs) response.end('ok');
  });
  const waiting = transport.send({ path: '/', signal: never });
  // Not `broken`, because the connection may have been dead for some time.
  const failed = expect(waiting).rejects.toMatchObject({ code: 'unreachable' });
  await isAsked;
  transport.reset();
  await failed;
  hangs = false;
  expect(await textOf((await transport.send({ path: '/', signal: never })).body)).toBe('ok');
});

it('closes a connection that opens after all connections were closed', async () => {
  const [opened, closed]: [Socket[], Socket[]] = [[], []];
  const server = createServer().listen(0, '127.0.0.1');
  server.on('connection', (socket) => {
    opened.push(socket);
    socket.on('close', () => closed.push(socket));
  });
  await once(server, 'listening');
  let connect: (() => void) | undefined;
  const certificate = (): Promise<undefined> =>
    new Promise((resolve) => {
      connect = () => resolve(undefined);
    });
  const transport = new HttpTransport({
    server: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    ca: undefined,
    serverName: undefined,
    insecureSkipVerify: false,
    credentials: { ...fixedCredentials(undefined, undefined), certificate },
  });
  ends.push(
    () => server.close(),
    () => server.closeAllConnections(),
    () => transport.close(),
  );
  const failed = expect(transport.send({ path: '/', signal: never })).rejects.toMatchObject({
    code: 'unreachable',
  });
  await until('the transport connects', () => connect !== undefined);
  transport.reset();
  await failed;
  connect?.();
  await until('the connection was opened and closed', () => opened.length === 1 && closed.length === 1);
});

it.each([true, false])(
  'an answer that is given up before it is read ends nothing else (regression: the process, where gzip): %s',
  async (gzip) => {
    const server = createServer((_request, response) => {
      response.writeHead(200, gzip ? { 'content-encoding': 'gzip' } : {});
      response.write(gzip ? gzipSync('{"items":[').subarray(0, 12) : '{"items":[');
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    const transport = new HttpTransport({
      server: `http://127.0.0.1:${port}`,
      ca: undefined,
      serverName: undefined,
      insecureSkipVerify: false,
      credentials: fixedCredentials(undefined, undefined),
    });
    const givenUp = new AbortController();
    const { status, body } = await transport.send({ path: '/', gzip, signal: givenUp.signal });
    expect(status).toBe(200);
    givenUp.abort();
    await new Promise((resolve) => setTimeout(resolve, 20));
    await expect(textOf(body)).rejects.toThrow();
    await transport.close();
    server.close();
  },
);

it.each([
  ['ended', 'Content-Length: 66560\r\nConnection: close', 'whole'],
  ['ended', 'Content-Length: 66560', 'whole'],
  ['ended', 'Connection: close', 'whole'],
  ['reset', 'Content-Length: 66561\r\nConnection: close', 'broken'],
  ['reset', 'Connection: close', 'broken'],
] as const)(
  'a connection that is %s while it is held up for a slow reader ends nothing else (regression: the process): %s',
  async (how, head, expected) => {
    const sockets: Socket[] = [];
    const transport = await wayTo(({ socket }) => {
      sockets.push(socket);
      socket.write(`HTTP/1.1 200 OK\r\n${head}\r\n\r\n`);
      socket.write('x'.repeat(66_560));
    });
    const { body } = await transport.send({ path: '/', signal: never });
    await until('all of it is sent', () => sockets[0]?.writableLength === 0);
    if (how === 'ended') sockets[0]?.end();
    else sockets[0]?.resetAndDestroy();
    await new Promise((resolve) => setTimeout(resolve, 100)); // time for the defect; the result does not depend on it
    const read = textOf(body);
    if (expected === 'whole') expect((await read).length).toBe(66_560);
    else await expect(read).rejects.toThrow();
  },
);

it.each([
  [undefined, 'gzip'],
  [false, 'gzip'],
  [true, undefined],
])('requests compression unless the cluster disables it: %s', async (disableCompression, expected) => {
  const asked: unknown[] = [];
  const server = createServer((request, response) => {
    asked.push(request.headers['accept-encoding']);
    response.end('{}');
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const transport = new HttpTransport({
    server: `http://127.0.0.1:${port}`,
    disableCompression,
    ca: undefined,
    serverName: undefined,
    insecureSkipVerify: false,
    credentials: fixedCredentials(undefined, undefined),
  });
  try {
    const { signal } = new AbortController();
    expect(await textOf((await transport.send({ path: '/', gzip: true, signal })).body)).toBe('{}');
    expect(asked).toEqual([expected]);
  } finally {
    await transport.close();
    server.close();
  }
});
