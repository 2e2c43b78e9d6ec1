import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import fc from 'fast-check';
import { expect } from 'vitest';
import { ApiServer } from '../../../src/api/server/api-server.ts';
import { systemClock } from '../../../src/base/system-clock.ts';
import { testApp } from './test-app.ts';

const ODD_METHODS = ['PUT', 'OPTIONS', 'TRACE', 'CONNECT', 'PRI', 'get', ''];
const ODD_HEADERS = [
  ...[
    'Host: ',
    'Host: [::1]',
    'Host: a@localhost',
    'Content-Length: -1',
    'Content-Length: 3',
    'Expect: 100-continue',
  ],
  ...['Transfer-Encoding: chunked', 'Upgrade: websocket', 'Expect: nothing', 'Origin: null', 'x'],
];
const HEADERS = [
  ...['Last-Event-ID: abc.0', 'Last-Event-ID: x', 'If-None-Match: *', 'Range: bytes=0-', 'Accept: text/html'],
  ...[
    'Connection: close',
    'X-Y: \xff',
    'Content-Type: text/plain',
    'Connection: upgrade\r\nUpgrade: websocket',
  ],
];
const PATHS = [
  ...[
    '/v1/ipcache',
    '/v1/ipcache/lookup',
    '/v1/ipcache/explain',
    '/v1/services',
    '/v1/nodes',
    '/v1/identities',
  ],
  ...['/v1/monitor', '/v1/lookup', '/v1/status', '/readyz', '/metrics', '/openapi.json', '/v1', ''],
];
const SEGMENTS = [
  '10.0.0.1',
  '8',
  '77',
  'shop',
  'checkout',
  '%2F',
  '..',
  '__proto__',
  '%',
  '%00',
  '\\',
  '%E0%A4',
];
const NAMES = [
  ...[
    'limit',
    'continue',
    'within',
    'prefix',
    'identity',
    'pod',
    'node',
    'source',
    'types',
    'from',
    '__proto__',
    '%',
  ],
];
const VALUES = ['1', '-1', '1e99', '::', '10.0.0.0/8', '1.1', 'a/b', 'ip', 'abc.3', 'def.3', '%', '%00', ''];
const BODIES = ['', '{"ips":["10.0.0.1"]}', '{"ips":[', '{"ips":[1]}', 'null', '[[[[[[', '{"__proto__":1}'];

const encoded = fc.string({ maxLength: 12, unit: 'binary' }).map((text) => encodeURIComponent(text));
const raw = fc.string({ maxLength: 12, unit: 'binary-ascii' });

/** Mostly one of the first, rarely one of the second, more rarely any text. */
function mostly(usual: fc.Arbitrary<string>, odd: fc.Arbitrary<string>): fc.Arbitrary<string> {
  return fc.oneof(
    { weight: 30, arbitrary: usual },
    { weight: 1, arbitrary: odd },
    { weight: 1, arbitrary: raw },
  );
}

const TARGET = fc
  .tuple(
    fc.constantFrom(...PATHS),
    fc.array(mostly(fc.oneof(fc.constantFrom(...SEGMENTS), encoded), raw), { maxLength: 3 }),
    fc.array(fc.tuple(fc.constantFrom(...NAMES), fc.oneof(fc.constantFrom(...VALUES), encoded)), {
      maxLength: 2,
    }),
  )
  .map(([path, segments, query]) => {
    const parameters = query.map(([name, value]) => `${name}=${value}`).join('&');
    return `${[path, ...segments].join('/') || '/'}${parameters && `?${parameters}`}`;
  });

/** Requests as bytes: well-formed, with one error, or not a request at all. */
const REQUEST = mostly(
  fc
    .tuple(
      mostly(fc.constantFrom('GET', 'GET', 'HEAD', 'POST'), fc.constantFrom(...ODD_METHODS)),
      mostly(TARGET, raw),
      fc.array(mostly(fc.constantFrom(...HEADERS), fc.constantFrom(...ODD_HEADERS)), { maxLength: 2 }),
      fc.oneof(fc.constantFrom(...BODIES), encoded),
    )
    .map(([method, target, headers, body]) => {
      const about =
        method === 'POST' ? [`Content-Length: ${body.length}`, 'Content-Type: application/json'] : [];
      const head = [`${method} ${target} HTTP/1.1`, 'Host: localhost', ...about, ...headers, '', ''];
      return `${head.join('\r\n')}${method === 'POST' ? body : ''}`;
    }),
  fc.string({ maxLength: 200, unit: 'binary' }),
);

/** Sends bytes and closes the connection after an answer, or after a turn of the other side. */
async function answerTo(port: number, bytes: string): Promise<string> {
  const socket: Socket = connect(port, '127.0.0.1');
  let text = '';
  socket.on('error', () => {}); // the server may reset the connection during the write
  socket.on('data', (part: Buffer) => {
    text += part.toString('latin1');
    socket.destroy();
  });
  await once(socket, 'connect');
  socket.end(bytes, 'latin1');
  if (!socket.destroyed) await once(socket, 'close');
  return text;
}

/** Sends `count` requests of all kinds over connections. None is answered with a 5xx, and the server still works. */
export async function fuzzServer(requests: number): Promise<void> {
  const world = testApp(undefined, undefined, systemClock);
  const server = new ApiServer({ app: world.app, tcp: { host: '127.0.0.1', port: 0 } });
  await server.start();
  const port = Number(new URL(server.url ?? '').port);
  try {
    await fc.assert(
      fc.asyncProperty(fc.array(REQUEST, { minLength: 1, maxLength: 3 }), async (parts) => {
        const text = await answerTo(port, parts.join(''));
        expect(text === '' ? '400' : text.slice(9, 12)).toMatch(/^[1-4]\d\d$/);
      }),
      { numRuns: requests },
    );
    expect(world.faults).toEqual([]);
    expect((await fetch(`${server.url}/healthz`)).status).toBe(200);
    const metrics = await (await fetch(`${server.url}/metrics`)).text();
    expect(metrics).not.toMatch(/dpcache_api_request_duration_seconds_count\{.*code="5\d\d"\}/);
  } finally {
    await server.stop();
  }
}
