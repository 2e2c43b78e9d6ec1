import dns from 'node:dns';
import { getEventListeners, once } from 'node:events';
import { constants, createServer as createHttp2Server } from 'node:http2';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it, onTestFinished, vi } from 'vitest';
import { keyRange } from '../../../src/kvstore/codec/key-range.ts';
import { bytesField, message, numberField } from '../../../src/kvstore/codec/proto-writer.ts';
import { EtcdBackend } from '../../../src/kvstore/etcd/etcd-backend.ts';
import type { EtcdConfig } from '../../../src/kvstore/etcd/etcd-config.ts';
import { EtcdTransport } from '../../../src/kvstore/etcd/etcd-transport.ts';
import { freePort } from '../../base/support/free-port.ts';
import { collectGarbage, collectYoungGarbage } from '../../base/support/garbage.ts';
import { until } from '../../base/support/until.ts';
import { FakeServer, NO_KEYS } from './support/fake-server.ts';

/** grpc-js would retry about four times during this time. */
const A_WHILE_MS = 1_500;
const SHORT_MS = 50;
const STEP_MS = 20;

/** A server that accepts connections and handles them as the test says. */
class Listener {
  accepted = 0;
  readonly open = new Set<Socket>();
  readonly #server = createServer((socket) => this.#accept(socket));
  readonly #serve: (socket: Socket) => void;

  constructor(serve: (socket: Socket) => void) {
    this.#serve = serve;
  }

  async start(): Promise<number> {
    this.#server.listen(0, '127.0.0.1');
    await once(this.#server, 'listening');
    return (this.#server.address() as AddressInfo).port;
  }

  stop(): void {
    this.#server.close();
    for (const socket of this.open) socket.destroy();
  }

  #accept(socket: Socket): void {
    this.accepted++;
    this.open.add(socket);
    socket.on('error', () => {});
    socket.on('close', () => this.open.delete(socket));
    this.#serve(socket);
  }
}

async function connected(
  serve: (socket: Socket) => void,
  scheme: string,
  config: Partial<EtcdConfig> = {},
): Promise<{ readonly server: Listener; readonly backend: EtcdBackend }> {
  const server = new Listener(serve);
  const endpoints = [`${scheme}://127.0.0.1:${await server.start()}`];
  onTestFinished(() => server.stop());
  const backend = new EtcdBackend({ endpoints, ...config });
  onTestFinished(() => backend.close());
  return { server, backend };
}

/** From now on, only {@link pass} advances the time of the test. */
function fakeTime(): void {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'setInterval', 'clearInterval', 'performance'] });
  onTestFinished(() => void vi.useRealTimers());
}

/** Advances the time in steps. After each, the connections within this process transfer their data. */
async function pass(ms: number): Promise<void> {
  for (let passed = 0; passed < ms; passed += STEP_MS) {
    vi.advanceTimersByTime(STEP_MS);
    for (let turn = 0; turn < 5; turn++) await new Promise((resolve) => setImmediate(resolve));
  }
}

const saysNothing = (socket: Socket): void => void socket.resume();

it('an unreachable server is not retried until the next call (before: every second)', async () => {
  const { server, backend } = await connected((socket) => void socket.destroy(), 'http');
  fakeTime();
  for (const asked of [1, 2]) {
    const failed = expect(backend.get('key')).rejects.toMatchObject({ code: 'unavailable' });
    await pass(A_WHILE_MS);
    await failed;
    // An accepted connection that breaks is opened once more while the call fails.
    expect(server.accepted).toBeLessThanOrEqual(2 * asked);
  }
});

it.each(['http', 'https'])(
  'calls that a server does not answer leave no connection behind (regression: one for each, over %s)',
  async (scheme) => {
    const { server, backend } = await connected(saysNothing, scheme);
    // If this process is suspended, the deadline of a call may expire before it connects.
    for (let calls = 1; server.accepted < 3; calls++) {
      const call = backend.get('key', { deadlineMs: SHORT_MS });
      await expect(call).rejects.toMatchObject({ code: 'deadline' });
      expect(server.accepted).toBeLessThanOrEqual(calls);
    }
    await until('they are closed', () => server.open.size === 0);
  },
);

it.each(['http', 'https'])(
  'a client that is closed while it connects leaves no connection behind (regression: over %s it stayed open)',
  async (scheme) => {
    const { server, backend } = await connected(saysNothing, scheme);
    const call = backend.get('key').catch(({ code }: { readonly code: string }) => code);
    await backend.close();
    expect(await call).toBe('closed');
    await until('it has connected', () => server.accepted === 1);
    await until('it is closed', () => server.open.size === 0);
  },
);

it('a call that is aborted while it connects leaves no connection (regression: it was retried for ever)', async () => {
  const { server, backend } = await connected(saysNothing, 'http');
  const controller = new AbortController();
  const call = backend.get('key', { signal: controller.signal });
  await until('it has connected', () => server.accepted === 1);
  controller.abort();
  await expect(call).rejects.toMatchObject({ code: 'aborted' });
  await until('it is closed', () => server.open.size === 0);
});

it('a watch that ends before its server has answered leaves no connection', async () => {
  const { server, backend } = await connected(saysNothing, 'http');
  const stop = new AbortController();
  const watch = backend.watch('a/', { signal: stop.signal });
  const read = watch[Symbol.asyncIterator]().next();
  await until('it has connected', () => server.open.size === 1);
  stop.abort();
  expect(await read).toMatchObject({ done: true });
  await until('it is closed', () => server.open.size === 0);
});

it('an answered call leaves no listener on the signal of its caller, and no timer', async () => {
  const server = new FakeServer({ range: () => NO_KEYS });
  const transport = new EtcdTransport({ endpoints: [await server.start()] }, () => 0);
  onTestFinished(() => server.stop());
  onTestFinished(() => transport.close());
  const timers = vi.spyOn(globalThis, 'setTimeout');
  const cleared = vi.spyOn(globalThis, 'clearTimeout');
  const { signal } = new AbortController();
  await transport.range(keyRange('key'), { signal, deadlineMs: 86_400_000 });
  expect(getEventListeners(signal, 'abort')).toEqual([]);
  const ofDeadline = timers.mock.calls.findIndex(([, ms = 0]) => ms > 80_000_000);
  expect(cleared).toHaveBeenCalledWith(timers.mock.results[ofDeadline]?.value);
});

it('calls that fail together switch to the next endpoint once', async () => {
  const servers = [0, 1].map(() => new Listener((socket) => void socket.destroy()));
  const ports = await Promise.all(servers.map((server) => server.start()));
  onTestFinished(() => {
    for (const server of servers) server.stop();
  });
  const backend = new EtcdBackend({ endpoints: ports.map((port) => `http://127.0.0.1:${port}`) });
  onTestFinished(() => backend.close());
  const fail = (): Promise<void> => expect(backend.get('key')).rejects.toMatchObject({ code: 'unavailable' });
  await Promise.all([fail(), fail()]);
  expect(servers.filter(({ accepted }) => accepted > 0)).toHaveLength(1);
  await fail();
  expect(servers.filter(({ accepted }) => accepted > 0)).toHaveLength(2);
});

it('an unanswered handshake is restarted while a call waits (regression: it was waited for for ever)', async () => {
  const often = { keepAliveTimeMs: SHORT_MS, keepAliveTimeoutMs: SHORT_MS };
  const { server, backend } = await connected(saysNothing, 'https', often);
  const call = backend.get('key').catch(({ code }: { readonly code: string }) => code);
  await until('it has tried again', () => server.accepted > 1);
  await backend.close();
  expect(await call).toMatch(/closed|unavailable/);
});

it.each(['http', 'https'] as const)(
  'a connection over %s that this client closes because it is silent is named so (regression: "closed by the peer")',
  async (scheme) => {
    const silent = { deadlineMs: 3_600_000, keepAliveTimeMs: SHORT_MS, keepAliveTimeoutMs: SHORT_MS };
    const { backend } = await connected(saysNothing, scheme, silent);
    await expect(backend.get('key')).rejects.toMatchObject({
      code: 'unavailable',
      message: expect.stringMatching(
        /^no answer from etcd at \S+ in time; check the network and the load of etcd$/,
      ),
    });
  },
);

it('a caller that waits for a token keeps its deadline and its signal (regression: both were delayed by the deadline of the token)', async () => {
  const auth = { username: 'somebody', password: 'something' };
  const { backend } = await connected(saysNothing, 'http', { auth, deadlineMs: 3_600_000 });
  await expect(backend.get('key', { deadlineMs: SHORT_MS })).rejects.toMatchObject({ code: 'deadline' });
  const controller = new AbortController();
  const call = backend.get('key', { signal: controller.signal });
  await sleep(SHORT_MS);
  controller.abort();
  await expect(call).rejects.toMatchObject({ code: 'aborted' });
});

it('keepalives share a connection that has no other calls (regression: each opened one, and dropped it)', async () => {
  const clients = new Set<string>();
  const server = new FakeServer({
    keepAlive: (call) => {
      clients.add(call.getPeer());
      call.on('data', () => call.write(message(numberField(2, 1), numberField(3, 30))));
    },
  });
  const transport = new EtcdTransport({ endpoints: [await server.start()] }, () => 0);
  onTestFinished(() => server.stop());
  onTestFinished(() => transport.close());
  for (let i = 0; i < 3; i++) {
    expect(await transport.keepLeaseAlive('1')).toBe(30);
    await until('its stream is over', () => transport.streams === 0);
  }
  expect(clients.size).toBe(1);
});

it('no DNS record changes how calls are made (regression: one could have transactions sent again after an unknown outcome)', async () => {
  const asked = vi.spyOn(dns.promises, 'resolveTxt').mockResolvedValue([]);
  onTestFinished(() => asked.mockRestore());
  const server = new Listener(saysNothing);
  onTestFinished(() => server.stop());
  const backend = new EtcdBackend({ endpoints: [`http://localhost:${await server.start()}`] });
  onTestFinished(() => backend.close());
  await expect(backend.get('key', { deadlineMs: SHORT_MS })).rejects.toMatchObject({ code: 'deadline' });
  expect(asked).not.toHaveBeenCalled();
});

it.each(['an empty answer', 'only a TTL'])(
  'a lease without an id is a failure (regression: %s was lease 0, whose keys never expire)',
  async (which) => {
    const answer = which === 'only a TTL' ? message(numberField(3, 60)) : Buffer.alloc(0);
    const server = new FakeServer({ grant: () => answer });
    const transport = new EtcdTransport({ endpoints: [await server.start()] }, () => 0);
    onTestFinished(() => server.stop());
    onTestFinished(() => transport.close());
    await expect(transport.grantLease(60)).rejects.toMatchObject({
      code: 'internal',
      message: expect.stringMatching(/^etcd at 127\.0\.0\.1:\d+: a lease without an id$/),
    });
  },
);

it('a lease shorter than requested is a failure (regression: it expired minutes before its first keepalive)', async () => {
  let granted = 59;
  const server = new FakeServer({ grant: () => message(numberField(2, 7), numberField(3, granted)) });
  const transport = new EtcdTransport({ endpoints: [await server.start()] }, () => 0);
  onTestFinished(() => server.stop());
  onTestFinished(() => transport.close());
  await expect(transport.grantLease(60)).rejects.toMatchObject({
    code: 'internal',
    message: expect.stringMatching(/: a lease of 59 s instead of 60 s$/),
  });
  for (granted of [60, 61]) expect(await transport.grantLease(60)).toBe('7');
});

it('a server that finds the pings too many receives half as many (regression: it closed each connection, and so did the client)', async () => {
  const pings: number[][] = [];
  const server = createHttp2Server();
  server.on('session', (session) => {
    const times: number[] = [];
    pings.push(times);
    session.on('ping', () => {
      times.push(performance.now());
      if (pings.length === 1)
        session.goaway(constants.NGHTTP2_ENHANCE_YOUR_CALM, 0, Buffer.from('too_many_pings'));
      if (pings.length === 1) session.destroy();
    });
  });
  server.on('stream', (stream) => {
    stream.on('error', () => {});
    stream.respond({ ':status': 200, 'content-type': 'application/grpc' });
  });
  const port = await freePort();
  server.listen(port, '127.0.0.1');
  onTestFinished(() => void server.close());
  fakeTime();
  const often = { keepAliveTimeMs: 100, keepAliveTimeoutMs: 60 };
  const backend = new EtcdBackend({ endpoints: [`http://127.0.0.1:${port}`], ...often });
  onTestFinished(() => backend.close());
  const message = `etcd at 127.0.0.1:${port} closed the connection because of too many pings; raise keep-alive-time`;
  const calls = Promise.allSettled([backend.get('a'), backend.get('b')]);
  await pass(200);
  for (const call of await calls) expect(call).toMatchObject({ reason: { code: 'unavailable', message } });
  backend.get('a').catch(() => {});
  await pass(800);
  expect(pings).toHaveLength(2);
  const [first = 0, second = 0, third = 0] = pings[1] ?? [];
  expect(Math.min(second - first, third - second)).toBeGreaterThan(150);
});

it('an answer does not stay in memory with its call (regression: until a collection of the old generation)', async () => {
  const value = Buffer.alloc(1 << 20);
  const kv = message(bytesField(1, Buffer.from('key')), numberField(3, 1), bytesField(5, value));
  const answer = message(bytesField(1, message(numberField(3, 1))), bytesField(2, kv));
  const server = new FakeServer({ range: () => answer });
  const transport = new EtcdTransport({ endpoints: [await server.start()] }, Math.random);
  onTestFinished(() => server.stop());
  onTestFinished(() => transport.close());
  const calls = 16;
  const read = async (): Promise<void> => {
    await transport.range(keyRange('key'));
    await sleep(1); // the last answer is still on the stack
    collectYoungGarbage();
  };
  await read();
  await collectGarbage();
  const before = process.memoryUsage().arrayBuffers;
  for (let call = 0; call < calls; call++) await read();
  await sleep(SHORT_MS);
  collectYoungGarbage();
  expect((process.memoryUsage().arrayBuffers - before) / calls / value.length).toBeLessThan(0.5);
});
